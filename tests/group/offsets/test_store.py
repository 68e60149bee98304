"""OffsetStore: how replay changes offsets, pending offsets and open transactions."""

from __future__ import annotations

import pytest

from kcore.group.offsets.store import OffsetStore
from kcore_ext.group.offsets import OffsetAndMetadata

PLAIN = -1


def offset(record_offset: int, committed: int = 0) -> OffsetAndMetadata:
    return OffsetAndMetadata(record_offset, committed, -1, "", 1_000, -1, bytes(16))


def dump(store: OffsetStore) -> dict[tuple[str, str, int], int]:
    """Returns the group, topic and partition of each committed offset -> the position of its record in the log."""
    return {
        (group, topic, partition): entry.record_offset
        for group in store.groups()
        for topic, partitions in store.topics(group).items()
        for partition, entry in partitions.items()
    }


def is_clean(store: OffsetStore) -> bool:
    """Returns True if the store has no offsets and no empty dictionaries."""
    return not (store._groups or store._pending or store._open) and store.offset_count == 0


@pytest.fixture
def store() -> OffsetStore:
    return OffsetStore()


def test_a_later_offset_replaces_an_earlier_one(store):
    store.put(PLAIN, "g", "t", 0, offset(1))
    store.put(PLAIN, "g", "t", 0, offset(2))
    store.put(PLAIN, "g", "t", 1, offset(3))
    assert dump(store) == {("g", "t", 0): 2, ("g", "t", 1): 3}
    assert store.offset_count == store.count("g") == 2
    assert store.get("g", "t", 1) == offset(3)
    assert store.get("g", "t", 2) is store.get("g", "u", 0) is store.get("h", "t", 0) is None


def test_a_tombstone_removes_the_offset_and_empty_dictionaries(store):
    store.put(PLAIN, "g", "t", 0, offset(1))
    store.put(PLAIN, "g", "t", 1, offset(2))
    store.remove("g", "t", 0)
    store.remove("g", "t", 0)
    store.remove("g", "u", 0)
    store.remove("h", "t", 0)
    assert dump(store) == {("g", "t", 1): 2}
    store.remove("g", "t", 1)
    assert is_clean(store)


def test_a_pending_offset_is_not_materialised(store):
    store.put(7, "g", "t", 0, offset(1))
    assert dump(store) == {}
    assert store.offset_count == store.count("g") == 0
    assert store.has_pending("g", "t", 0)
    assert not store.has_pending("g", "t", 1)
    assert not store.has_pending("g", "u", 0)
    assert store.group_has_pending("g")
    assert not store.group_has_pending("h")
    assert store.pending(7, "g", "t", 0) == offset(1)
    assert store.pending(8, "g", "t", 0) is None
    assert list(store.groups()) == ["g"]


def test_a_commit_materialises_the_last_pending_offset_of_all_groups(store):
    store.put(7, "g", "t", 0, offset(1))
    store.put(7, "g", "t", 0, offset(2))
    store.put(7, "h", "t", 1, offset(3))
    store.complete(7, True)
    assert dump(store) == {("g", "t", 0): 2, ("h", "t", 1): 3}
    assert store.offset_count == 2
    assert not store.group_has_pending("g")
    assert store.pending(7, "g", "t", 0) is None


def test_an_abort_drops_pending_offsets(store):
    store.put(PLAIN, "g", "t", 0, offset(1))
    store.put(7, "g", "t", 0, offset(2))
    store.put(7, "g", "t", 1, offset(3))
    store.complete(7, False)
    assert dump(store) == {("g", "t", 0): 1}
    store.remove("g", "t", 0)
    assert is_clean(store)


def test_the_later_record_wins_not_the_later_marker(store):
    store.put(7, "g", "t", 0, offset(10))
    store.put(PLAIN, "g", "t", 0, offset(11))
    store.complete(7, True)
    assert dump(store) == {("g", "t", 0): 11}
    store.put(8, "g", "t", 0, offset(13))
    store.complete(8, True)
    assert dump(store) == {("g", "t", 0): 13}
    assert store.offset_count == 1


def test_several_producers_may_have_pending_offsets_of_one_partition(store):
    store.put(7, "g", "t", 0, offset(1))
    store.put(8, "g", "t", 0, offset(2))
    store.complete(8, True)
    assert dump(store) == {("g", "t", 0): 2}
    assert store.has_pending("g", "t", 0)
    store.complete(7, True)  # this transaction's record is older than the other one's
    assert dump(store) == {("g", "t", 0): 2}
    assert not store.group_has_pending("g")


def test_no_marker_restores_an_offset_removed_by_a_tombstone(store):
    store.put(7, "g", "t", 0, offset(1))
    store.put(8, "g", "t", 0, offset(2))
    store.put(8, "g", "t", 1, offset(3))
    store.remove("g", "t", 0)
    assert not store.has_pending("g", "t", 0)
    assert store.pending(7, "g", "t", 0) is None
    store.complete(7, True)
    store.complete(8, True)
    assert dump(store) == {("g", "t", 1): 3}


def test_a_commit_after_the_tombstone_is_pending_again(store):
    store.put(7, "g", "t", 0, offset(1))
    store.remove("g", "t", 0)
    assert is_clean(store)
    store.put(7, "g", "t", 0, offset(3))
    assert store.has_pending("g", "t", 0)
    store.complete(7, True)
    assert dump(store) == {("g", "t", 0): 3}


def test_a_marker_of_an_unknown_producer_is_ignored(store):
    store.put(7, "g", "t", 0, offset(1))
    store.complete(8, True)
    assert store.has_pending("g", "t", 0)


def test_groups_with_offsets_of_both_kinds_are_named_once(store):
    store.put(PLAIN, "g", "t", 0, offset(1))
    store.put(7, "g", "t", 0, offset(2))
    store.put(7, "h", "t", 0, offset(3))
    assert list(store.groups()) == ["g", "h"]


def test_groups_share_the_names_of_topics(store):
    names = ["".join(("to", "pic")) for _ in range(3)]
    store.put(PLAIN, "g", names[0], 0, offset(1))
    store.put(PLAIN, "h", names[1], 0, offset(2))
    store.put(7, "g", names[2], 0, offset(3))
    (one,) = store.topics("g")
    (two,) = store.topics("h")
    (three,) = store._pending[7]["g"]
    assert one is two is three
