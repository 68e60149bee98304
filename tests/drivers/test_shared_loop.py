"""An engine on an event loop of other code: no commit, opening or close of the engine blocks that loop.

The tests measure no time. Each write to the device runs until the loop has run a number of callbacks of other code, and
fails if it is called on the loop's own thread.
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
from kcore.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kit import QUICK, batch, commit, committed, create, produce
from tests.transaction.world import Identity, end_request, produce_request

SETTINGS = {**QUICK, "offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}
CALLBACKS = 20
LONG_S = 60
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Device:
    """Notes the operations of every storage. Each runs until the loop has run `CALLBACKS` more callbacks.

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
        """Is the other code on the loop."""
        callbacks = 0
        while True:
            callbacks = callbacks + 1 if self._running and not self.held else 0
            if callbacks == CALLBACKS:
                self._running.pop(0).set()
                callbacks = 0
            await asyncio.sleep(0)

    async def begun(self) -> None:
        """Waits until an operation runs, which was started while `held` was True."""
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
    """A round waits for the calls of the round before, as long as they arrive; a call alone waits for no other."""
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
    """With a device that needs no time, the calls of a later turn are in a round of their own."""
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
        assert not same_turn.done(), "it shows a topic that is not durable yet"
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
        node._driver._ring()
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
