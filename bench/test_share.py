"""The delivery state of share partitions: acquiring and acknowledging, and the recovery of many share partitions.

The rows of the delivery state do COUNT operations a round; `make bench` prints the time of one.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kcore.clock import ManualClock, Now
from kcore.config.node import Config
from kcore.protocol.messages.share_acknowledge import AcknowledgementBatch
from kcore.runtime.machine import ShardContext
from kcore.share.shard import ShareServices, ShareShard
from kcore.share.state import SharePartitionKey, snapshot_record
from kcore_ext.batch import BatchBuilder, stamp
from kcore_ext.broker.share.changes import Change, ShareRuns
from kcore_ext.broker.share.runs import Lock
from kcore_ext.runtime.timer_wheel import TimerWheel

pytestmark = pytest.mark.benchmark(timer=time.process_time)  # processor time, because the machine is shared

COUNT = 1_000
RECORDS = 100
SHARE_PARTITIONS = 100_000


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
    """Acquires a log batch of 100 new records."""
    benchmark.extra_info["operations"] = COUNT
    benchmark.pedantic(acquire, setup=fresh, rounds=20)


def test_acknowledge(benchmark: BenchmarkFixture) -> None:
    """Acknowledges 100 records of one acquisition, and applies the written change."""
    benchmark.extra_info["operations"] = COUNT
    benchmark.pedantic(acknowledge, setup=acquired, rounds=20)


def test_recovery(benchmark: BenchmarkFixture) -> None:
    """Decodes and replays the snapshots of 100,000 share partitions."""
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
