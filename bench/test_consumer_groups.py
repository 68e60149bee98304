"""Consumer groups inside the engine, without a socket: heartbeats of a stable group, and its formation.

Requests are made beforehand if possible, the time is virtual, and the log is in memory. So a row is the cost of the
coordinator itself. `KCORE_BENCH_LARGE=1` adds the group of 10,000 members.
"""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kcore.group.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatApi
from kcore.group.consumer import records as group_records
from kcore.group.consumer.assignment import CurrentAssignment
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.member import MemberMetadata
from kcore.group.consumer.reference_records import REFERENCE_RECORDS
from kcore.group.consumer.states import UNRELEASED
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kcore.runtime import Pending, RequestContext
from kcore.runtime.machine import Record
from kcore_ext.batch import BatchBuilder
from kcore_ext.group.consumer_records import ConsumerRecord
from kcore_ext.runtime.shard import EncodedRecords
from tests.group.consumer.test_heartbeat_fast_path import GenericHeartbeatApi
from tests.group.context import GroupContext
from tests.kit import serve

GROUP = "orders-consumers"
CONTEXT = RequestContext(1, "consumer-orders-consumers-1", "/10.0.0.1")
LARGE = [10_000] if os.environ.get("KCORE_BENCH_LARGE") else []
ROUND_MS = 100


class JoiningMembers:
    """Members that join together and send heartbeats until all have their target assignments.

    A turn is a round: all heartbeats of the turn are decided, followed by one commit, as in a turn of a server's loop.
    `ROUND_MS` of virtual time pass between two turns.
    """

    def __init__(self, size: int, interval_ms: int = 1000) -> None:
        settings = {"group.consumer.assignment.interval.ms": interval_ms}
        self.context = GroupContext(settings, {"orders": size * 2, "payments": size})
        self.context.auto_commit = False
        self.api = ConsumerGroupHeartbeatApi(self.context.shards, self.context.consumer)
        self.size = size
        self.heartbeats = 0
        self.joins = [
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=f"{index:08x}-0000-4000-8000-000000000000",
                rebalance_timeout_ms=300_000,
                subscribed_topic_names=["orders", "payments"],
                topic_partitions=[],
            )
            for index in range(size)
        ]
        self.epochs = [0] * size
        self.owned: list[Any] = [()] * size
        self.got_assignment: list[bool] = [False] * size

    def _turn(self, requests: list[ConsumerGroupHeartbeatRequest]) -> None:
        responses = [serve(self.api, CONTEXT, request) for request in requests]
        self.heartbeats += len(requests)
        self.context.pipeline.commit()
        for index, result in enumerate(responses):
            response = result.response if isinstance(result, Pending) else result
            assert not response.error_code, response
            self.epochs[index] = response.member_epoch
            self.got_assignment[index] = response.assignment is not None
            if response.assignment is not None:
                self.owned[index] = response.assignment.topic_partitions
        self.context.advance(ROUND_MS)
        self.context.slices.finish()

    def beats(self) -> list[ConsumerGroupHeartbeatRequest]:
        """Returns each member's next heartbeat: its epoch, and its partitions after a new assignment."""
        return [
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=join.member_id,
                member_epoch=epoch,
                topic_partitions=[TopicPartitions(topic_id=t.topic_id, partitions=t.partitions) for t in owned]
                if got_assignment
                else None,
            )
            for join, epoch, owned, got_assignment in zip(
                self.joins, self.epochs, self.owned, self.got_assignment, strict=True
            )
        ]

    def run_until_joined(self) -> None:
        """Sends each member's first heartbeat, and the heartbeat that acknowledges its assignment."""
        self._turn(self.joins)
        self._turn(self.beats())

    def run(self) -> None:
        """Runs from the first join until the group is stable."""
        self._turn(self.joins)
        while not self.at_rest:
            self._turn(self.beats())

    @property
    def group(self) -> ConsumerGroup:
        group = self.context.machine.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def at_rest(self) -> bool:
        return self.group.state_name() == "Stable"


@pytest.mark.parametrize("members", [100, 1000, *LARGE])
def test_first_join_to_rest(benchmark: BenchmarkFixture, members: int) -> None:
    """Measures time, heartbeats and bytes from a simultaneous join until each member has its target assignment."""
    runs: list[JoiningMembers] = []

    def setup() -> tuple[tuple[JoiningMembers], dict[str, Any]]:
        runs.append(JoiningMembers(members))
        gc.collect()
        return (runs[-1],), {}

    benchmark.pedantic(JoiningMembers.run, setup=setup, rounds=1 if members > 1000 else 3)
    joining = runs[-1]
    assert len(joining.group.members) == members
    assert sum(len(t.partitions) for owned in joining.owned for t in owned) == 3 * members
    benchmark.extra_info["heartbeats"] = joining.heartbeats
    benchmark.extra_info["us_a_heartbeat"] = benchmark.stats.stats.min / joining.heartbeats * 1e6
    benchmark.extra_info["bytes_written"] = sum(len(batch) for _, batch in joining.context.log().batches())


def rest(benchmark: BenchmarkFixture, joining: JoiningMembers, api: ConsumerGroupHeartbeatApi) -> None:
    """Measures a thousand heartbeats of members of a stable group."""
    joining.run()
    requests = (joining.beats() * (1000 // joining.size + 1))[:1000]
    handle, served = api.fast or api.handle, api.fast_path.served

    def beat() -> None:
        for request in requests:
            handle(CONTEXT, request)

    written = joining.context.log().end_offset
    benchmark(beat)
    assert joining.context.log().end_offset == written
    assert (api.fast_path.served == served) is isinstance(api, GenericHeartbeatApi)
    benchmark.extra_info["operations"] = len(requests)


@pytest.mark.parametrize("members", [10, 1000, *LARGE])
def test_heartbeat_at_rest(benchmark: BenchmarkFixture, members: int) -> None:
    """Measures heartbeats of stable members in a small group and in a large one."""
    joining = JoiningMembers(members)
    rest(benchmark, joining, joining.api)


@pytest.mark.parametrize("members", [10, 1000])
def test_baseline_heartbeat_at_rest_in_python(benchmark: BenchmarkFixture, members: int) -> None:
    """Measures the same heartbeats as `test_heartbeat_at_rest`, but without the fast path."""
    joining = JoiningMembers(members)
    rest(benchmark, joining, GenericHeartbeatApi(joining.context.shards, joining.context.consumer))


@pytest.mark.parametrize("members", [10, 1000, *LARGE])
def test_heartbeat_while_a_target_must_wait(benchmark: BenchmarkFixture, members: int) -> None:
    """Measures heartbeats while the group waits for its assignment interval (KIP-1263), as after a join."""
    joining = JoiningMembers(members, interval_ms=15_000)
    joining.run_until_joined()
    assert joining.group.state_name() == "Assigning"
    requests = (joining.beats()[1:] * (1000 // (members - 1) + 1))[:1000]

    def beat() -> None:
        for request in requests:
            serve(joining.api, CONTEXT, request)

    written = joining.context.log().end_offset
    benchmark(beat)
    assert joining.context.log().end_offset == written
    benchmark.extra_info["operations"] = len(requests)


@pytest.mark.parametrize("members", [10, 1000])
def test_baseline_two_look_ups_and_a_store(benchmark: BenchmarkFixture, members: int) -> None:
    """Measures two dictionary look-ups and a store, the lower limit of a heartbeat's cost in Python."""
    groups = {GROUP: {f"{index:08x}": [0] for index in range(members)}}
    requests = [(GROUP, f"{index % members:08x}") for index in range(1000)]

    def beat() -> None:
        for group_id, member_id in requests:
            groups[group_id][member_id][0] = 1

    benchmark(beat)


def test_one_more_member_in_a_crowd(benchmark: BenchmarkFixture) -> None:
    """Measures a join and a leave in a stable group of 1,000 members: two targets and the resulting moves."""
    joining = JoiningMembers(1000, interval_ms=0)
    joining.run()
    join = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="one-more",
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=["orders", "payments"],
        topic_partitions=[],
    )
    leave = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="one-more", member_epoch=-1)

    def come_and_go() -> None:
        for request in (join, leave):
            serve(joining.api, CONTEXT, request)
            joining.context.pipeline.commit()
            joining.context.slices.finish()
            joining.context.pipeline.commit()

    benchmark.pedantic(come_and_go, rounds=5, warmup_rounds=1)
    assert len(joining.group.members) == 1000


def test_joins_without_an_interval(benchmark: BenchmarkFixture) -> None:
    """Measures 50 successive joins with one commit. Each join computes a target and writes nine records."""
    runs: list[JoiningMembers] = []

    def setup() -> tuple[tuple[JoiningMembers], dict[str, Any]]:
        runs.append(JoiningMembers(50, interval_ms=0))
        return (runs[-1],), {}

    def join(joining: JoiningMembers) -> None:
        for request in joining.joins:
            serve(joining.api, CONTEXT, request)
        joining.context.pipeline.commit()

    benchmark.pedantic(join, setup=setup, rounds=20, warmup_rounds=1)
    assert runs[-1].group.assignment_epoch == runs[-1].group.group_epoch == 51
    benchmark.extra_info["operations"] = 50


RECORDS = 9


def _join(number: int) -> list[Any]:
    """Returns the records that the coordinator writes for a join, not yet encoded."""
    target = {bytes(16): (number, number + 1)}
    current = CurrentAssignment(number, number - 1, UNRELEASED, {bytes(16): {number: 1}})
    return [
        group_records.member_metadata(
            GROUP, f"member-{number}", MemberMetadata(client_id="one", names=frozenset(["orders"]))
        ),
        group_records.group_epoch(GROUP, number, 1 << 40),
        *[group_records.target_assignment(GROUP, f"member-{index}", target) for index in range(5)],
        group_records.assignment_epoch(GROUP, number, 1 << 40),
        group_records.current_assignment(GROUP, f"member-{number}", current),
    ]


@pytest.mark.parametrize("way", ["compiled", "reference"])
def test_records_of_a_join(benchmark: BenchmarkFixture, way: str) -> None:
    """Measures encoding the nine records of a join, with the compiled code and with the reference implementation."""

    def write() -> BatchBuilder:
        batch = BatchBuilder(1 << 20, base_timestamp_ms=0)
        for number in range(100):
            records: Any = _join(number)
            block = group_records.in_one(records) if way == "compiled" else EncodedRecords([*map(_reference, records)])
            block.append_to(batch, 0)
        return batch

    assert benchmark(write).count == 100 * RECORDS
    benchmark.extra_info["operations"] = 100


def _reference(record: ConsumerRecord) -> Record:
    return REFERENCE_RECORDS[record.record_type](record)
