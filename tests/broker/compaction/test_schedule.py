"""The schedule of compaction: which part of a log counts as new, and when a partition is due."""

from __future__ import annotations

from kcore_ext.batch.records import iter_entries
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_fetch import plane_with
from tests.broker.data.test_produce import produce, stored

WALL_MS = 1_700_000_000_000


def clean(plane: DataPlane) -> list[int]:
    """Runs the cleaner once. Returns the offsets of the records that are left."""
    for _ in plane.housekeeping.cleaner.run():
        pass
    plane.commit()
    return [offset for batch in stored(plane) for offset, _, _, _ in iter_entries(batch)]


def test_a_segment_begins_where_the_last_pass_ended() -> None:
    """A pass ends with a segment. Its result may be one batch, whose time is that of the last record.

    Later batches must not count as a part of this segment. Otherwise, their segment never counts as new, and they are
    not compacted.
    """
    times_ms = {b"a": 0, b"b": 900, b"c": 1_101}
    batches = [batch_of(b"v", keys={0: key}, timestamp_ms=WALL_MS + ms) for key, ms in times_ms.items()]
    plane = plane_with(*batches, cleanup_policy="compact", segment_ms=1_000, min_cleanable_dirty_ratio=0.0)
    assert clean(plane) == [0, 1, 2]
    assert len(stored(plane)) == 2, "the batches of the first segment become one"
    for key, ms in ((b"c", 1_800), (b"d", 2_102)):
        produce(plane, batch_of(b"v", keys={0: key}, timestamp_ms=WALL_MS + ms))
    assert clean(plane) == [0, 1, 3, 4], "the second segment has lost the first value of its key"
