"""The two compiled parts of a compaction pass give the same log as the reference implementation, batch by batch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.broker.compaction import cleaner
from kcore_ext.batch import parse_header
from tests.broker.compaction.world import RETENTION_MS, Entries, World, check
from tests.reference.compaction import compacted, latest_offsets, neighbours_merged

KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"c", b"d" * 300]), st.binary(max_size=2))
VALUES = st.one_of(st.none(), st.binary(max_size=6), st.sampled_from([b"v" * 200]))
ENTRIES = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
WRITES = st.tuples(ENTRIES, st.sampled_from([-1, -1, -1, 7]), st.sampled_from([0, 0, 0, 0, 4]), st.booleans())
TURNS = st.lists(st.tuples(st.lists(WRITES, max_size=12), st.sampled_from([0, 1, 2 * RETENTION_MS])), max_size=5)


def expected(world: World, max_merged_bytes: int) -> list[bytes]:
    """Returns the log after a compaction pass of the reference implementation."""
    stored = [batch for _, batch in world.log.batches()]
    mark = world.log.cleaned_to
    latest = latest_offsets([batch for batch in stored[:-1] if parse_header(batch).base_offset >= mark])
    last = {batch.last_offset for entry in world.partition.producers.entries.values() for batch in entry.batches}
    left = [compacted(batch, latest, last, world.wall_ms, RETENTION_MS) for batch in stored[:-1]]
    there = [batch for batch in left if batch is not None]
    return neighbours_merged(there, max_merged_bytes) + stored[-1:]


@settings(max_examples=50, deadline=None)
@given(turns=TURNS, unread_batches=st.sampled_from([1, 2, 32]), max_merged_bytes=st.sampled_from([300, 1000, 65536]))
def test_a_pass_gives_the_same_log_as_the_reference(
    turns: list[tuple[list[tuple[Entries, int, int, bool]], int]], unread_batches: int, max_merged_bytes: int
) -> None:
    """The pass runs in one slice, because neighbouring batches are not merged across slices."""
    world = World(slice_records=1 << 40, unread_batches=unread_batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaner, "MERGED_BATCH_BYTES", max_merged_bytes)
        for writes, elapsed_ms in turns:
            for entries, producer_id, codec, append_time in writes:
                headers = (("h", b"1"), ("n", None)) if append_time else ()
                world.write(entries, producer_id=producer_id, codec=codec, append_time=append_time, headers=headers)
            world.commit()
            world.wall_ms += elapsed_ms
            if not list(world.log.batches()):
                continue
            wanted = expected(world, max_merged_bytes)
            work = world.compact()
            found = [batch for _, batch in world.log.batches()]
            assert found == wanted
            assert work.done
            assert work.size_bytes == sum(map(len, found[:-1]))


@settings(max_examples=30, deadline=None)
@given(
    turns=TURNS,
    slice_records=st.integers(1, 30),
    unread_batches=st.sampled_from([1, 2, 32]),
    map_bytes=st.sampled_from([300, 1 << 20]),
)
def test_slices_leave_the_same_records(
    turns: list[tuple[list[tuple[Entries, int, int, bool]], int]],
    slice_records: int,
    unread_batches: int,
    map_bytes: int,
) -> None:
    """Small slices and little memory give the same remaining records as one slice."""
    whole = World(slice_records=1 << 40)
    sliced = World(slice_records=slice_records, unread_batches=unread_batches, map_bytes=map_bytes)
    for writes, elapsed_ms in turns:
        for world in (whole, sliced):
            for entries, producer_id, codec, append_time in writes:
                world.write(entries, producer_id=producer_id, codec=codec, append_time=append_time)
            world.commit()
            world.wall_ms += elapsed_ms
            for _ in range(100):
                before = world.log.cleaned_to
                assert world.compact().done
                if world.log.cleaned_to == before:
                    break
        check(whole)
        check(sliced)
        assert [one for one in sliced.stored() if one.value is not None] == [
            one for one in whole.stored() if one.value is not None
        ]
