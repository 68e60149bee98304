"""Compiled records of consumer groups equal their reference records: they give the same batches, and the same group
after replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.group.consumer import records, reference_records
from kcore.group.consumer.assignment import CurrentAssignment
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.member import ClassicMetadata, MemberMetadata
from kcore.group.consumer.states import MemberState
from kcore.runtime.machine import Record
from kcore_ext.batch import BatchBuilder
from kcore_ext.group.consumer_records import ConsumerRecord, ConsumerRecords, bind_consumer_records
from tests.group.context import GroupContext
from tests.harness import WALL_MS

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=70)
MAYBE = st.none() | TEXT
TOPIC_IDS = st.binary(min_size=16, max_size=16)
PARTITIONS = st.integers(0, (1 << 31) - 1)
SHARES = st.sets(PARTITIONS, min_size=1, max_size=40).map(lambda some: tuple(sorted(some)))
EPOCHS_BY_PARTITION = st.dictionaries(PARTITIONS, st.integers(0, (1 << 31) - 1), max_size=40)


def of_topics(partitions: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[bytes, Any]]:
    """Returns a strategy for dicts of topic id to partitions. The topics have separate partition objects or share one
    object.
    """
    return st.dictionaries(TOPIC_IDS, partitions, max_size=3) | st.builds(
        dict.fromkeys, st.lists(TOPIC_IDS, max_size=3), partitions
    )


TARGETS = of_topics(SHARES)
OWNED = of_topics(EPOCHS_BY_PARTITION)
METADATA = st.builds(
    MemberMetadata,
    instance_id=MAYBE,
    rack_id=MAYBE,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=INT32,
    names=st.frozensets(TEXT, max_size=5),
    regex=TEXT,
    server_assignor=MAYBE,
)
CURRENT = st.builds(
    CurrentAssignment,
    member_epoch=INT32,
    previous_epoch=INT32,
    state=st.sampled_from(MemberState),
    assigned=OWNED,
    revoking=OWNED,
)
CASES: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "group_epoch": st.tuples(TEXT, INT32, INT64 | st.just(0)),
    "assignment_epoch": st.tuples(TEXT, INT32, INT64 | st.just(0)),
    "member_metadata": st.tuples(TEXT, TEXT, METADATA),
    "target_assignment": st.tuples(TEXT, TEXT, TARGETS),
    "current_assignment": st.tuples(TEXT, TEXT, CURRENT),
}
ANY = st.sampled_from(sorted(CASES)).flatmap(lambda name: CASES[name].map(lambda arguments: (name, arguments)))


def made(case: tuple[str, tuple[Any, ...]]) -> tuple[Record, Record]:
    """Returns the same record twice: from the compiled implementation and from the reference implementation."""
    name, arguments = case
    one: Callable[..., Record] = getattr(records, name)
    other: Callable[..., Record] = getattr(reference_records, name)
    return one(*arguments), other(*arguments)


def reference_batch(listed: list[Record]) -> bytes:
    builder = BatchBuilder(1 << 20, base_timestamp_ms=WALL_MS)
    for record in listed:
        assert record.value is not None
        assert builder.append(WALL_MS, record.key.encode_key(), record.value.encode_value(record.version))
    return bytes(builder.build())


@given(st.lists(ANY, min_size=1, max_size=6))
def test_a_block_writes_the_bytes_of_its_reference_records(cases: list[tuple[str, tuple[Any, ...]]]) -> None:
    """A block combines several compiled records. It writes the same bytes as the reference records, and `size_bytes` is
    at least their size.
    """
    pairs = [made(case) for case in cases]
    block = records.in_one([compiled for compiled, _ in pairs])
    references = [record for _, record in pairs]
    assert type(block) is ConsumerRecords
    assert (list(block), len(block)) == (references, len(references))
    assert [(record.key, record.value, record.version) for record in block.records] == references
    builder = BatchBuilder(1 << 20, base_timestamp_ms=WALL_MS)
    assert block.append_to(builder, WALL_MS)
    written = bytes(builder.build())
    assert written == reference_batch(references)
    assert len(written) - 61 <= block.size_bytes


@given(CASES["member_metadata"], TARGETS, OWNED, st.integers(1, 1 << 30), INT64)
def test_a_block_is_replayed_like_its_reference_records(
    member: tuple[str, str, MemberMetadata], target: Any, owned: Any, epoch: int, metadata_hash: int
) -> None:
    """One shard replays the records of a join as one block of compiled records, another shard as single reference
    records. Both then have the same group.
    """
    member_id, metadata = member[1], member[2]
    assigned = {topic_id: partitions for topic_id, partitions in owned.items() if partitions}
    current = CurrentAssignment(epoch, epoch - 1, MemberState.UNRELEASED, assigned)
    cases: list[tuple[str, tuple[Any, ...]]] = [
        ("member_metadata", ("g", member_id, metadata)),
        ("group_epoch", ("g", epoch, metadata_hash)),
        ("target_assignment", ("g", member_id, target)),
        ("assignment_epoch", ("g", epoch, WALL_MS)),
        ("current_assignment", ("g", member_id, current)),
        ("current_assignment", ("g", "somebody whose metadata stands behind", CurrentAssignment(epoch + 1))),
    ]
    pairs = [made(case) for case in cases]
    fast, slow = GroupContext(), GroupContext()
    fast.machine.replay_block(0, -1, records.in_one([compiled for compiled, _ in pairs]))
    for offset, (_, reference) in enumerate(pairs):
        slow.machine.replay(offset, -1, reference.key, reference.value)
    assert known_of(fast) == known_of(slow)


def known_of(context: GroupContext) -> Any:
    """Returns all state of the group that the replay of its records produces."""
    group = context.machine.groups["g"]
    assert isinstance(group, ConsumerGroup)
    members = [(m.member_id, m.metadata, m.current, m.settled_epoch) for m in group.members.values()]
    owners = {topic_id: group.owners.of(topic_id) for m in group.members.values() for topic_id in m.current.assigned}
    epochs = (group.group_epoch, group.metadata_hash, group.assignment_epoch, group.assigned_at_ms)
    return members, group.targets, owners, epochs, group.reconciled, group.state, group.subscriptions.names


@pytest.mark.parametrize(
    "unwritable",
    [
        records.member_metadata("g", "\ud800", MemberMetadata()),
        records.member_metadata("g", "m" * 40_000, MemberMetadata()),
        records.member_metadata("g", "m", MemberMetadata(rebalance_timeout_ms=1 << 31)),
        records.member_metadata("g", "m", MemberMetadata(server_assignor=5)),  # type: ignore[arg-type]
        records.target_assignment("g", "m", {b"short": (1,)}),
        records.target_assignment("g", "m", {bytes(16): (1 << 31,)}),
        records.target_assignment_tombstone("g", "m"),
    ],
)
def test_records_that_cannot_be_encoded_stay_a_list(unwritable: Record) -> None:
    """`in_one` returns the same list, instead of a block, if one of its records cannot be compiled. The codec later
    encodes the list, or raises the error of an invalid record.
    """
    listed = [records.group_epoch("g", 1, 0), unwritable]
    assert records.in_one(listed) is listed


def test_a_classic_member_has_a_codec_record() -> None:
    """The metadata record of a classic member is not compiled: the codec encodes the member's protocols."""
    metadata = MemberMetadata(classic=ClassicMetadata(10_000, (("range", b"\x00"),)))
    record = records.member_metadata("g", "m", metadata)
    assert record == reference_records.member_metadata("g", "m", metadata)
    assert type(record) is Record


def test_compiled_records_compare_by_value() -> None:
    """Compiled records equal reference records and each other."""
    one, other = records.group_epoch("g", 1, 0), reference_records.group_epoch("g", 1, 0)
    assert type(one) is ConsumerRecord
    assert (one == other, other == one, one == records.group_epoch("g", 1, 0)) == (True, True, True)
    assert (one == records.group_epoch("g", 2, 0), repr(one)) == (False, repr(other))


def test_every_record_type_must_be_bound() -> None:
    """`bind_consumer_records` refuses reference functions that do not cover all record types of consumer groups."""
    with pytest.raises(ValueError, match=r"not the record types of consumer groups: \[3\]"):
        bind_consumer_records(
            {3: reference_records.REFERENCE_RECORDS[3]}, lambda shard, group_id: None, lambda *_: None
        )
