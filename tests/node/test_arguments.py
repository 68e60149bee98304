"""Arguments that are probably mistakes: names that do not exist, and milliseconds instead of seconds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import kcore
from kcore.errors import ConfigError, ImplausibleTimeWarning
from kcore.group.classic.states import GroupState as ClassicState
from kcore.group.consumer.states import GroupState as ConsumerState
from kcore.group.group import GroupType
from kcore.group.share.states import GroupState as ShareState
from kcore.group.streams.states import GroupState as StreamsState
from kcore.node.arguments import GROUP_STATES, GROUP_TYPES, TRANSACTION_STATES, filters
from kcore.node.types import to_ms
from kcore.transaction.states import NAMES

CHOICES: dict[str, tuple[Callable[[kcore.Node], Any], str]] = {
    "types of groups": (lambda node: node.groups.list(types=["Consume"]), "'classic', 'consumer', 'share', 'streams'"),
    "states of groups": (lambda node: node.groups.list(states=["Sable"]), "'Reconciling', 'Stable', 'NotReady'"),
    "states of transactions": (lambda node: node.transactions.list(states=["Open"]), "'Empty', 'Ongoing'"),
    "protocol": (lambda node: node.group("g").join("t", protocol="Consumer"), "'consumer', 'classic'"),  # type: ignore[arg-type]
    "protocol of a consumer": (lambda node: node.group("g").consume("t", protocol="x"), "'consumer', 'classic'"),  # type: ignore[arg-type]
    "reset": (lambda node: node.group("g").consume("t", reset="begin"), "'earliest', 'latest', 'none'"),  # type: ignore[arg-type]
    "isolation": (lambda node: node.group("g").consume("t", isolation="committed"), "'read_committed', "),  # type: ignore[arg-type]
    "isolation of a read": (lambda node: node.topics["t"].read(0, 0, isolation="x"), "'read_committed', "),  # type: ignore[arg-type]
    "isolation of an end": (lambda node: node.topics["t"].end_offsets("x"), "'read_committed', "),  # type: ignore[arg-type]
    "isolation of ends": (lambda node: node.topics.end_offsets([("t", 0)], "x"), "'read_committed', "),  # type: ignore[arg-type]
    "acks": (lambda node: node.producer(acks="1"), "'all', 1"),  # type: ignore[arg-type]
    "compression": (lambda node: node.producer(compression="snapy"), "'none', 'gzip', 'snappy', 'lz4', 'zstd'"),
    "compression of a batch": (lambda node: node.topics["t"].append_many(["v"], compression="lz5"), "'gzip', "),
    "compression of a transaction": (lambda node: node.transaction("x", compression="gz"), "'gzip', "),
    "mechanisms": (lambda node: node.users.set_password("u", "p", mechanisms=["SHA"]), "'SCRAM-SHA-256', "),
}
"""Name of an argument -> a call with a value that is not allowed, and the allowed values that the error must list."""

TIMES: dict[str, Callable[[kcore.Node, float], Any]] = {
    "linger": lambda node, time: node.producer(linger=time),
    "timeout": lambda node, time: node.producer(timeout=time),
    "timeout of a transaction": lambda node, time: node.transaction("x", timeout=time),
    "session_timeout": lambda node, time: node.group("g").join("t", protocol="classic", session_timeout=time),
    "heartbeat_interval": lambda node, time: node.group("g").join(
        "t", protocol="classic", session_timeout=1800.0, heartbeat_interval=time
    ),
    "rebalance_timeout": lambda node, time: node.group("g").join("t", rebalance_timeout=time),
    "metadata_max_age": lambda node, time: node.group("g").consume("t", metadata_max_age=time),
    "auto_commit": lambda node, time: node.group("g").consume("t", auto_commit=time),
}
MILLISECONDS = {
    "linger": 5,
    "timeout": 120_000,
    "timeout of a transaction": 60_000,
    "session_timeout": 45_000,
    "heartbeat_interval": 1_000,
    "rebalance_timeout": 300_000,
    "metadata_max_age": 300_000,
    "auto_commit": 5_000,
}
"""Argument -> Kafka's default in milliseconds.

The value of `heartbeat_interval` differs from the default, because it must be smaller than the session timeout in
`TIMES`.
"""


@pytest.fixture(scope="module")
def embedded() -> Any:
    with kcore.open() as node:
        node.topics.create("t", 1)
        yield node


@pytest.mark.parametrize("case", CHOICES)
def test_a_name_that_does_not_exist_is_an_error_with_the_valid_names(embedded: kcore.EmbeddedNode, case: str) -> None:
    call, valid = CHOICES[case]
    with pytest.raises(ConfigError, match=f"valid: .*{valid}") as raised:
        call(embedded)
    assert isinstance(raised.value, ValueError)


def test_names_of_a_filter_may_be_one_text_in_any_case(embedded: kcore.EmbeddedNode) -> None:
    embedded.group("named").commit({("t", 0): 0})
    assert [row.group_id for row in embedded.groups.list(types="Classic", states="empty")] == ["named"]
    assert embedded.groups.list(types="share") == []
    embedded.group("named").delete()


def test_the_names_of_filters_are_those_of_the_coordinators() -> None:
    states = [state.value for kind in (ClassicState, ConsumerState, ShareState) for state in kind]
    assert {state.lower() for state in states} <= {text.lower() for text in GROUP_STATES.values()}
    assert {state.kafka_name: state.filter_name for state in StreamsState}.items() <= {
        name: text.lower() for name, text in GROUP_STATES.items()
    }.items()
    assert set(GROUP_STATES) == {*states, *(state.kafka_name for state in StreamsState)}
    assert set(GROUP_TYPES) == {kind.value for kind in GroupType}
    assert set(TRANSACTION_STATES) >= set(NAMES.values())
    assert filters("states", ["NOTREADY", "Dead"], GROUP_STATES) == ["not_ready", "Dead"]


@pytest.mark.parametrize("argument", TIMES)
def test_milliseconds_in_place_of_seconds_give_a_warning_at_the_call(
    embedded: kcore.EmbeddedNode, argument: str
) -> None:
    time = MILLISECONDS[argument]
    with pytest.warns(ImplausibleTimeWarning) as raised:
        TIMES[argument](embedded, time)
    (warning,) = raised
    name = argument.split(maxsplit=1)[0]
    assert str(warning.message).startswith(f"{name}={time:g} is in seconds: ")
    assert str(warning.message).endswith(f"; for {time:g} milliseconds, pass {time / 1000:g}")
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TIMES[argument](embedded, time / 1000)


@pytest.mark.parametrize("argument", TIMES)
@pytest.mark.parametrize("time", [-1, math.nan, math.inf, 1e10])
def test_a_time_that_no_request_can_express_is_an_error(
    embedded: kcore.EmbeddedNode, argument: str, time: float
) -> None:
    with pytest.raises(ConfigError, match=f"{argument.split(maxsplit=1)[0]}={time!r}; valid: "):
        TIMES[argument](embedded, time)


def test_the_times_of_a_connection_are_checked_before_it_is_made() -> None:
    for times in ({"timeout": 30_000}, {"call_timeout": 60_000}):
        with (
            pytest.warns(ImplausibleTimeWarning, match="is in seconds") as raised,
            pytest.raises(kcore.errors.ConnectionClosedError),
        ):
            kcore.connect("127.0.0.1:1", **times)
        assert [warning.filename for warning in raised] == [__file__]


def test_a_long_wait_of_one_call_gives_a_warning(embedded: kcore.EmbeddedNode) -> None:
    embedded.topics["t"].append("v")
    with (
        embedded.group("waits").consume("t") as consumer,
        pytest.warns(ImplausibleTimeWarning, match=r"timeout=5000 is in seconds: 1\.39 h; .*, pass 5"),
    ):
        assert len(consumer.poll(5000)) == 1
    with pytest.warns(ImplausibleTimeWarning, match="wait=1000"):
        assert len(embedded.topics["t"].read(0, 0, wait=1000)) == 1
    with embedded.producer() as producer, pytest.warns(ImplausibleTimeWarning, match="timeout=1000"):
        producer.append("t", "v").result(1000)
    with pytest.warns(ImplausibleTimeWarning, match="longer_than=600000"):
        assert embedded.transactions.list(longer_than=600_000) == []


async def test_a_warning_names_the_line_that_awaits_the_call() -> None:
    async with kcore.open_async() as node:
        await (await node.topics.create("t", 1)).append("v")
        async with node.group("g").consume("t") as consumer:
            with pytest.warns(ImplausibleTimeWarning) as raised:
                await consumer.poll(10_000)
    assert [warning.filename for warning in raised] == [__file__]


def test_a_timestamp_in_milliseconds_is_an_error(embedded: kcore.EmbeddedNode) -> None:
    for call in (
        lambda: embedded.topics["t"].append("v", timestamp=1_700_000_000_000),
        lambda: embedded.topics["t"].offsets_at(1_700_000_000_000),
    ):
        with pytest.raises(ValueError, match=r"seconds since 1970, not milliseconds"):
            call()
    assert to_ms(1_700_000_000) == 1_700_000_000_000


WRONG_TYPES: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "user of a quota": (lambda node: node.quotas.set({"producer_byte_rate": 1}, user=5), TypeError, "user: 5 is"),
    "client id": (lambda node: node.quotas.describe(client_id=b"c"), TypeError, "client_id: b'c' is not a string"),
    "name of a quota": (lambda node: node.quotas.set({7: 1}, user="u"), TypeError, "a key of limits: 7 is not"),
    "quotas": (lambda node: node.quotas.set("rate", user="u"), TypeError, "limits: 'rate' is not a mapping"),
    "text as a quota": (
        lambda node: node.quotas.set({"producer_byte_rate": "much"}, user="u"),
        ValueError,
        "limits: the quota 'producer_byte_rate' is 'much'; valid: a number, or None to remove it",
    ),
    "list as a quota": (
        lambda node: node.quotas.set({"producer_byte_rate": [1]}, user="u"),
        TypeError,
        r"limits: the quota 'producer_byte_rate' is \[1\]; valid: a number",
    ),
    "setting of a topic": (lambda node: node.topics["t"].set_config({1: 1}), TypeError, "a key of config: 1 is not"),
    "setting of a group": (lambda node: node.group("g").set_config({None: 1}), TypeError, "a key of config: None is"),
    "settings": (lambda node: node.topics["t"].set_config([("a", 1)]), TypeError, r"config: \[\('a', 1\)\] is not"),
    "partition of a deletion": (
        lambda node: node.topics["t"].delete_records({"0": None}),
        TypeError,
        "the partition is '0'; valid: a number",
    ),
    "timeout of a member": (lambda node: node.group("g").join("t").start(timeout="1"), TypeError, "timeout='1'; valid"),
    "linger": (lambda node: node.producer(linger=None), TypeError, "linger=None; valid: a number of seconds"),
    "wait of a connection": (
        lambda _: kcore.connect("127.0.0.1:1", wait=None),
        TypeError,
        "wait=None; valid: a number",
    ),
}
"""Name of an argument -> a call with a value of a wrong type, the expected error, and a part of its text."""


@pytest.mark.parametrize("case", WRONG_TYPES)
def test_an_argument_of_a_wrong_type_is_an_error_that_names_it(embedded: kcore.EmbeddedNode, case: str) -> None:
    """An argument of a wrong type raises an error that names the argument, before a request is sent."""
    call, kind, text = WRONG_TYPES[case]
    with pytest.raises(kind, match=f"^{text}"):
        call(embedded)


@pytest.mark.parametrize("collection", ["topics", "groups", "brokers"])
def test_a_collection_of_a_node_is_not_iterable(embedded: kcore.EmbeddedNode, collection: str) -> None:
    """Without `__iter__`, Python would call `__getitem__` with 0, 1, 2, … and never stop."""
    with pytest.raises(TypeError, match="not iterable"):
        iter(getattr(embedded, collection))
    if collection != "topics":
        with pytest.raises(TypeError, match="not iterable"):
            assert "x" in getattr(embedded, collection)


async def test_a_collection_of_a_node_on_an_event_loop_has_no_in() -> None:
    """Without `__iter__`, `"jobs" in node.topics` would block the event loop without end."""
    async with kcore.open_async() as node:
        with pytest.raises(TypeError, match="not iterable"):
            assert "jobs" in node.topics  # type: ignore[operator]


@pytest.mark.parametrize(
    ("offset", "kind", "text"),
    [
        ("abc", TypeError, "the offset of the position is 'abc'; valid: an int, an OffsetAndMetadata or a datetime"),
        (None, TypeError, "the offset of the position is None; valid: "),
        (-1, ValueError, "the offset of the position is -1; valid: the offset of the next record, 0 or more"),
    ],
)
def test_a_position_that_is_no_offset_is_an_error(
    embedded: kcore.EmbeddedNode, offset: Any, kind: type[Exception], text: str
) -> None:
    with embedded.group("seeks").consume("t", auto_commit=None) as consumer:
        while not consumer.assignment:
            consumer.poll(0.1)
        position = consumer.position(("t", 0))
        with pytest.raises(kind, match=f"^{text}"):
            consumer.seek(("t", 0), offset)
        assert consumer.position(("t", 0)) == position
