"""Blocks of offsets in transactions: the store must have the same contents as after adding the offsets one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.group.offsets.store import OffsetStore
from kcore.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition
from kcore.runtime.machine import Record
from kcore_ext.group.offset_block import OffsetBlock
from tests.reference import offsets as reference

GROUPS = st.sampled_from(["g", "h"])
PRODUCERS = st.sampled_from([0, 7, 1 << 40])
COMMITS = st.lists(st.tuples(st.sampled_from(["t", "u"]), st.lists(st.integers(0, 2), max_size=4)), max_size=3)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), PRODUCERS, GROUPS, COMMITS),
        st.tuples(st.just("plain"), st.just(-1), GROUPS, COMMITS),
        st.tuples(st.just("end"), PRODUCERS, st.booleans()),
        st.tuples(st.just("remove"), GROUPS, st.sampled_from(["t", "u"]), st.integers(0, 2)),
    ),
    max_size=25,
)


def block_of(group_id: str, topics: list[tuple[str, list[int]]]) -> OffsetBlock[Record]:
    block = OffsetBlock(group_id, 1_000, -1, 4096, Record)
    for topic, indexes in topics:
        requested = [TxnOffsetCommitRequestPartition(partition_index=i, committed_offset=i) for i in indexes]
        block.add(topic, bytes(16), requested, None, dict, {})
    return block


def dump(store: OffsetStore) -> Any:
    """Returns all contents of a store. Each committed offset is represented by the offset of its record."""

    def of(groups: Any) -> Any:
        return {
            group: {
                topic: {partition: offset.record_offset for partition, offset in partitions.items()}
                for topic, partitions in topics.items()
            }
            for group, topics in groups.items()
        }

    pending = {producer_id: of(groups) for producer_id, groups in store._pending.items()}
    return of(store._groups), pending, store._open, store.offset_count


@given(steps)
def test_blocks_and_single_offsets_give_the_same_store(script: list[Any]) -> None:
    fast, slow = OffsetStore(), OffsetStore()
    offset = 0
    for step, *rest in script:
        if step == "end":
            fast.complete(*rest)
            reference.complete(slow, *rest)
        elif step == "remove":
            fast.remove(*rest)
            slow.remove(*rest)
        else:
            producer_id, group_id, topics = rest
            block, records = block_of(group_id, topics), block_of(group_id, topics)
            if step == "hold":
                fast.put_pending(producer_id, group_id, offset, block)
            else:
                reference.put_block(fast, group_id, offset, block)
            for place, record in enumerate(records, offset):
                slow.put(producer_id, group_id, record.key.topic, record.key.partition, record.value.place(place))
            offset += len(block)
        assert dump(fast) == dump(slow)


def test_a_block_is_stored_once() -> None:
    store = OffsetStore()
    block = block_of("g", [("t", [0])])
    store.put_pending(7, "g", 5, block)
    with pytest.raises(ValueError, match="has a record at 5 already"):
        store.put_pending(7, "g", 6, block)


def test_an_empty_block_changes_nothing() -> None:
    store = OffsetStore()
    store.put_pending(7, "g", 5, block_of("g", []))
    store.complete(7, True)
    assert dump(store) == ({}, {}, {}, 0)
