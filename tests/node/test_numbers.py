"""Numbers in arguments of the client API: numbers out of range, bools, texts and fractions are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

import kcore
from kcore.errors import ConfigError
from tests.node.test_arguments import TIMES, in_transaction


@pytest.fixture(scope="module")
def embedded() -> Any:
    with kcore.open() as node:
        node.topics.create("t", 1)
        yield node


def in_consumer(node: Any, action: Callable[[Any], Any]) -> None:
    """Runs an action with a consumer that has not joined its group yet."""
    with node.group("numbers").consume("t") as consumer:
        action(consumer)


def in_producer(node: Any, action: Callable[[Any], Any]) -> None:
    """Runs an action with a producer."""
    with node.producer() as producer:
        action(producer)


PARTITIONS: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda node, number: node.topics["t"].append("v", partition=number),
    "append_many": lambda node, number: node.topics["t"].append_many(["v"], partition=number),
    "read": lambda node, number: node.topics["t"].read(number, 0),
    "read_batches": lambda node, number: node.topics["t"].read_batches(number, 0),
    "end_offsets": lambda node, number: node.topics.end_offsets([("t", number)]),
    "commit": lambda node, number: node.group("g").commit({("t", number): 1}),
    "committed": lambda node, number: node.group("g").committed([("t", number)]),
    "producer": lambda node, number: in_producer(node, lambda producer: producer.append("t", "v", partition=number)),
    "transaction": lambda node, number: in_transaction(node, lambda txn: txn.append("t", "v", partition=number)),
    "pause": lambda node, number: in_consumer(node, lambda consumer: consumer.pause(("t", number))),
}
OFFSETS: dict[str, Callable[[Any, Any], Any]] = {
    "read": lambda node, number: node.topics["t"].read(0, number),
    "read_batches": lambda node, number: node.topics["t"].read_batches(0, number),
    "delete_records": lambda node, number: node.topics["t"].delete_records({0: number}),
    "commit": lambda node, number: node.group("g").commit({("t", 0): number}),
    "commit with metadata": lambda node, number: node.group("g").commit({("t", 0): kcore.OffsetAndMetadata(number)}),
    "transaction": lambda node, number: in_transaction(node, lambda txn: txn.commit_offsets("g", {("t", 0): number})),
    "seek": lambda node, number: in_consumer(node, lambda consumer: consumer.seek(("t", 0), number)),
}
COUNTS: dict[str, Callable[[Any, Any], Any]] = {
    "create": lambda node, number: node.topics.create("counted", number),
    "replication": lambda node, number: node.topics.create("counted", 1, replication=number),
    "grow": lambda node, number: node.topics["t"].grow(number),
    "max_records of a read": lambda node, number: node.topics["t"].read(0, 0, number),
    "max_bytes": lambda node, number: node.topics["t"].read_batches(0, 0, max_bytes=number),
    "max_records": lambda node, number: node.group("g").consume("t", max_records=number),
    "max_records of a poll": lambda node, number: in_consumer(node, lambda consumer: consumer.poll(0, number)),
    "max_jobs": lambda node, number: node.queue("t", group="q", max_jobs=number),
    "batch_bytes": lambda node, number: node.producer(batch_bytes=number),
    "buffer_bytes": lambda node, number: node.producer(buffer_bytes=number),
    "iterations": lambda node, number: node.users.set_password("u", "p", iterations=number),
}
WAITS: dict[str, Callable[[Any, Any], Any]] = {
    "read": lambda node, time: node.topics["t"].read(0, 0, wait=time),
    "longer_than": lambda node, time: node.transactions.list(longer_than=time),
    "idle": lambda node, time: node.transactions.hanging([("t", 0)], idle=time),
    "start": lambda node, time: node.group("waits").join("t").start(time),
    "poll": lambda node, time: in_consumer(node, lambda consumer: consumer.poll(time)),
    "result": lambda node, time: in_producer(node, lambda producer: producer.append("t", "v").result(time)),
}
NUMBERS = {
    "partition": (PARTITIONS, [-1, 2**31, 2**70], [True, "0", 0.0, math.nan, [0]]),
    "offset": (OFFSETS, [-1, 2**63, 2**70], [True, "0", 0.0, math.nan, [0]]),
    "count": (COUNTS, [-2, 0, 2**70], [True, "1", 1.0, math.nan, [1]]),
    "wait": (WAITS, [1e10, math.nan, math.inf, -math.inf], [True, "1", [1]]),
    "time": (TIMES, [-1, 1e10, math.nan, math.inf, -math.inf], ["1", [1]]),
}
"""Kind of number -> calls with such an argument, the numbers out of range, and values of wrong types."""


@pytest.mark.parametrize(
    ("kind", "call"), [(kind, call) for kind, (calls, _, _) in NUMBERS.items() for call in calls], ids=str
)
def test_a_wrong_number_is_refused_before_a_request(embedded: kcore.EmbeddedNode, kind: str, call: str) -> None:
    calls, out_of_range, wrong_types = NUMBERS[kind]
    embedded.topics["t"].append("v")
    for number in out_of_range:
        with pytest.raises(ValueError, match=r"valid: |is negative"):
            calls[call](embedded, number)
    for value in wrong_types:
        with pytest.raises((TypeError, ConfigError) if call == "auto_commit" else TypeError):
            calls[call](embedded, value)
    assert len(embedded.topics["t"].partitions()) == 1


def test_the_default_number_of_partitions_may_be_named_as_in_kafka(embedded: kcore.EmbeddedNode) -> None:
    assert len(embedded.topics.create("default", -1, replication=-1).partitions()) == 1


@pytest.mark.parametrize("time", [-1, -0.001, datetime(1960, 1, 1)])
def test_a_record_before_1970_is_refused(embedded: kcore.EmbeddedNode, time: Any) -> None:
    """As in Java's producer. Consumers use a negative timestamp as the mark of a record without one."""
    for call in (
        lambda: embedded.topics["t"].append("v", timestamp=time),
        lambda: in_producer(embedded, lambda producer: producer.append("t", "v", timestamp=time)),
        lambda: in_transaction(embedded, lambda txn: txn.append("t", "v", timestamp=time)),
    ):
        with pytest.raises(ValueError, match="the time of a record is"):
            call()


@pytest.mark.parametrize("wrong", ["1", 1.5, True, None])
def test_other_wrong_numbers_are_refused(embedded: kcore.EmbeddedNode, wrong: Any) -> None:
    with pytest.raises(TypeError, match="broker_id="):
        embedded.brokers[wrong]
    with pytest.raises(TypeError, match="wall_ms="):
        kcore.ManualClock(wrong)


@pytest.mark.parametrize("path", [7, True, b"data", ["data"]])
def test_a_path_of_another_type_is_refused_with_the_name_of_the_argument(path: Any) -> None:
    with pytest.raises(TypeError, match=r"path: .*; valid: a str, a pathlib.Path, or None for data in memory"):
        kcore.open(path)


def test_a_bool_is_not_a_number(embedded: kcore.EmbeddedNode) -> None:
    for call in (
        lambda: embedded.topics["t"].offsets_at(True),
        lambda: embedded.quotas.set({"producer_byte_rate": True}, user="u"),
        lambda: kcore.ManualClock().advance(True),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ConfigError, match="acks=True; valid: 'all', 1"):
        embedded.producer(acks=True)
    for time in (-1, 2**63):
        with pytest.raises(ValueError, match="monotonic_ms="):
            kcore.ManualClock(monotonic_ms=time)
