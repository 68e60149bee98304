"""Listeners of embedded nodes: real clients and remote nodes use the node together with calls in its process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

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


class WaitingFetch:
    """A thread that waits in the engine for a record of topic `t`, and stores the response or the error."""

    def __init__(self, node: kcore.EmbeddedNode) -> None:
        self._node = node
        self.result: Any = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        wait_until(lambda: node._driver._sleepers, "the Fetch parks")

    def _run(self) -> None:
        try:
            self.result = self._node.send(fetch("t", wait_ms=3_600_000), 12)
        except Exception as error:
            self.result = error

    def join(self) -> Any:
        self.thread.join(60)
        return self.result


def test_a_parked_request_continues_when_the_node_begins_to_listen() -> None:
    """Before, `listen` was refused while a request was parked."""
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("t", 1)
        waiting = WaitingFetch(node)
        bootstrap = node.listen().bootstrap
        assert waiting.thread.is_alive()
        with kcore.connect(bootstrap) as remote:
            remote.topics["t"].append("completes the parked request")
        assert waiting.join().responses[0].partitions[0].records
        assert node.topics["t"].end_offsets() == {0: 1}


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda node: node.close(), errors.EngineClosedError),
        (lambda node: node._driver.run_on_loop(partial(_break, node)), errors.EngineInterruptedError),
    ],
    ids=["close", "interrupt"],
)
def test_a_parked_request_of_a_node_that_began_to_listen_ends_with_an_error(
    end: Callable[[kcore.EmbeddedNode], None], expected: type[Exception]
) -> None:
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("t", 1)
        waiting = WaitingFetch(node)
        node.listen()
        end(node)
        assert isinstance(waiting.join(), expected)


def test_the_time_limit_of_a_parked_request_applies_after_the_node_began_to_listen() -> None:
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("t", 1)
        pending = node.start(fetch("t", wait_ms=3_600_000), 12)
        node.listen()
        with pytest.raises(TimeoutError, match=r"within 0.01 s"):
            node._driver.wait_for(pending, 0.01)
        node.topics["t"].append("no caller waits for this record")


async def _break(node: kcore.EmbeddedNode) -> None:
    node._driver.driver._break()


def test_a_node_listens_directly_after_the_loop_of_a_consumer_was_left() -> None:
    """The consumer's last Fetch waits for up to 500 ms, during which `listen` was refused."""
    with kcore.open(config=SETTINGS) as node:
        topic = node.topics.create("t", 1)
        topic.append("first")
        with node.group("g").consume("t") as consumer:
            for _ in consumer:
                break
            wait_until(lambda: node._driver._sleepers, "the next Fetch parks")
        with node.listen() as listening, kcore.connect(listening.bootstrap) as remote:
            assert [record.value for record in remote.topics["t"].read(0, 0)] == [b"first"]


def test_members_and_consumers_continue_when_the_node_begins_to_listen() -> None:
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("t", 2)
        with node.group("g").join("t", protocol="classic") as member, node.group("h").consume("t") as consumer:
            wait_until(lambda: len(member.assignment) == 2, "the member owns both partitions")
            assert consumer.poll(0) == []
            bootstrap = node.listen().bootstrap
            with (
                kcore.connect(bootstrap) as remote,
                remote.group("g").join("t", protocol="classic", assignors=["range"]) as other,
            ):
                wait_until(lambda: len(other.assignment) == len(member.assignment) == 1, "both members own a partition")
                remote.topics["t"].append("a record")
                assert [record.value for record in consumer.poll(60)] == [b"a record"]


def test_calls_of_other_threads_wait_while_the_node_begins_to_listen() -> None:
    for _ in range(10):
        with kcore.open(config=SETTINGS) as node:
            topic = node.topics.create("t", 1)
            failures: list[Exception] = []
            begun = threading.Barrier(6)

            def append(
                topic: kcore.Topic = topic, failures: list[Exception] = failures, begun: threading.Barrier = begun
            ) -> None:
                begun.wait(60)
                try:
                    for _ in range(20):
                        topic.append("v")
                except Exception as error:
                    failures.append(error)

            def listen(
                node: kcore.EmbeddedNode = node,
                failures: list[Exception] = failures,
                begun: threading.Barrier = begun,
            ) -> None:
                begun.wait(60)
                try:
                    node.listen()
                except Exception as error:
                    failures.append(error)

            threads = [threading.Thread(target=target) for target in [append] * 4 + [listen] * 2]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures
            assert topic.end_offsets() == {0: 80}


def test_a_wrong_address_is_refused() -> None:
    with kcore.open(config=SETTINGS) as node, pytest.raises(errors.ConfigError):
        node.listen("nowhere")


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kcore-engine" and thread.is_alive()]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("operation", ["listen", "close"])
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_an_interrupt_at_any_call_leaves_a_listening_node_that_can_be_closed(
    tmp_path: Path, operation: str, error: type[BaseException], step: int
) -> None:
    """An interrupt at any call of `listen` or `close` leaves a node that `close` can close completely. Otherwise the
    data folder would stay locked.
    """
    others = engine_threads()
    settings = {**SETTINGS, "kcore.durability": "os"}
    with kcore.open(tmp_path / "data", config=settings) as node:
        node.listen()  # imports modules: an interrupt within an import would leave Python's own lock behind
    acknowledged = 0
    for at in itertools.count(1, step):
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
