"""Committed offsets as rows: loading the rows into a state gives the original offsets."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kcore.errors import KcoreError
from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from kcore.spark.events.arrow import to_batch
from kcore.spark.events.event import EventRow
from kcore.spark.state.batch_replay import rebuild_batches
from kcore.spark.state.checkpoint import checkpoint_batches, resume
from kcore.spark.state.offset_rows import committed_of, groups_without_state, load_committed, offset_batches
from kcore.spark.state.partition_state import PartitionState
from kcore.spark.state.rebuild import Rebuilt
from kcore.spark.state.table_schemas import COMMITTED_COLUMNS
from kcore.spark.state.tables import table_rows
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata
from tests.seeds import SEED

PLACE = (CONSUMER_OFFSETS, 3)


def random_offset(random: Random, record_offset: int) -> OffsetAndMetadata:
    expire_ms = random.choice((-1, random.randrange(2**62)))
    topic_id = random.choice((bytes(16), random.randbytes(16)))
    metadata = random.choice(("", "plain", "näh 😀", "x" * 5_000))
    epoch = random.choice((-1, 0, 2**31 - 1))
    return OffsetAndMetadata(record_offset, random.randrange(2**63), epoch, metadata, 17, expire_ms, topic_id)


def offsets_of(state: PartitionState) -> dict[str, Any]:
    store = state.groups.offsets
    return {group: {topic: dict(by) for topic, by in store.topics(group).items()} for group in store.groups()}


@pytest.mark.seeded
def test_loaded_offsets_equal_the_original_ones() -> None:
    """Covers sliced arrays, pending offsets between committed ones, and a group whose rows are not adjacent."""
    random = Random(SEED)
    before = PartitionState(*PLACE)
    for number in range(300):
        group, topic = f"group-{random.randrange(9)}", f"topic-{random.randrange(4)}"
        before.groups.get_or_create_group(group)
        producer_id = random.choice((-1, -1, 7))
        before.groups.offsets.put(producer_id, group, topic, random.randrange(40), random_offset(random, number))
    (batch,) = offset_batches(before)
    assert batch.column("pending").true_count > 10
    structs = list(committed_of([batch.slice(100), batch.slice(0, 100)]))

    after = PartitionState(*PLACE)
    load_committed(after, structs, ())
    assert offsets_of(after) == offsets_of(before)
    assert after.groups.offsets.offset_count == before.groups.offsets.offset_count
    assert after.groups.groups.keys() == offsets_of(before).keys()


def test_damaged_rows_are_refused() -> None:
    state = PartitionState(*PLACE)
    state.groups.get_or_create_group("g")
    state.groups.offsets.put(-1, "g", "t", 0, OffsetAndMetadata(0, 1, -1, "", 2, -1, bytes(range(16))))
    (struct,) = committed_of(offset_batches(state))
    for name, value, message in (
        ("group_id", None, "an offset has no group or no topic"),
        ("topic", None, "an offset has no group or no topic"),
        ("topic_id", "0f", "a topic id has 32 digits, not 2"),
        ("topic_id", "0" * 31 + "g", "a topic id has hexadecimal digits only"),
    ):
        arrays = dict(zip(COMMITTED_COLUMNS, struct.flatten(), strict=True))
        arrays[name] = pa.array([value], arrays[name].type)
        with pytest.raises(ValueError, match=message):
            load_committed(PartitionState(*PLACE), [pa.StructArray.from_arrays(arrays.values(), list(arrays))], ())


def tables_of(state: PartitionState) -> list[str]:
    """Returns the rows of a state, without the tables about the log."""
    return sorted(repr(row) for row in table_rows(state) if row[0] != "partitions")


def rebuilt_of(rows: list[tuple[bytes, bytes | None]]) -> Rebuilt:
    events = [EventRow(key, value, *PLACE, offset, 1_000 + offset) for offset, (key, value) in enumerate(rows)]
    return rebuild_batches(*PLACE, [to_batch(events)], with_records=True)


def test_a_group_that_was_deleted_before_its_offsets_stays_deleted() -> None:
    """The log contains an offset of a group and then the deletion of the group. A checkpoint stores the deletion first.

    A rebuild that continues from the checkpoint must not restore the group.
    """
    value = OffsetAndMetadata(-1, 5, -1, "", 1_000, -1, bytes(16)).encode_value(4)
    commits = {name: (CommitKey(name, "t", 0).encode_key(), value) for name in ("deleted", "again", "simple")}
    metadata = GroupMetadataValue(protocol_type="consumer", generation=3)
    groups = {name: GroupMetadataKey(group=name).encode_key() for name in ("deleted", "again")}
    log = [
        *((groups[name], metadata.encode_value(3)) for name in groups),
        *commits.values(),
        *((groups[name], None) for name in groups),
        commits["again"],
    ]
    whole = rebuilt_of(log)
    assert whole.live is not None
    assert groups_without_state(whole.state) == ["deleted"]
    assert sorted(whole.state.groups.groups) == ["again", "simple"]

    checkpoint = pa.Table.from_batches(list(checkpoint_batches(whole.live, whole.cut)))
    resumed = resume(*PLACE, [checkpoint], None)
    rows = tables_of(resumed.state)
    assert rows == tables_of(whole.state)
    assert len(rows) == 2 + 3


def test_a_checkpoint_of_another_version_is_refused() -> None:
    value = OffsetAndMetadata(-1, 5, -1, "", 1_000, -1, bytes(16)).encode_value(4)
    whole = rebuilt_of([(CommitKey("g", "t", 0).encode_key(), value)])
    assert whole.live is not None
    table = pa.Table.from_batches(list(checkpoint_batches(whole.live, whole.cut)))
    head = table.column("value")[0].as_py().replace(b'"version": 3', b'"version": 1')
    earlier = table.set_column(4, "value", pa.array([head, None], pa.binary())).drop_columns(["committed"])
    with pytest.raises(KcoreError, match="has version 1, not 3: rebuild without --since"):
        resume(*PLACE, [earlier], None)
