"""Listeners of embedded nodes: real clients and remote nodes use the node together with calls in its process."""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

import kcore
from kcore import errors
from kcore.node.types import OffsetAndMetadata
from kcore.protocol.topic_partition import TopicPartition
from tests.kit import fetch, wait_until
from tests.node.conftest import SETTINGS
from tools.simulate.interrupts import interrupted


def produce_with_librdkafka(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, b"from librdkafka")
    assert producer.flush(30) == 0


def test_a_node_for_threads_listens() -> None:
    with kcore.open(config=SETTINGS) as node:
        topic = node.topics.create("t", 1)
        listening = node.listen()
        produce_with_librdkafka(listening.bootstrap, "t")
        assert [record.value for record in topic.read(0, 0)] == [b"from librdkafka"]
        with kcore.connect(listening.bootstrap) as remote:
            remote.group("g").commit({("t", 0): 1})
            with remote.group("m").join("t") as member, node.group("m").join("t") as other:
                assert {len(member.assignment), len(other.assignment)} <= {0, 1}
        assert node.group("g").committed() == {TopicPartition("t", 0): OffsetAndMetadata(1)}
        again = node.listen()
        assert again.bootstrap != listening.bootstrap
        listening.close()
        with pytest.raises(errors.ConnectionClosedError):
            kcore.connect(listening.bootstrap)
        node.topics["t"].append("after the listener")
    with pytest.raises(errors.EngineClosedError):
        node.group("g").commit({("t", 0): 2})
    assert not [thread for thread in threading.enumerate() if thread.name == "kcore-engine"]


async def test_a_node_on_a_loop_listens() -> None:
    async with kcore.open_async(config=SETTINGS) as node:
        topic = await node.topics.create("t", 1)
        listening = await node.listen("127.0.0.1:0")
        async with kcore.connect_async(listening.bootstrap) as remote:
            await remote.topics["t"].append("remote")
        assert [record.value for record in await topic.read(0, 0)] == [b"remote"]


def test_calls_of_a_closed_node_are_refused_on_a_thread_with_the_id_of_the_engines_thread() -> None:
    """The operating system reuses the ids of threads. Before, such a call raised ReentrantCallError."""
    node = kcore.open(config=SETTINGS)
    node.listen()
    ended = node._driver._thread.ident
    node.close()
    refusals = []

    def append() -> None:
        with pytest.raises(errors.KcoreError) as raised:
            node.topics["t"].append("v", partition=0)
        refusals.append((threading.get_ident() == ended, repr(raised.value)))

    for _ in range(100):
        thread = threading.Thread(target=append)
        thread.start()
        thread.join()
        if refusals[-1][0]:
            break
    assert {refusal for _, refusal in refusals} == {"EngineClosedError('the engine is closed')"}


def test_a_node_with_a_parked_request_cannot_begin_to_listen() -> None:
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("t", 1)
        parked = threading.Thread(target=node.send, args=(fetch("t", wait_ms=60_000), 12))
        parked.start()
        while not node._driver._sleepers:
            pass
        with pytest.raises(errors.KcoreError, match="another request waits"):
            node.listen()
        node.topics["t"].append("completes the parked request")
        parked.join()
        assert node.listen().bootstrap


def test_a_wrong_address_is_refused() -> None:
    with kcore.open(config=SETTINGS) as node, pytest.raises(errors.ConfigError):
        node.listen("nowhere")


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kcore-engine" and thread.is_alive()]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("operation", ["listen", "close"])
def test_an_interrupt_at_any_call_leaves_a_listening_node_that_can_be_closed(
    tmp_path: Path, operation: str, error: type[BaseException]
) -> None:
    """An interrupt at any call of `listen` or `close` leaves a node that `close` can close completely. Otherwise the
    data folder would stay locked.
    """
    others = engine_threads()
    settings = {**SETTINGS, "kcore.durability": "os"}
    with kcore.open(tmp_path / "data", config=settings) as node:
        node.listen()  # imports modules: an interrupt within an import would leave Python's own lock behind
    acknowledged = 0
    for at in itertools.count(1):
        node = kcore.open(tmp_path / "data", config=settings)
        if not acknowledged:
            node.topics.create("t", 1)
        node.topics["t"].append("record")
        acknowledged += 1
        if operation == "close":
            node.listen()
        # Python's Condition.wait makes a RuntimeError of some interrupts.
        with suppress(error, RuntimeError), interrupted(at, error, print, "") as interrupt:
            getattr(node, operation)()
        node.close()
        wait_until(lambda: engine_threads() == others, "the end of the engine's thread")
        if not interrupt.raised:
            break
    assert at > 20
    with kcore.open(tmp_path / "data", config=settings) as node:
        assert node.topics["t"].end_offsets() == {0: acknowledged}
