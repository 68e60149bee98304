"""An engine on an event loop that other code uses, too: no commit, opening or close of the engine blocks that loop.

The tests measure no time. Each write to the device lasts until the loop has run a number of callbacks of other code.
A test fails if the engine calls the device on the loop's own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.drivers.offload import CommitOffloadPolicy
from kcore.errors import EngineClosedError
from kcore.log import FailureReason, LogError
from kcore.log.lmdb_storage import LmdbStorage
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.create_topics import CreateTopicsResponse
from kcore.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kcore.protocol.messages.offset_commit import OffsetCommitResponse
from kcore_ext.codec.frames import encode_request
from tests.kit import QUICK, batch, commit, committed, create, produce
from tests.transaction.world import Identity, end_request, produce_request

SETTINGS = {**QUICK, "offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}
CALLBACKS = 20
LONG_S = 60
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Device:
    """Records the operations of every storage. An operation lasts until the loop has run `CALLBACKS` more callbacks.
    While `held` is True, operations do not end.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop_thread = threading.get_ident()
        self._running: list[threading.Event] = []
        self.held = False
        self.operations: list[str] = []
        self.on_loop: list[str] = []
        self.error: Exception | None = None
        for name in ("write", "reclaim", "close", "__init__"):
            monkeypatch.setattr(LmdbStorage, name, self._slow(name, getattr(LmdbStorage, name)))

    def _slow(self, name: str, original: Any) -> Any:
        def slow(storage: LmdbStorage, *arguments: Any, **named: Any) -> Any:
            self.operations.append(name)
            if threading.get_ident() == self._loop_thread:
                self.on_loop.append(name)
            else:
                end = threading.Event()
                self._running.append(end)
                assert end.wait(LONG_S), "the loop runs no callbacks"
            if name == "write" and self.error is not None:
                error, self.error = self.error, None
                raise error
            return original(storage, *arguments, **named)

        return slow

    async def tick(self) -> None:
        """Runs as the other code's callback on the loop."""
        callbacks = 0
        while True:
            callbacks = callbacks + 1 if self._running and not self.held else 0
            if callbacks == CALLBACKS:
                self._running.pop(0).set()
                callbacks = 0
            await asyncio.sleep(0)

    async def begun(self) -> None:
        """Waits until an operation has begun. If `held` is True, the operation cannot end meanwhile."""
        while not self._running:
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def slow_device(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Device]:
    device = Device(monkeypatch)
    ticking = asyncio.create_task(device.tick())
    yield device
    ticking.cancel()
    assert device.on_loop == [], "these operations of the device have blocked the loop"


def code(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


async def metadata(node: Any, name: str) -> int:
    response = await node.send(
        MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    )
    return int(response.topics[0].error_code)


async def test_opening_commits_and_closing_do_not_block_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slow_device(monkeypatch) as device:
        async with kcore.open_async(tmp_path / "data", config=SETTINGS) as node:
            assert device.operations[0] == "__init__"
            begun = len(device.operations)
            assert (await node.send(create("t"))).topics[0].error_code == 0
            assert code(await node.send(commit("g", {("t", 0): 7}), 9)) == 0
            assert (await node.send(produce("t", batch([b"v"])), 9)).responses[0].partition_responses[0].error_code == 0
            assert device.operations[begun:] == ["write"] * 3
        assert device.operations[-1] == "close"
    with kcore.open(tmp_path / "data", config=SETTINGS) as again:
        assert committed(again, "g") == {("t", 0): 7}


async def test_transactions_and_watched_groups_do_not_block_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        slow_device(monkeypatch) as device,
        kcore.open_async(tmp_path / "data", config=SETTINGS) as node,
    ):
        await node.send(create("t"))
        events: list[Any] = []
        node.watch_group("g", events.append)
        joining = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        assert (await node.send(joining)).error_code == 0
        assert [event.group_id for event in events] == ["g"]
        begun = len(device.operations)
        coordinator = FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"])
        while (await node.send(coordinator)).coordinators[0].error_code:
            await asyncio.sleep(0)
        begin = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        while (producer := await node.send(begin)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0)
        assert producer.error_code == 0
        records = produce_request("tx", Identity(producer.producer_id, producer.producer_epoch), 0, b"a")
        assert (await node.send(records, 12)).responses[0].partition_responses[0].error_code == 0
        end = end_request("tx", Identity(producer.producer_id, producer.producer_epoch), True)
        assert (await node.send(end)).error_code == 0
        assert device.operations[begun:].count("write") >= 3


async def test_tasks_that_call_again_in_different_turns_share_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round waits for further calls of the tasks that called in the previous round. The round of a single task waits
    for no other task.
    """
    commits, tasks = 10, 9

    async def work(node: Any, number: int) -> None:
        for offset in range(commits):
            assert code(await node.send(commit(f"g{number}", {("t", 0): offset}), 9)) == 0
            for _ in range(number % 3):
                await asyncio.sleep(0)

    async with (
        slow_device(monkeypatch),
        kcore.open_async(tmp_path / "data", config=SETTINGS) as node,
    ):
        await node.send(create("t"))
        node._driver._offload_policy.average_write_s = 1e9  # the real time of the gathering does not matter
        before = node.engine.pipeline.rounds
        await asyncio.gather(*(work(node, number) for number in range(tasks)))
        assert node.engine.pipeline.rounds - before == commits
        assert code(await node.send(commit("alone", {("t", 0): 1}), 9)) == 0
        assert node.engine.pipeline.rounds - before == commits + 1


async def test_a_round_gathers_calls_no_longer_than_a_write_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a write takes no time, a round does not wait for calls of a later turn of the loop. The next round commits
    those calls.
    """
    async with slow_device(monkeypatch), kcore.open_async(tmp_path / "data", config=SETTINGS) as node:
        await node.send(create("t"))
        monkeypatch.setattr(CommitOffloadPolicy, "wrote", lambda *_: None)
        node._driver._offload_policy.average_write_s = 0.0
        await asyncio.gather(*(node.send(commit(f"g{n}", {("t", 0): 1}), 9) for n in range(4)))
        before = node.engine.pipeline.rounds
        first = asyncio.create_task(node.send(commit("g0", {("t", 0): 2}), 9))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = asyncio.create_task(node.send(commit("g1", {("t", 0): 2}), 9))
        assert [code(await first), code(await second)] == [0, 0]
        assert node.engine.pipeline.rounds - before == 2


async def test_requests_wait_while_a_round_that_others_may_read_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        slow_device(monkeypatch) as device,
        kcore.open_async(tmp_path / "data", config=SETTINGS) as node,
    ):
        device.held = True
        creation = asyncio.ensure_future(node.send(create("t")))
        same_turn = asyncio.ensure_future(metadata(node, "t"))
        await device.begun()
        during = asyncio.ensure_future(metadata(node, "t"))
        await asyncio.sleep(0)
        assert node._driver._paused
        assert not creation.done()
        assert not same_turn.done(), "a response about a topic that is not durable was sent"
        assert not during.done()
        device.held = False
        assert (await creation).topics[0].error_code == 0
        assert (await same_turn, await during) == (0, 0)
        assert not node._driver._paused


async def test_a_failed_round_shows_nothing_of_it_to_requests_that_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        slow_device(monkeypatch) as device,
        kcore.open_async(tmp_path / "data", config=SETTINGS) as node,
    ):
        device.held = True
        device.error = LogError("the test wants this round to fail", FailureReason.INJECTED)
        creation = asyncio.ensure_future(node.send(create("t")))
        await device.begun()
        during = asyncio.ensure_future(metadata(node, "t"))
        await asyncio.sleep(0)
        device.held = False
        assert (await creation).topics[0].error_code != 0
        shown = await during
        while shown == ErrorCode.LEADER_NOT_AVAILABLE:  # the metadata is loaded again
            await asyncio.sleep(0)
            shown = await metadata(node, "t")
        assert shown == UNKNOWN
        assert (await node.send(create("t"))).topics[0].error_code == 0
        assert await metadata(node, "t") == 0


async def test_a_round_that_pauses_waits_for_the_commit_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        slow_device(monkeypatch) as device,
        kcore.open_async(tmp_path / "data", config=SETTINGS) as node,
    ):
        await node.send(create("t"))
        device.held = True
        first = asyncio.ensure_future(node.send(commit("g", {("t", 0): 1}), 9))
        await device.begun()
        assert not node._driver._paused
        creation = asyncio.ensure_future(node.send(create("u")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert node._driver._paused
        last = asyncio.ensure_future(node.send(commit("g", {("u", 0): 2}), 9))
        await asyncio.sleep(0)
        device.held = False
        done = await asyncio.gather(first, creation, last)
        assert (code(done[0]), done[1].topics[0].error_code, code(done[2])) == (0, 0, 0)


async def test_deleted_batches_are_reclaimed_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = kcore.ManualClock()
    async with (
        slow_device(monkeypatch) as device,
        kcore.open_async(tmp_path / "data", config=SETTINGS, clock=clock) as node,
    ):
        await node.send(create("t"))
        for _ in range(3):
            await node.send(produce("t", batch([b"v"])), 9)
        partitions = [DeleteRecordsPartition(partition_index=0, offset=3)]
        topics = [DeleteRecordsTopic(name="t", partitions=partitions)]
        await node.send(DeleteRecordsRequest(topics=topics, timeout_ms=1_000))
        clock.advance(20_000)
        node._driver._timers.ring()
        while "reclaim" not in device.operations:
            await asyncio.sleep(0)
        assert code(await node.send(commit("g", {("t", 0): 7}), 9)) == 0


async def test_a_close_waits_for_commits_and_refuses_later_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slow_device(monkeypatch) as device:
        node = await kcore.open_async(tmp_path / "data", config=SETTINGS)
        await node.send(create("t"))
        device.held = True
        committing = asyncio.ensure_future(node.send(commit("g", {("t", 0): 7}), 9))
        await device.begun()
        staged = asyncio.ensure_future(node.send(commit("h", {("t", 0): 8}), 9))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(node.close())
        await asyncio.sleep(0)
        with pytest.raises(EngineClosedError):
            await node.send(InitProducerIdRequest(transactional_id=None))
        device.held = False
        assert (code(await committing), code(await staged)) == (0, 0)
        await closing
    with kcore.open(tmp_path / "data", config=SETTINGS) as again:
        assert committed(again, "h") == {("t", 0): 8}


async def test_a_cancelled_opening_releases_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with slow_device(monkeypatch) as device:
        device.held = True
        opening = asyncio.ensure_future(kcore.open_async(tmp_path / "data", config=SETTINGS).__aenter__())
        await device.begun()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        device.held = False
        while any(thread.name.startswith("kcore-call") for thread in threading.enumerate()):
            await asyncio.sleep(0)
        async with kcore.open_async(tmp_path / "data", config=SETTINGS) as node:
            assert (await node.send(create("t"))).topics[0].error_code == 0


class Client:
    """A connection to a listener of the node, on the node's own loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.number = 0

    @classmethod
    async def connected(cls, bootstrap: str) -> Client:
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, request: Any, version: int) -> None:
        self.number += 1
        self.writer.write(encode_request(request, version, self.number, "test"))

    async def received(self, kind: Any, version: int) -> Any:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        return kind.decode(frame, version, 4)

    async def ended(self) -> bool:
        return await self._reader.read() == b""


def lookup(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)


LOOKUP, CREATE, BEGIN, COMMIT = 8, 4, 1, 7
"""API versions of the requests of the tests.

These versions have no tagged fields, so the header of a response is only a correlation id.
"""


async def test_clients_of_a_listener_do_not_block_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that allow no background commit, such as rounds with changes of topics or transactions, are also written
    on the thread.
    """
    async with slow_device(monkeypatch) as device, kcore.open_async(tmp_path / "data", config=SETTINGS) as node:
        client = await Client.connected((await node.listen()).bootstrap)
        begun = len(device.operations)
        client.send(create("t"), CREATE)
        assert (await client.received(CreateTopicsResponse, CREATE)).topics[0].error_code == 0
        assert device.operations[begun:] == ["write"]
        coordinator = FindCoordinatorRequest(key_type=1, key="tx")
        while True:
            client.send(coordinator, 1)
            if (await client.received(FindCoordinatorResponse, 1)).error_code == 0:
                break
        while True:
            client.send(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), BEGIN)
            if (await client.received(InitProducerIdResponse, BEGIN)).error_code == 0:
                break
        client.writer.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_requests_of_clients_wait_while_a_round_that_they_may_read_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Requests of clients that connect during the write wait, too. A client that has sent its last request still gets
    its response.
    """
    async with slow_device(monkeypatch) as device, kcore.open_async(tmp_path / "data", config=SETTINGS) as node:
        listening = await node.listen()
        creator, reader = [await Client.connected(listening.bootstrap) for _ in range(2)]
        creator.send(lookup("t"), LOOKUP)
        assert (await creator.received(MetadataResponse, LOOKUP)).topics[0].error_code == UNKNOWN
        reader.send(lookup("t"), LOOKUP)
        assert (await reader.received(MetadataResponse, LOOKUP)).topics[0].error_code == UNKNOWN
        device.held = True
        if fails:
            device.error = LogError("the test wants this round to fail", FailureReason.INJECTED)
        creator.send(create("t"), CREATE)
        await device.begun()
        assert node._driver.paused
        stranger = await Client.connected(listening.bootstrap)
        for client in (creator, reader, stranger):
            client.send(lookup("t"), LOOKUP)
        stranger.writer.write_eof()
        connections = listening._server.connections
        while len(connections) < 3 or not all(len(connection._queue) for connection in connections):
            await asyncio.sleep(0)
        for _ in range(CALLBACKS):
            await asyncio.sleep(0)
        assert node._driver.paused
        assert all(len(connection._queue) for connection in connections), "a request was served"
        device.held = False
        created = await creator.received(CreateTopicsResponse, CREATE)
        assert (created.topics[0].error_code != 0) == fails
        for client in (creator, reader, stranger):
            found = await client.received(MetadataResponse, LOOKUP)
            assert (found.topics[0].error_code != 0) == fails  # after a failure the metadata is loaded again
        assert await stranger.ended()
        assert not node._driver.paused
        for client in (creator, reader, stranger):
            client.writer.close()


async def test_a_connection_that_ends_during_a_pause_ends_its_sessions_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slow_device(monkeypatch) as device, kcore.open_async(tmp_path / "data", config=SETTINGS) as node:
        listening = await node.listen()
        creator, leaving = [await Client.connected(listening.bootstrap) for _ in range(2)]
        connections = listening._server.connections
        while len(connections) < 2:
            await asyncio.sleep(0)
        ended: list[bool] = []
        monkeypatch.setattr(node.engine, "connection_closed", lambda _: ended.append(node._driver.paused))
        device.held = True
        creator.send(create("t"), CREATE)
        await device.begun()
        leaving.writer.close()
        while len(connections) > 1:
            await asyncio.sleep(0)
        assert ended == []
        device.held = False
        assert (await creator.received(CreateTopicsResponse, CREATE)).topics[0].error_code == 0
        while not ended:
            await asyncio.sleep(0)
        assert ended == [False]
        creator.writer.close()


async def test_a_listener_that_closes_does_not_block_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is being written, and a client's commit waits for the next one. The node stays open when its listener
    closes.
    """
    async with slow_device(monkeypatch) as device, kcore.open_async(tmp_path / "data", config=SETTINGS) as node:
        await node.send(create("t"))
        listening = await node.listen()
        client = await Client.connected(listening.bootstrap)
        device.held = True
        first = asyncio.ensure_future(node.send(commit("g", {("t", 0): 7}), 9))
        await device.begun()
        client.send(commit("h", {("t", 0): 8}), COMMIT)
        while node._driver.engine.pipeline.waiting == 0:
            await asyncio.sleep(0)
        client.send(commit("h", {("t", 0): 9}), COMMIT)
        closing = asyncio.create_task(listening.close())
        for _ in range(CALLBACKS):
            await asyncio.sleep(0)
        assert not closing.done()
        device.held = False
        assert code(await client.received(OffsetCommitResponse, COMMIT)) == 0
        assert code(await first) == 0
        await closing
        client.writer.close()
        assert code(await node.send(commit("g", {("t", 0): 10}), 9)) == 0


async def test_a_listener_that_closes_during_a_pause_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slow_device(monkeypatch) as device:
        async with kcore.open_async(tmp_path / "data", config=SETTINGS) as node:
            client = await Client.connected((await node.listen()).bootstrap)
            device.held = True
            client.send(create("t"), CREATE)
            await device.begun()
            closing = asyncio.create_task(node.close())
            device.held = False
            device._running.pop().set()  # the end of the server waits for the write
            assert (await client.received(CreateTopicsResponse, CREATE)).topics[0].error_code == 0
            await closing
            assert await client.ended()
            client.writer.close()
        async with kcore.open_async(tmp_path / "data", config=SETTINGS) as again:
            assert await metadata(again, "t") == 0
