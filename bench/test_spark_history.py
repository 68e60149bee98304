"""Timeline and audit with Spark, on a log with many events.

    pytest bench/test_spark_history.py                                  # 100 000 events
    KCORE_BENCH_SPARK_EVENTS=1000000 pytest bench/test_spark_history.py

The log: ten groups, each of which repeatedly rebalances six times within seconds, commits, runs two transactions, and
is silent for ten minutes. A longer log thus has more rebalances, storms, gaps and transactions per group. It shows
any cost that is quadratic in one of these numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from bench.test_spark_rebuild import spark, tree_cpu_s  # noqa: F401  # a fixture
from kcore.protocol.records import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kcore.protocol.records.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from kcore.spark.events.event import EventRow
from kcore.spark.events.sources import Part, Source, Span
from kcore.spark.export.exporter import export
from kcore.spark.jobs.audit import audit
from kcore.spark.jobs.timeline import timeline
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata

EVENTS = int(os.environ.get("KCORE_BENCH_SPARK_EVENTS", "100000"))
GROUPS = 10
REBALANCES, COMMITS, TRANSACTIONS = 6, 4, 2
BURST_EVENTS = REBALANCES + COMMITS + TRANSACTIONS * (2 + 4)
BURSTS = max(1, EVENTS // (GROUPS * BURST_EVENTS))
PAUSE_MS = 600_000
WALL_MS = 1_700_000_000_000
EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT = 0, 1, 2, 4
TIMEOUT_MS = 60_000

Benchmark = Callable[..., Any]

pytestmark = pytest.mark.timeout(180 + EVENTS // 500)


class Busy(Source):
    """A source with each group in its own partition, and the group's transactional id in the partition of the same
    number.
    """

    def parts(self) -> list[Part]:
        """Returns the partitions."""
        return [Part(topic, number) for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE) for number in range(GROUPS)]

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        """Generates the rows of a partition."""
        part = span.part
        made = of_group if part.topic == CONSUMER_OFFSETS else of_transactional_id
        for offset, row in enumerate(made(part.partition)):
            if span.has(offset):
                yield row._replace(topic=part.topic, partition=part.partition, offset=offset)


def event(key: bytes | None, value: bytes | None, at_ms: int) -> EventRow:
    return EventRow(key, value, "", 0, 0, at_ms)


def of_group(number: int) -> Iterator[EventRow]:
    group = f"group-{number}"
    for burst in range(BURSTS):
        at_ms = WALL_MS + burst * PAUSE_MS
        for turn in range(REBALANCES):
            yield event(*rebalanced(group, burst * REBALANCES + turn, at_ms + 1_000 * turn), at_ms + 1_000 * turn)
        at_ms += 10_000
        for turn in range(COMMITS):
            yield event(*committed(group, "plain", turn, burst, at_ms), at_ms)
        for turn in range(TRANSACTIONS):
            at_ms += 100
            row = event(*committed(group, "moved", turn, burst, at_ms), at_ms)
            row = row._replace(producer_id=number, producer_epoch=0, transactional=True)
            yield row
            yield row._replace(key=b"\0\0\0\1", value=bytes(6), control=True, timestamp_ms=at_ms + 2)


def of_transactional_id(number: int) -> Iterator[EventRow]:
    name = f"id-{number}"
    key = TransactionLogKey(transactional_id=name).encode_key()
    yield event(key, transaction(number, EMPTY, WALL_MS, -1).encode_value(0), WALL_MS)
    for burst in range(BURSTS):
        at_ms = WALL_MS + burst * PAUSE_MS + 10_000
        for _ in range(TRANSACTIONS):
            at_ms += 100
            for status, later_ms in ((ONGOING, -2), (ONGOING, -1), (PREPARE_COMMIT, 1), (COMPLETE_COMMIT, 3)):
                value = transaction(number, status, at_ms + later_ms, at_ms - 2)
                yield event(key, value.encode_value(0), at_ms + later_ms)


def transaction(number: int, status: int, at_ms: int, start_ms: int) -> TransactionLogValue:
    topics = [PartitionsSchema(topic=CONSUMER_OFFSETS, partition_ids=[number])]
    return TransactionLogValue(
        producer_id=number,
        producer_epoch=0,
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_status=status,
        transaction_partitions=topics if status in (ONGOING, PREPARE_COMMIT) else None,
        transaction_last_update_timestamp_ms=at_ms,
        transaction_start_timestamp_ms=start_ms,
    )


def rebalanced(group: str, generation: int, at_ms: int) -> tuple[bytes, bytes]:
    names = [f"member-{number}" for number in range(2 + generation % 2)]
    members = [
        MemberMetadata(member_id=name, client_id="c", client_host="/h", session_timeout=9_000, rebalance_timeout=9_000)
        for name in names
    ]
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=generation + 1,
        protocol="range",
        leader=names[0],
        current_state_timestamp=at_ms,
        members=members,
    )
    return GroupMetadataKey(group=group).encode_key(), value.encode_value(3)


def committed(group: str, topic: str, partition: int, offset: int, at_ms: int) -> tuple[bytes, bytes]:
    value = OffsetAndMetadata(-1, offset, 0, "", at_ms, -1, bytes(16))
    return CommitKey(group, topic, partition).encode_key(), value.encode_value(4)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yields the exported log."""
    out = tmp_path_factory.mktemp("history") / "events"
    export(Busy(), out)
    return out


def measured(benchmark: Benchmark, run: Callable[[], Any]) -> Any:
    """Measures a single run of a job, because a run takes long. Spark has already started.

    Also records the length of the log.
    """
    cpu_s: list[float] = []

    def timed() -> Any:
        before_s = tree_cpu_s()
        result = run()
        cpu_s.append(round(tree_cpu_s() - before_s, 2))
        return result

    result = benchmark.pedantic(timed, rounds=1, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info.update(events=BURSTS * GROUPS * BURST_EVENTS, cpu_s=min(cpu_s))  # type: ignore[attr-defined]
    return result


def test_timeline(benchmark: Benchmark, spark: Any, events: Path, tmp_path: Path) -> None:  # noqa: F811
    """Measures every table and the page."""
    totals = measured(benchmark, lambda: timeline(spark, events, tmp_path / "timeline"))["totals"]
    benchmark.extra_info["totals"] = totals  # type: ignore[attr-defined]
    assert totals["groups"] == GROUPS


def test_audit(benchmark: Benchmark, spark: Any, events: Path, tmp_path: Path) -> None:  # noqa: F811
    """Measures the audit, which has no findings."""
    audited = measured(benchmark, lambda: audit(spark, events, tmp_path / "audit"))
    assert audited.counts == {}
