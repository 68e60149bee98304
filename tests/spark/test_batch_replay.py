"""The rebuild from record batches equals the rebuild from rows, for any log and any end offset or time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.protocol.records.share_group_metadata import ShareGroupMetadataKey, ShareGroupMetadataValue
from kcore.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from kcore.spark.events.arrow import EVENT_SCHEMA, from_batch, to_batch
from kcore.spark.events.event import EventRow
from kcore.spark.events.segments import find_partitions, read_rows
from kcore.spark.state.batch_replay import BatchReplay, rebuild_batches
from kcore.spark.state.offset_rows import table_schema
from kcore.spark.state.rebuild import AsOf, Rebuilt, rebuild
from kcore.spark.state.table_batches import state_tables
from kcore.spark.state.tables import table_rows
from tests.seeds import SEED
from tests.spark import oracle

LOGS = 60
EVENTS = 400
WALL_MS = 1_700_000_000_000


def offset_key(chance: random.Random, version: int, width: int) -> bytes:
    key = OffsetCommitKey(
        group=f"g{chance.randrange(width)}",
        topic=f"t{chance.randrange(width)}",
        partition=chance.choice([0, 1, 300, -1][:width]),
    )
    return version.to_bytes(2, "big") + key.encode_key()[2:]


def offset_value(chance: random.Random) -> bytes:
    version = chance.randrange(5)
    value = OffsetCommitValue(
        offset=chance.randrange(1_000),
        metadata=chance.choice(["", "plain", "größe", "x" * 200]),
        commit_timestamp=WALL_MS + chance.randrange(1_000),
    )
    return value.encode_value(version)


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Returns damaged bytes: truncated, extended, of another version or type, or with invalid UTF-8."""
    at = chance.randrange(len(data))
    return chance.choice([data[:at], data + b"\0", b"\x00\x07" + data[2:], data[:at] + b"\xff" + data[at + 1 :]])


def record(chance: random.Random, topic: str, width: int) -> tuple[bytes | None, bytes | None]:
    """Returns the key and the value of a record of any kind, mostly of a committed offset of one of a few groups."""
    kind = chance.random()
    if topic == TRANSACTION_STATE or kind < 0.03:
        key: Any = TransactionLogKey(transactional_id=f"tx{chance.randrange(3)}")
        body: Any = TransactionLogValue(producer_id=chance.randrange(5), transaction_status=chance.choice([0, 4, 5]))
        pair = key.encode_key(), body.encode_value(0)
    elif kind < 0.1:
        body = GroupMetadataValue(protocol_type="consumer", generation=chance.randrange(9), protocol=None, leader=None)
        pair = GroupMetadataKey(group=f"g{chance.randrange(4)}").encode_key(), body.encode_value(3)
    elif kind < 0.15:
        body = ShareGroupMetadataValue(epoch=chance.randrange(9))
        pair = ShareGroupMetadataKey(group_id=f"g{chance.randrange(6)}").encode_key(), body.encode_value(0)
    else:
        pair = offset_key(chance, chance.randrange(2), width), offset_value(chance)
    key, value = pair
    what = chance.random()
    if what < 0.05:
        return damaged(chance, key), value
    if what < 0.1:
        return key, damaged(chance, value)
    if what < 0.2:
        return key, None
    return (None if what > 0.98 else key), value


def random_log(chance: random.Random, topic: str) -> list[EventRow]:
    """Returns a random log with transactions, markers, empty batches, gaps, repeated offsets, and decreasing
    timestamps.
    """
    rows: list[EventRow] = []
    offset = chance.choice([0, 0, 7])
    width = chance.choice([1, 2, 4])
    for _ in range(chance.randrange(EVENTS)):
        key, value = record(chance, topic, width)
        timestamp_ms = -1 if chance.random() < 0.02 else WALL_MS + 10 * len(rows) - chance.randrange(50)
        row = EventRow(key, value, topic, 3, offset, timestamp_ms)
        what = chance.random()
        if what < 0.2:
            row = row._replace(producer_id=chance.randrange(3), producer_epoch=chance.randrange(2))
            row = row._replace(transactional=what < 0.15, last_sequence=chance.choice([-1, 5]))
            if what < 0.05:
                marker = chance.choice([b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\2", b"\0"])
                row = row._replace(key=marker, value=b"\0\0\0\0\0\x07", control=True)
            elif what < 0.07:
                row = row._replace(key=None, value=None, batch_only=True)
        rows.append(row)
        offset += chance.choice([1] * 20 + [2, 9, 0, -3])
    if chance.random() < 0.5:  # as after a compaction: no key occurs twice
        newest = {row.key: row for row in rows}
        rows = [row for row in rows if newest[row.key] is row]
    return rows


def in_batches(chance: random.Random, rows: list[EventRow]) -> Iterator[pa.RecordBatch]:
    """Splits rows into batches of any size. Some of the batches are slices of larger ones."""
    at = 0
    while at < len(rows):
        size = chance.choice([1, 7, 50, 1_000])
        before = chance.randrange(3)
        batch = to_batch(rows[max(0, at - before) : at + size])
        yield batch.slice(min(at, before))
        at += size


def all_of(result: Rebuilt) -> tuple[Any, ...]:
    """Returns the whole result of a rebuild as a tuple, including the order of the table rows, so that results can be
    compared.
    """
    state, completeness = result.state, result.state.completeness
    facts = (state.first_offset, state.next_offset, state.last_timestamp_ms, state.records, state.unknown)
    offsets = state.groups.offsets.offset_count, state.groups.offsets.topics("g0")
    log = completeness.first_offset, completeness.gaps, completeness.cleaned_to
    lost = completeness.last_gap, completeness.lost
    return result.cut, facts, log, lost, offsets, state.fault_count, state.faults, list(table_rows(state, result.cut))


def in_columns(result: Rebuilt) -> dict[str, list[dict[str, Any]]]:
    """Returns the tables in the form in which tasks write them."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for table, batch in state_tables(result.state, result.cut):
        assert batch.schema == table_schema(table)
        tables.setdefault(table, []).extend(batch.to_pylist())
    return tables


def in_rows(result: Rebuilt) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows by table. Columns that a row does not set are None."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for table, row in table_rows(result.state, result.cut):
        named = {name: row.get(name) for name in table_schema(table).names}
        named = {name: list(value.items()) if isinstance(value, dict) else value for name, value in named.items()}
        tables.setdefault(table, []).append(named)
    return tables


@pytest.mark.seeded
@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE])
def test_batches_and_rows_give_the_same_state(topic: str) -> None:
    """Compares random logs with all events, whole or up to an offset or time."""
    seed = SEED
    print("seed", seed)
    chance = random.Random(seed)
    plain = 0
    for _ in range(LOGS):
        rows = random_log(chance, topic)
        end = rows[-1].offset + 2 if rows else 1
        for as_of in (AsOf(), AsOf(chance.randrange(end)), AsOf(None, WALL_MS + chance.randrange(10 * EVENTS))):
            known = {"cleaned_to": chance.choice([None, None, chance.randrange(end)])}
            ends = {"active_offset": chance.choice([None, chance.randrange(end)])}
            expected = rebuild(topic, 3, iter(rows), as_of, **known, **ends)
            found = rebuild_batches(topic, 3, in_batches(chance, rows), as_of, **known, **ends)
            assert all_of(found) == all_of(expected)
            assert in_columns(found) == in_rows(expected)
            plain += found.state.groups.offsets.offset_count
    assert plain or topic != CONSUMER_OFFSETS


@pytest.mark.seeded
@pytest.mark.parametrize("moment", oracle.SOME_MOMENTS)
def test_batches_and_rows_of_a_real_broker_give_the_same_state(kafka_logs: Path, moment: str) -> None:
    """Compares both kinds of replay at the ends of the logs and at random earlier offsets."""
    seed = SEED
    print("seed", seed)
    chance = random.Random(seed)
    for part in find_partitions(kafka_logs / moment):
        rows = list(read_rows(part))
        for as_of in (AsOf(), AsOf(chance.randrange(rows[-1].offset + 1))):
            expected = rebuild(*part[:2], rows, as_of, active_offset=part.active_offset)
            found = rebuild_batches(*part[:2], [to_batch(rows)], as_of, active_offset=part.active_offset)
            assert all_of(found) == all_of(expected)
            assert in_columns(found).get("offsets") == in_rows(expected).get("offsets")


def test_missing_columns_have_defaults() -> None:
    """Spark's own Kafka source yields batches without the columns of batch headers. A replay of such batches gives the
    same result. So does a replay of columns with Arrow types for large values, such as large_binary.
    """
    chance = random.Random(5)
    rows = [row for row in random_log(chance, CONSUMER_OFFSETS) if row.producer_id < 0]
    assert rows
    batch = to_batch(rows).select(["key", "value", "offset", "timestamp"])
    large = [pa.large_binary(), pa.large_binary(), pa.int64(), pa.timestamp("ms", "UTC")]
    arrays = [column.cast(kind) for column, kind in zip(batch.columns, large, strict=True)]
    replay = BatchReplay(CONSUMER_OFFSETS, 3)
    replay.add(pa.RecordBatch.from_arrays(arrays, names=batch.schema.names))
    assert all_of(replay.end()) == all_of(rebuild(CONSUMER_OFFSETS, 3, rows))


def test_an_event_without_an_offset_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"v"], "offset": pa.array([None], pa.int64())})
    with pytest.raises(ValueError, match="without an offset"):
        BatchReplay(CONSUMER_OFFSETS, 0).add(batch)


def test_rows_of_a_batch_are_returned_unchanged() -> None:
    """The conversion to Arrow keeps the rows of the test, except timestamps that Arrow cannot represent."""
    rows = random_log(random.Random(9), CONSUMER_OFFSETS)
    batch = to_batch(rows)
    assert batch.schema == EVENT_SCHEMA
    assert list(from_batch(batch)) == rows
