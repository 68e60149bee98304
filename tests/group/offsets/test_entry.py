"""OffsetAndMetadata: one committed offset in 80 bytes."""

from __future__ import annotations

import gc
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore_ext.group.offsets import OffsetAndMetadata

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
uuid = st.binary(min_size=16, max_size=16)
ZERO = bytes(16)
ONE, TWO = b"1" * 16, b"2" * 16


@given(int64, int64, int32, st.text(), int64, int64, uuid)
def test_an_entry_keeps_its_arguments(record, offset, epoch, metadata, committed, expire, topic_id):
    entry = OffsetAndMetadata(record, offset, epoch, metadata, committed, expire, topic_id)
    assert entry.record_offset == record
    assert entry.committed_offset == offset
    assert entry.leader_epoch == epoch
    assert entry.metadata == metadata
    assert entry.commit_timestamp_ms == committed
    assert entry.expire_timestamp_ms == expire
    assert entry.topic_id == topic_id
    assert entry == OffsetAndMetadata(record, offset, epoch, metadata, committed, expire, topic_id)


def test_every_field_affects_equality():
    fields = [1, 2, 3, "4", 5, 6, ONE]
    others = [0, 0, 0, "", 0, 0, TWO]
    entry = OffsetAndMetadata(*fields)
    for i, other in enumerate(others):
        assert entry != OffsetAndMetadata(*fields[:i], other, *fields[i + 1 :]), i
    assert entry != fields
    assert len({entry, OffsetAndMetadata(*fields)}) == 1


def test_an_entry_is_immutable():
    entry = OffsetAndMetadata(1, 2, 3, "", 5, -1, ZERO)
    for name in ("record_offset", "committed_offset", "leader_epoch", "metadata", "commit_timestamp_ms", "topic_id"):
        with pytest.raises(AttributeError):
            setattr(entry, name, 1)


def test_an_entry_is_small_and_not_tracked_by_the_garbage_collector():
    entry = OffsetAndMetadata(1, 2, 3, "", 5, -1, ZERO)
    assert sys.getsizeof(entry) == 80
    assert not gc.is_tracked(entry)


@pytest.mark.parametrize(
    ("mine", "other", "same"),
    [(ONE, ONE, True), (ONE, TWO, False), (ZERO, TWO, True), (ONE, ZERO, True), (ZERO, ZERO, True)],
)
def test_an_unknown_topic_id_matches_any_other(mine, other, same):
    assert OffsetAndMetadata(1, 2, 3, "", 5, -1, mine).belongs_to(other) is same


def test_a_topic_id_has_sixteen_bytes():
    with pytest.raises(ValueError, match="the topic id b'short' has 5 bytes, not 16"):
        OffsetAndMetadata(1, 2, 3, "", 5, -1, b"short")
    with pytest.raises(ValueError, match="has 0 bytes, not 16"):
        OffsetAndMetadata(1, 2, 3, "", 5, -1, ZERO).belongs_to(b"")


@pytest.mark.parametrize("field", range(6))
def test_numbers_too_large_for_a_record_are_refused(field):
    fields = [1, 2, 3, "", 5, 6, ZERO]
    if field == 3:
        with pytest.raises(TypeError):
            OffsetAndMetadata(1, 2, 3, None, 5, 6, ZERO)  # type: ignore[arg-type]
        return
    fields[field] = 1 << 63
    with pytest.raises(OverflowError):
        OffsetAndMetadata(*fields)
