"""The cost of a request with 1,000, 100,000 and 1,000,000 objects of a kind, which should be constant.

    pytest bench/test_growth.py                                  # up to 100,000
    KCORE_BENCH_GROWTH=1000000 pytest bench/test_growth.py       # needs some gigabytes

Requests are for random objects, so a larger node has more cache misses of the CPU; no other cost may grow. The baseline
of a row is the row with 1,000 objects.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kcore.cli.collector import COLLECTOR
from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.log import MemoryLogEngine
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kcore.protocol.messages.sync_group import SyncGroupRequest
from kcore.runtime import Pending, RequestContext
from kcore_ext.runtime.timer_wheel import TimerWheel

# Processor time, because the machine is shared. Making a million objects takes a while.
pytestmark = [pytest.mark.benchmark(timer=time.process_time), pytest.mark.timeout(3600)]

LARGEST = int(os.environ.get("KCORE_BENCH_GROWTH", "100000"))
SIZES = [size for size in (1_000, 100_000, 1_000_000) if size <= LARGEST]
REQUESTS = 1_000
SESSION_MS = 1_800_000


class Node:
    """An engine in memory with `size` groups, which receive requests in random order."""

    def __init__(self, size: int) -> None:
        settings = {"group.initial.rebalance.delay.ms": 0, "group.max.session.timeout.ms": SESSION_MS}
        self.engine = Engine(MemoryLogEngine(), Config.of(settings), ManualClock(wall_ms=1))
        self.call(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 7)
        self.random = random.Random(7)
        COLLECTOR.start()  # as in the server: else Python's collector scans all objects after each growth by a quarter
        self.size = size

    def call(self, request: Any, version: int) -> Any:
        return self.call_all([request], version)[0]

    def call_all(self, requests: list[Any], version: int) -> list[Any]:
        """Processes requests in one round. Returns their responses."""
        context = RequestContext(version)
        responses = [self.engine.submit(context, request) for request in requests]
        self.engine.turn()
        self.engine.commit()
        return [response.response if isinstance(response, Pending) else response for response in responses]

    def some(self, make: Callable[[int], Any]) -> list[Any]:
        return [make(self.random.randrange(self.size)) for _ in range(REQUESTS)]


def commit(number: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id=f"g{number}", topics=[topic])


def join(number: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=f"g{number}",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="bench",
        protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
    )


def fetch(number: int) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=f"g{number}", topics=[topic])])


def measure(benchmark: BenchmarkFixture, node: Node, requests: list[Any], version: int) -> None:
    """Measures REQUESTS requests, committed together."""
    context = RequestContext(version)
    submit, commit = node.engine.submit, node.engine.commit

    def run() -> None:
        for request in requests:
            submit(context, request)
        commit()

    benchmark.extra_info["operations"] = REQUESTS
    benchmark.pedantic(run, rounds=30, warmup_rounds=2)


@pytest.fixture(scope="module", params=SIZES)
def offsets(request: pytest.FixtureRequest) -> Node:
    """Yields a node with a committed offset in each of its groups."""
    node = Node(request.param)
    for first in range(0, node.size, REQUESTS):
        node.call_all([commit(number) for number in range(first, first + REQUESTS)], 8)
    assert sum(shard.machine.offsets.offset_count for shard in node.engine.groups) == node.size
    return node


def test_commit_by_offsets(benchmark: BenchmarkFixture, offsets: Node) -> None:
    benchmark.group = "growth: a commit, by groups and offsets"
    measure(benchmark, offsets, offsets.some(commit), 8)


def test_fetch_by_offsets(benchmark: BenchmarkFixture, offsets: Node) -> None:
    benchmark.group = "growth: an offset fetch, by groups and offsets"
    requests = offsets.some(fetch)
    assert offsets.call(requests[0], 9).groups[0].topics[0].partitions[0].committed_offset >= 0
    measure(benchmark, offsets, requests, 9)


@pytest.mark.parametrize("size", SIZES)
def test_heartbeat_by_groups(benchmark: BenchmarkFixture, size: int) -> None:
    """Measures heartbeats with `size` stable groups of one member each, so the numbers of groups, members and sessions
    are equal.
    """
    benchmark.group = "growth: a heartbeat, by groups, members and timers"
    node = Node(size)
    members: list[str] = []
    for first in range(0, size, REQUESTS):
        some = range(first, first + REQUESTS)
        joined = node.call_all([join(number) for number in some], 3)
        members += [response.member_id for response in joined]
        syncs = [SyncGroupRequest(group_id=f"g{number}", generation_id=1, member_id=members[number]) for number in some]
        assert {response.error_code for response in node.call_all(syncs, 3)} == {0}

    def beat(number: int) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=f"g{number}", generation_id=1, member_id=members[number])

    requests = node.some(beat)
    assert node.call(requests[0], 4).error_code == 0
    measure(benchmark, node, requests, 4)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("what", ["add and cancel", "extend"])
def test_timer_by_timers(benchmark: BenchmarkFixture, what: str, size: int) -> None:
    benchmark.group = f"growth: timer, {what}"
    wheel = TimerWheel()
    chance = random.Random(7)
    timers = [wheel.add(chance.randrange(1, 600_000), None) for _ in range(size)]
    some = [chance.choice(timers) for _ in range(REQUESTS)]

    def add_and_cancel() -> None:
        add = wheel.add
        for _ in range(REQUESTS):
            add(45_000, None).cancel()

    def extend() -> None:
        for timer in some:
            timer.extend(700_000)

    benchmark.extra_info["operations"] = REQUESTS
    benchmark.pedantic({"add and cancel": add_and_cancel, "extend": extend}[what], rounds=50, warmup_rounds=3)
    assert len(wheel) == size
