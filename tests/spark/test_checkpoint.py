"""Checkpoints: a rebuild that continues from a checkpoint equals a rebuild from the start of the log, or is refused."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kcore.errors import KcoreError
from kcore.protocol.records.base import SHARE_GROUP_STATE
from kcore.spark.events.arrow import to_batches
from kcore.spark.events.event import EventRow
from kcore.spark.events.segments import SegmentPartition, find_partitions, read_rows
from kcore.spark.events.sources import Part, Source, Span
from kcore.spark.frames.folders import rebuilt_of
from kcore.spark.state.batch_replay import rebuild_batches
from kcore.spark.state.checkpoint import checkpoint_batches, resume
from kcore.spark.state.rebuild import END, AsOf, Rebuilt, Resumed, rebuild
from kcore.spark.state.tables import table_rows
from tests.seeds import SEED

TRANSACTIONS = "__transaction_state"
INFERRED = ("cleaned_to",)
"""Columns of `partitions` that are not compared: a rebuild from the start of the log may infer more exact values."""


def tables(result: Rebuilt) -> list[str]:
    rows = []
    for table, row in table_rows(result.state, result.cut):
        rows.append((table, {name: value for name, value in row.items() if name not in INFERRED}))
    return sorted(map(repr, rows))


def through_storage(result: Rebuilt) -> Resumed:
    """Writes a checkpoint and reads it again."""
    assert result.live is not None
    table = pa.Table.from_batches(list(checkpoint_batches(result.live, result.cut)))
    middle = len(table) // 2
    return resume(result.state.topic, result.state.partition, [table.slice(middle), table.slice(0, middle)], None)


def rebuilt(part: SegmentPartition, rows: list[EventRow], as_of: AsOf = END, **options: Any) -> Rebuilt:
    batches = to_batches(rows)
    return rebuild_batches(*part[:2], batches, as_of, active_offset=part.active_offset, with_records=True, **options)


def replayed(part: SegmentPartition, rows: list[EventRow], as_of: AsOf = END) -> Rebuilt:
    """Rebuilds the state row by row from the start of the log, without a checkpoint."""
    return rebuild(*part[:2], rows, as_of, active_offset=part.active_offset)


def logs_of(kafka_logs: Path, moment: str) -> list[tuple[SegmentPartition, list[EventRow]]]:
    found = [(part, list(read_rows(part))) for part in find_partitions(kafka_logs / moment)]
    return [(part, rows) for part, rows in found if rows]


def check_cuts(random: Random, kafka_logs: Path, cuts: int) -> None:
    """Rebuilds to a random offset, continues from its checkpoint to a later offset, and continues from there to the
    end.

    Compares both results with rebuilds from the start of the log.
    """
    for part, rows in logs_of(kafka_logs, "moment-1"):
        whole = tables(replayed(part, rows))
        gaps = [row.offset for before, row in pairwise(rows) if row.offset != before.offset + 1]
        compacted = rebuilt(part, rows).state.completeness.cleaned_to if gaps else None
        solid = max([rows[0].offset + 1, *gaps, compacted or 0])  # a checkpoint below would be refused
        for _ in range(cuts if rows[-1].offset > solid else 0):
            first, second = sorted(random.sample(range(solid, rows[-1].offset + 2), 2))
            resumed = through_storage(rebuilt(part, rows, AsOf(first)))
            behind = [row for row in rows if row.offset >= resumed.state.next_offset]
            later = rebuilt(part, behind, AsOf(second), resumed=resumed)
            assert tables(later) == tables(replayed(part, rows, AsOf(second))), (part[:2], first, second)
            again = through_storage(later)
            behind = [row for row in rows if row.offset >= again.state.next_offset]
            assert tables(rebuilt(part, behind, resumed=again)) == whole, (part[:2], first, second)


@pytest.mark.seeded
def test_a_rebuild_from_a_checkpoint_equals_a_whole_one(kafka_logs: Path) -> None:
    check_cuts(Random(SEED), kafka_logs, 2)


@pytest.mark.long
@pytest.mark.seeded
def test_a_rebuild_from_many_checkpoints_equals_a_whole_one(kafka_logs: Path) -> None:
    check_cuts(Random(SEED), kafka_logs, 20)


def test_a_log_compacted_since_the_checkpoint_is_refused_or_gives_the_same(kafka_logs: Path) -> None:
    """A rebuild continues from a checkpoint, and the log was compacted since then.

    If compaction has removed offsets above the checkpoint, the rebuild is refused. Otherwise its state equals that of a
    rebuild from the start of the log.
    """
    later = {part[:2]: (part, rows) for part, rows in logs_of(kafka_logs, "moment-2")}
    same = refused = 0
    for part, rows in logs_of(kafka_logs, "moment-1"):
        resumed = through_storage(rebuilt(part, rows))
        new_part, new_rows = later[part[:2]]
        behind = [row for row in new_rows if row.offset >= resumed.state.next_offset]
        present = {row.offset for row in behind}
        if present == set(range(resumed.state.next_offset, new_rows[-1].offset + 1)):
            found, whole = rebuilt(new_part, behind, resumed=resumed), replayed(new_part, new_rows)
            # The later log lacks records that were replaced before the checkpoint; the state does not.
            assert state_tables(found) == state_tables(whole)
            same += 1
        else:
            with pytest.raises(KcoreError, match=r"lacks the offsets .* rebuild without --since"):
                rebuilt(new_part, behind, resumed=resumed)
            refused += 1
    assert (same, refused) == (12, 3), "three partitions of the later copy are compacted above the checkpoint"


def state_tables(result: Rebuilt) -> list[str]:
    return sorted(repr(row) for row in table_rows(result.state, result.cut) if row[0] not in ("partitions", "faults"))


def test_a_log_of_share_states_without_its_front_stays_complete(kafka_logs: Path) -> None:
    """The share coordinator has deleted the first records of a log. A rebuild that continues from a checkpoint still
    equals a whole rebuild.
    """
    part, rows = next((part, rows) for part, rows in logs_of(kafka_logs, "moment-1") if part.topic == SHARE_GROUP_STATE)
    kept, middle = rows[20:], rows[200].offset
    whole = replayed(part, kept)
    assert whole.state.completeness.is_complete(whole.state.last_stable_offset, whole.cut)
    resumed = through_storage(rebuilt(part, [row for row in kept if row.offset < middle]))
    again = through_storage(rebuilt(part, [row for row in kept if row.offset >= middle], resumed=resumed))
    assert tables(rebuilt(part, [], resumed=again)) == tables(whole)


def test_a_moment_before_any_record_of_the_checkpoint_is_refused() -> None:
    """A rebuild to a requested time is refused if the checkpoint contains a record with a later timestamp.

    The checkpoint's last record may have an earlier timestamp, because a coordinator's clock was set back.
    """
    times = (100, 300, 200, 250)
    rows = [EventRow(None, None, TRANSACTIONS, 0, offset, ms, 0, ()) for offset, ms in enumerate(times)]
    part = SegmentPartition(TRANSACTIONS, 0, ())
    begun = through_storage(rebuilt(part, rows[:1]))
    resumed = through_storage(rebuilt(part, rows[1:3], resumed=begun))
    assert replayed(part, rows, AsOf(None, 250)).state.next_offset == 1
    with pytest.raises(
        KcoreError, match="the checkpoint has a record with the timestamp 300 ms, after the requested time 250 ms"
    ):
        rebuilt(part, rows[3:], AsOf(None, 250), resumed=resumed)
    resumed = through_storage(rebuilt(part, rows[1:3], resumed=through_storage(rebuilt(part, rows[:1]))))
    assert rebuilt(part, rows[3:], AsOf(None, 300), resumed=resumed).state.next_offset == 4


def test_a_checkpoint_of_another_topic_of_the_same_name_is_refused() -> None:
    event = EventRow(None, None, TRANSACTIONS, 0, 0, 1, 0, ())
    begun = rebuild_batches(TRANSACTIONS, 0, to_batches([event]), with_records=True)
    assert begun.live is not None
    begun.state.topic_id = "aa"
    stored = io.BytesIO()
    pq.write_table(pa.Table.from_batches(list(checkpoint_batches(begun.live, begun.cut))), stored)

    def continued(topic_id: str | None) -> Rebuilt:
        source = ListedSource([event, event._replace(offset=1)])
        source.beside = lambda part: [pa.py_buffer(stored.getvalue())]
        return rebuilt_of(source, Part(TRANSACTIONS, 0, 0, 2, topic_id=topic_id), END, True, from_checkpoint=True)

    with pytest.raises(KcoreError) as raised:
        continued("bb")
    assert str(raised.value) == f"{TRANSACTIONS}-0 has the topic id bb, and its checkpoint aa: it is a different log"
    for topic_id in ("aa", None):
        assert (continued(topic_id).state.topic_id, continued(topic_id).state.next_offset) == ("aa", 2)


class ListedSource(Source):
    """A source with the rows of a list."""

    def __init__(self, rows: list[EventRow]) -> None:
        self._rows = rows

    def parts(self) -> list[Part]:
        return []

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        return (row for row in self._rows if span.has(row.offset))


def test_checkpoints_that_cannot_be_used_are_refused(kafka_logs: Path) -> None:
    part, rows = next((part, rows) for part, rows in logs_of(kafka_logs, "moment-1") if part.topic == TRANSACTIONS)
    begun = rebuilt(part, rows, AsOf(100))
    assert begun.live is not None
    table = pa.Table.from_batches(list(checkpoint_batches(begun.live, begun.cut)))
    with pytest.raises(KcoreError, match="is not complete: rebuild without --since"):
        resume(*part[:2], [table.slice(1)], None)
    with pytest.raises(KcoreError, match="is not complete: rebuild without --since"):
        resume(*part[:2], [table.slice(0, 5), table.slice(6)], None)
    with pytest.raises(KcoreError, match="the checkpoint is at offset 100, after the requested offset 40"):
        rebuilt(part, rows[100:], AsOf(40), resumed=through_storage(begun))
    last_ms = max(row.timestamp_ms for row in rows[:100])
    assert rebuilt(part, rows[100:], AsOf(None, last_ms), resumed=through_storage(begun)).state.next_offset >= 100
    with pytest.raises(KcoreError) as raised:
        rebuilt(part, rows[100:], AsOf(None, last_ms - 1), resumed=through_storage(begun))
    name = f"{TRANSACTIONS}-{part.partition}"
    assert str(raised.value) == (
        f"{name}: the checkpoint has a record with the timestamp {last_ms} ms, after the requested time "
        f"{last_ms - 1} ms"
    )

    compacted = rows[:20] + rows[40:]
    early = rebuild_batches(*part[:2], to_batches(compacted), AsOf(50), cleaned_to=len(rows), with_records=True)
    assert early.live is not None
    assert not early.state.completeness.is_complete(early.state.last_stable_offset, early.cut)
    batches = list(checkpoint_batches(early.live, early.cut))
    with pytest.raises(KcoreError, match="was compacted before the state of its checkpoint"):
        resume(*part[:2], [pa.Table.from_batches(batches)], None)
