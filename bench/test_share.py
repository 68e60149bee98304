"""Share groups: the delivery state of share partitions, the recovery of many of them, and the formation of a group.

In the rows of the delivery state, a round has COUNT operations, and `make bench` prints the time of one operation. The
formation of a group is measured like that of a consumer group in `bench/test_consumer_groups.py`: virtual time, a log
in memory, and one commit for all heartbeats of a turn.
"""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kcore.clock import ManualClock, Now
from kcore.config.node import Config
from kcore.protocol.messages.share_acknowledge import AcknowledgementBatch
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.runtime import Pending, RequestContext
from kcore.runtime.machine import ShardContext
from kcore.share.shard import ShareServices, ShareShard
from kcore.share.state import SharePartitionKey, snapshot_record
from kcore_ext.batch import BatchBuilder, stamp
from kcore_ext.broker.share.changes import Change, ShareRuns
from kcore_ext.broker.share.runs import Lock
from kcore_ext.runtime.timer_wheel import TimerWheel
from tests.group.share.world import GROUP, World

pytestmark = pytest.mark.benchmark(timer=time.process_time)  # processor time, because the machine is shared

COUNT = 1_000
RECORDS = 100
SHARE_PARTITIONS = 100_000
MEMBERS = 1_000
TURN_MS = 100
CONTEXT = RequestContext(1, "share-consumer-1", "/10.0.0.1")


class Runs(ShareRuns):
    def lock_expired(self, lock: Lock) -> None:
        raise AssertionError("no lock expires here")


def log_batch(base_offset: int) -> bytes:
    builder = BatchBuilder(1 << 16, base_timestamp_ms=1)
    for _ in range(RECORDS):
        assert builder.append(1, None, b"v")
    batch = bytearray(builder.build())
    stamp(batch, base_offset, 0)
    return bytes(batch)


BATCHES = [[log_batch(RECORDS * i)] for i in range(COUNT)]
ACKNOWLEDGEMENTS = [
    (AcknowledgementBatch(first_offset=at, last_offset=at + RECORDS - 1, acknowledge_types=(1,)),)
    for at in range(0, RECORDS * COUNT, RECORDS)
]


def acquire(runs: Runs, wheel: TimerWheel) -> None:
    for i, batches in enumerate(BATCHES):
        runs.acquire(
            "member",
            batches,
            RECORDS * i,
            wheel,
            1 << 40,
            max_records=RECORDS,
            batch_size=RECORDS,
            record_limit=False,
            max_locks=1 << 40,
            max_deliveries=5,
        )


def acknowledge(runs: Runs, wheel: TimerWheel) -> None:
    for batches in ACKNOWLEDGEMENTS:
        change = runs.acknowledge("member", batches, wheel, 1 << 40, max_deliveries=5, allow_renew=True)
        assert type(change) is Change
        runs.finish(change, True, 5)


def fresh() -> tuple[tuple[Any, ...], dict[str, Any]]:
    runs = Runs()
    runs.reset(0, ())
    return (runs, TimerWheel(0)), {}


def acquired() -> tuple[tuple[Any, ...], dict[str, Any]]:
    arguments, named = fresh()
    acquire(*arguments)
    return arguments, named


def test_acquire(benchmark: BenchmarkFixture) -> None:
    """Measures acquiring a log batch of 100 new records."""
    benchmark.extra_info["operations"] = COUNT
    benchmark.pedantic(acquire, setup=fresh, rounds=20)


def test_acknowledge(benchmark: BenchmarkFixture) -> None:
    """Measures acknowledging 100 records of one acquisition, and applying the change after its write."""
    benchmark.extra_info["operations"] = COUNT
    benchmark.pedantic(acknowledge, setup=acquired, rounds=20)


def test_recovery(benchmark: BenchmarkFixture) -> None:
    """Measures decoding and replaying the snapshots of 100,000 share partitions."""
    records = []
    for number in range(SHARE_PARTITIONS):
        key = SharePartitionKey(f"group-{number % 1000}", bytes(16), number // 1000)
        record = snapshot_record(
            key,
            snapshot_epoch=0,
            state_epoch=1,
            leader_epoch=0,
            start_offset=0,
            delivery_complete_count=0,
            batches=(),
            create_timestamp=1,
            write_timestamp=1,
        )
        assert record.value is not None
        records.append((record.key.encode_key(), record.value.encode_value(0)))
    topics: Any = None
    services = ShareServices(Config.of({}), topics, lambda: True, lambda index, offset: None)

    def recover() -> int:
        shard: Any = None
        machine = ShareShard(ShardContext(shard, Now(ManualClock())), services)
        for offset, (encoded_key, encoded_value) in enumerate(records):
            decoded = machine.decode(encoded_key, encoded_value)
            assert decoded is not None
            machine.replay(offset, -1, *decoded)
        return len(machine.states)

    assert benchmark.pedantic(recover, rounds=3) == SHARE_PARTITIONS


class JoiningMembers:
    """Members that join one share group together and send heartbeats until all have their target assignments."""

    def __init__(self, size: int, partitions: int, interval_ms: int) -> None:
        self.world = World(
            {"orders": partitions * 2 // 3, "payments": partitions - partitions * 2 // 3},
            group_share_assignment_interval_ms=interval_ms,
            group_share_max_size=size,
        )
        self.requests = [
            ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=f"{index:08x}-0000-4000-8000-000000000000",
                subscribed_topic_names=["orders", "payments"],
            )
            for index in range(size)
        ]
        self.assigned = [0] * size
        self.heartbeats = 0

    def run(self) -> None:
        """Sends heartbeats from the first join until each member owns the partitions of its last target assignment."""
        engine = self.world.engine
        while True:
            responses = [engine.submit(CONTEXT, request) for request in self.requests]
            self.heartbeats += len(responses)
            engine.commit()
            for index, result in enumerate(responses):
                response = result.response if isinstance(result, Pending) else result
                assert not response.error_code, response
                request = self.requests[index]
                if response.member_epoch != request.member_epoch:
                    self.requests[index] = ShareGroupHeartbeatRequest(
                        group_id=GROUP, member_id=request.member_id, member_epoch=response.member_epoch
                    )
                if response.assignment is not None:
                    self.assigned[index] = sum(len(topic.partitions) for topic in response.assignment.topic_partitions)
            if self.at_rest:
                return
            self.world.advance(TURN_MS)

    @property
    def at_rest(self) -> bool:
        epoch = self.world.group.group_epoch
        return self.world.group.assignment_epoch == epoch and all(
            request.member_epoch == epoch for request in self.requests
        )


@pytest.mark.parametrize(("partitions", "interval_ms"), [(100, 1_000), (3_000, 1_000), (100, 0)])
def test_first_join_to_rest(benchmark: BenchmarkFixture, partitions: int, interval_ms: int) -> None:
    """Measures 1,000 members from a simultaneous join until each has its target assignment.

    The time includes the initialization of the share partitions. With an assignment interval of 0, the coordinator
    computes a new target assignment for each join.
    """
    runs: list[JoiningMembers] = []

    def setup() -> tuple[tuple[JoiningMembers], dict[str, Any]]:
        runs.append(JoiningMembers(MEMBERS, partitions, interval_ms))
        gc.collect()
        return (runs[-1],), {}

    benchmark.pedantic(JoiningMembers.run, setup=setup, rounds=3 if interval_ms else 1)
    joining = runs[-1]
    assert len(joining.world.group.members) == MEMBERS
    assert sum(joining.assigned) >= max(MEMBERS, partitions)
    benchmark.extra_info["heartbeats"] = joining.heartbeats
