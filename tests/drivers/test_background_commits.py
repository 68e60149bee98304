"""A loop whose rounds are written on a thread: only responses that depend on the commit wait for the device."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from kcore.clock import SystemClock
from kcore.config.node import Config
from kcore.drivers.event_loop import AsyncDriver
from kcore.drivers.offload import CommitOffloadPolicy
from kcore.engine import Engine
from kcore.log import FailureReason, LogError, MemoryLogEngine
from kcore.log.write_set import WriteSet
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.api_versions import ApiVersionsRequest
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kcore.protocol.messages.sync_group import SyncGroupRequest
from kcore.runtime import RequestContext
from tests.kit import QUICK, commit, create, join

LONG_S = 60


class SlowDevice(MemoryLogEngine):
    """A log on a simulated device: a write blocks until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.durability = "fsync"
        self.slow = False
        self.fails = False
        self.writing = threading.Event()
        self.through = threading.Event()
        self.threads: list[str] = []

    def write(self, write_set: WriteSet) -> None:
        self.threads.append(threading.current_thread().name)
        if self.slow:
            self.writing.set()
            assert self.through.wait(LONG_S)
        if self.fails:
            raise LogError("the test wants this round to fail", FailureReason.INJECTED)
        super().write(write_set)


class Node:
    """An engine over a slow device, with a topic, and with a group that has a member."""

    def __init__(self, shards: int = 50, *, shared: bool = False) -> None:
        self.log = SlowDevice()
        settings = {**QUICK, "offsets.topic.num.partitions": str(shards)}
        self.engine = Engine(self.log, Config.of(settings), SystemClock())
        self.driver = AsyncDriver(self.engine, asyncio.get_running_loop(), max_blocked_requests=0, shared=shared)

    def send(self, request: Any, version: int | None = None) -> asyncio.Future[Any]:
        version = self.engine.newest_version(request) if version is None else version
        return self.driver.submit(RequestContext(version, "client"), request)

    async def begin(self) -> None:
        await self.send(create("t"))
        member_id = (await self.send(join("members", "", session_ms=60_000), 3)).member_id
        response = await self.send(SyncGroupRequest(group_id="members", generation_id=1, member_id=member_id), 3)
        assert response.error_code == 0
        self.beat = HeartbeatRequest(group_id="members", generation_id=1, member_id=member_id)

    async def write_in_background(self, request: Any, version: int) -> asyncio.Future[Any]:
        """Sends a request. On return, a thread is writing the request's round."""
        await self.serve()
        self.log.slow = True
        future = self.send(request, version)
        assert await asyncio.to_thread(self.log.writing.wait, LONG_S)
        assert self.engine.pipeline.committing
        return future

    async def serve(self) -> None:
        """Sends a request that needs no commit, so that the next commit runs in the background."""
        assert (await asyncio.wait_for(self.send(ApiVersionsRequest(), 2), LONG_S)).error_code == 0
        await asyncio.sleep(0)

    def let_through(self) -> None:
        self.log.slow = False
        self.log.through.set()

    def close(self) -> None:
        self.driver.close()
        self.engine.close()


def offsets(group: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])


def test_the_number_of_requests_that_an_inline_commit_blocks_is_estimated() -> None:
    """A write takes 0.25 s. If an inline commit would block more than one request in this time, the commit runs in the
    background.
    """
    policy = CommitOffloadPolicy(max_blocked_requests=1)
    for _ in range(100):
        policy.wrote(0.25)
    assert not policy.should_offload(1_000.0)
    for _ in range(3):
        policy.served()
    assert not policy.should_offload(1_001.0)
    for _ in range(5):
        policy.served()
    assert policy.should_offload(1_002.0)
    assert not policy.should_offload(1_002.1), "no request was served since the last commit"
    for _ in range(100):
        policy.wrote(0.5)
    for _ in range(3):
        policy.served()
    assert policy.should_offload(1_003.1)


def test_the_log_reports_slow_commits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kcore.drivers.offload")
    policy = CommitOffloadPolicy(1, "/data/kcore")
    for took_s in (0.99, 1.0, 7.25):
        policy.wrote(took_s)
    advice = (
        "for a commit, and clients waited; if this repeats, check the disk or the database of the log, "
        "and the load of the machine; a pause of the process also causes this message"
    )
    assert [(line.levelname, line.getMessage()) for line in caplog.records] == [
        ("INFO", f"commit: the log /data/kcore took 1.0 s {advice}"),
        ("WARNING", f"commit: the log /data/kcore took 7.2 s {advice}"),
    ]


async def test_other_requests_are_served_while_a_round_is_written() -> None:
    node = Node()
    await node.begin()
    first = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    reader = node.send(offsets("g"), 9)
    second = node.send(commit("g", {("t", 0): 6}), 9)
    elsewhere = node.send(commit("members", {("t", 0): 1}, node.beat.member_id, 1), 9)
    for _ in range(3):
        await node.serve()
    assert not any(future.done() for future in (first, reader, second, elsewhere))
    node.let_through()
    for future in (first, second, elsewhere):
        response = await asyncio.wait_for(future, LONG_S)
        assert response.topics[0].partitions[0].error_code == 0
    assert (await reader).groups[0].topics[0].partitions[0].committed_offset == 5
    assert "kcore-log" in node.log.threads
    node.close()


async def test_a_heartbeat_does_not_wait_for_the_commit_of_another_group() -> None:
    node = Node()
    await node.begin()
    first = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    beat = await asyncio.wait_for(node.send(node.beat, 4), LONG_S)
    assert (beat.error_code, first.done()) == (0, False)
    node.let_through()
    await first
    node.close()


async def test_responses_of_a_shard_wait_for_its_background_commit() -> None:
    """While the only shard of groups commits in the background, heartbeats and offset fetches get no response.

    The heartbeats are of stable members. Compiled code decides all of these requests.
    """
    node = Node(shards=1)
    await node.begin()
    joining = ConsumerGroupHeartbeatRequest(
        group_id="new",
        member_id="member",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    joined = await node.send(joining, 1)
    owned = [TopicPartitions(topic_id=t.topic_id, partitions=t.partitions) for t in joined.assignment.topic_partitions]
    confirming = ConsumerGroupHeartbeatRequest(
        group_id="new", member_id="member", member_epoch=joined.member_epoch, topic_partitions=owned
    )
    at_rest = ConsumerGroupHeartbeatRequest(group_id="new", member_id="member", member_epoch=joined.member_epoch)
    for beat in (confirming, at_rest):
        assert (await node.send(beat, 1)).error_code == 0
    first = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    waiting = [node.send(node.beat, 4), node.send(at_rest, 1), node.send(offsets("g"), 9), node.send(offsets("h"), 9)]
    await node.serve()
    assert not any(future.done() for future in (first, *waiting))
    node.let_through()
    responses = await asyncio.wait_for(asyncio.gather(first, *waiting), LONG_S)
    assert [response.error_code for response in responses[1:3]] == [0, 0]
    assert [response.groups[0].topics != [] for response in responses[3:]] == [True, False]
    node.close()


async def test_if_every_round_writes_all_commits_are_inline() -> None:
    node = Node()
    await node.begin()
    node.log.threads.clear()
    for number in range(5):
        await node.send(commit("g", {("t", 0): number}), 9)
    assert set(node.log.threads[1:]) == {threading.current_thread().name}
    node.close()


async def test_a_new_topic_is_durable_before_any_client_sees_it() -> None:
    """State that other requests can read at any time is committed inline, after the background commit under way."""
    node = Node()
    await node.begin()
    first = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    threading.Timer(0.01, node.let_through).start()
    created = node.send(create("u"))
    assert (await asyncio.wait_for(created, LONG_S)).topics[0].error_code == 0
    assert first.done()
    assert not node.engine.pipeline.committing
    node.close()


async def test_rounds_of_the_transaction_coordinator_are_written_on_the_thread() -> None:
    """If these rounds were written inline, transactions would delay every heartbeat."""
    node = Node()
    await node.begin()
    begin = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    await node.send(FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]), 4)
    for _ in range(200):  # the topic's shards load, one slice per turn of the loop
        if not (await node.send(begin, 4)).error_code:
            break
        await asyncio.sleep(0)
    await node.serve()
    node.log.threads.clear()
    response = await node.send(begin, 4)
    assert response.error_code == 0
    assert set(node.log.threads) == {"kcore-log"}
    node.close()


async def test_a_round_that_fails_on_the_thread_is_refused_and_the_next_one_works() -> None:
    node = Node()
    await node.begin()
    first = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    second = node.send(commit("g", {("t", 0): 6}), 9)
    node.log.fails = True
    node.let_through()
    for future in (first, second):
        response = await asyncio.wait_for(future, LONG_S)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    node.log.fails = False
    async with asyncio.timeout(LONG_S):
        while True:  # the shard loads, one slice per turn of the loop
            response = await node.send(commit("g", {("t", 0): 7}), 9)
            if response.topics[0].partitions[0].error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            await asyncio.sleep(0)
    assert response.topics[0].partitions[0].error_code == 0
    assert (await node.send(offsets("g"), 9)).groups[0].topics[0].partitions[0].committed_offset == 7
    node.close()


async def test_closing_finishes_the_background_commit() -> None:
    node = Node()
    await node.begin()
    first = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    second = node.send(commit("h", {("t", 0): 6}), 9)
    threading.Timer(0.01, node.let_through).start()
    node.driver.close()
    for future in (first, second):
        assert (await future).topics[0].partitions[0].error_code == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "kcore-log"]
    node.engine.close()
    await asyncio.sleep(0)


async def test_background_commits_are_measured() -> None:
    """One request starts a background commit, and two later requests wait for the same commit. The measured purgatory
    times include all three responses.
    """
    node = Node(shards=1)
    times = node.driver.measure()
    await node.begin()
    flushes, waited = times.flush.count, times.purgatory.count
    first = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    joined = [node.send(offsets("g"), 9), node.send(node.beat, 4)]
    await node.serve()
    node.let_through()
    await asyncio.wait_for(asyncio.gather(first, *joined), LONG_S)
    await node.serve()
    assert (times.flush.count - flushes, times.purgatory.count - waited) == (1, 3)
    node.close()


async def test_a_background_commit_that_began_before_the_measurement_is_not_measured() -> None:
    node = Node()
    await node.begin()
    first = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    times = node.driver.measure()
    node.let_through()
    await first
    await node.serve()
    assert (times.flush.count, times.purgatory.count) == (0, 0)
    node.close()
