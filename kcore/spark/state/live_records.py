"""The records that make up a partition's state: the records that compaction would keep.

A replay of these records in order gives the same state. `data_folder` writes them to a new data folder, `checkpoint` to
a checkpoint. The task that replays a log collects them in memory. It stores at most about twice the live records,
however long the log is. Records of committed offsets are not collected: they are encoded again from the state, in the
versions that the engine writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa

from kcore.broker.data.producer_state import ProducerEntry
from kcore.protocol.records.base import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from kcore.spark.events.arrow import BATCH_ROWS, filled_array
from kcore.spark.events.event import EventRow
from kcore.spark.state.group_records import OFFSET_COMMIT_TYPES
from kcore.spark.state.partition_state import PartitionState
from kcore_ext.spark.offset_columns import OffsetRecords

SLACK: Final = 10_000
"""Number of transactional offset records, in addition to twice the live ones, that trigger a cleanup.

The cleanup removes the records of ended transactions.
"""

TOMBSTONES: Final = 1_000
"""Maximum number of tombstones that `LiveRecords` keeps. Beyond it, a new tombstone replaces the oldest one.

A replay of the live records may need the last tombstones. For example, the coordinator removes a member with several
records: first a tombstone for its assignment, later a tombstone for the member. A rebuild may stop between the two. The
member is then live, and a replay removes its assignment only if it contains the first tombstone.
"""

COMMITTED: Final = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64()), ("timestamp_ms", pa.int64())]
)
"""The columns of encoded committed offsets. The timestamp is the time of the commit."""

SHARE_SNAPSHOT: Final = b"\x00\x00"
TYPE_BYTES: Final = 2


class LiveRecords:
    """The collector of the live records of one partition, which are the records that compaction would keep.

    Committed offsets are not collected, because `state` contains them.

    Args:
        state: the partition's state. The caller applies each row to this state before it calls `add`.

    Attributes:
        state: the partition's state.
    """

    __slots__ = ("_faults", "_latest", "_limit", "_opened", "_pending", "_shares", "_tombstones", "state")

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self._faults = 0
        self._latest: dict[bytes, EventRow] = {}  # by key
        self._pending: dict[int, EventRow] = {}  # offsets of transactions, by the offset of their records
        self._shares: dict[bytes, list[EventRow]] = {}  # a snapshot and later updates, by share partition
        self._opened: dict[int, EventRow] = {}  # by producer: the start of its open transaction
        self._tombstones: dict[bytes, EventRow] = {}  # the newest tombstones, oldest first
        self._limit = SLACK

    def add(self, row: EventRow) -> None:
        """Collects a row that was applied. Rows that the state refused are ignored."""
        refused, self._faults = self.state.fault_count != self._faults, self.state.fault_count
        if row.control:
            self._opened.pop(row.producer_id, None)
            return
        key = row.key
        if row.batch_only or refused or key is None:
            return
        if row.transactional:
            self._opened.setdefault(row.producer_id, row)
        if self.state.topic == SHARE_GROUP_STATE:
            self._saw_share(key, row)
        elif self.state.topic == CONSUMER_OFFSETS and key[:TYPE_BYTES] in OFFSET_COMMIT_TYPES:
            if row.value is not None and row.transactional:
                self._pending[row.offset] = row
            if len(self._pending) >= self._limit:
                self._forget_decided()
        elif row.value is None:
            self._latest.pop(key, None)
            self._tombstones.pop(key, None)
            self._tombstones[key] = row
            if len(self._tombstones) > TOMBSTONES:
                del self._tombstones[next(iter(self._tombstones))]
        else:
            self._tombstones.pop(key, None)
            self._latest[key] = row

    def _saw_share(self, key: bytes, row: EventRow) -> None:
        share = key[TYPE_BYTES:]
        if key[:TYPE_BYTES] != SHARE_SNAPSHOT:
            self._shares.setdefault(share, []).append(row)
        elif row.value is None:
            self._shares.pop(share, None)
        else:
            self._shares[share] = [row]

    def _forget_decided(self) -> None:
        """Removes offsets of ended transactions, and offsets that the same transaction replaced later."""
        store = self.state.groups.offsets
        pending = {one.record_offset for group_id in store.groups() for *_, one in store.pending_offsets(group_id)}
        self._pending = {offset: row for offset, row in self._pending.items() if offset in pending}
        self._limit = 2 * len(self._pending) + SLACK

    def committed(self) -> Iterator[pa.RecordBatch]:
        """Yields the records of the committed offsets in the state, in the columns of `COMMITTED` and in any order."""
        store, records = self.state.groups.offsets, OffsetRecords()
        for group_id in store.groups():
            for topic, partitions in store.topics(group_id).items():
                records.add_all(group_id, topic, partitions)
                if len(records) >= BATCH_ROWS:
                    yield _committed_batch(records)
        if len(records):
            yield _committed_batch(records)

    def rows(self) -> Iterator[EventRow]:
        """Yields the rows of a new log whose replay gives the state: first the producers, then the records in order.

        Records of ended transactions become non-transactional. If an open transaction has no pending offsets, the
        method yields the first record of the transaction, so that the replay opens the transaction. It then yields a
        tombstone that removes this record's key.
        """
        self._forget_decided()
        pending = {row.producer_id for row in self._pending.values()}
        newest: dict[int, EventRow] = {}
        yield from self._producers()
        for producer_id, first in sorted(self._opened.items()):
            if producer_id not in pending:
                newest[producer_id] = first
                yield first
                yield _without_producer(first._replace(value=None))
        for row in _by_offset([*self._collected(), *self._committed_rows()]):
            if row.transactional:
                newest[row.producer_id] = row
            yield row
        yield from self._final_batches(newest)

    def other_rows(self) -> Iterator[EventRow]:
        """Yields the live records except committed offsets, by offset. Records of open transactions keep their
        producers.
        """
        self._forget_decided()
        return iter(_by_offset(self._collected()))

    def _collected(self) -> Iterator[EventRow]:
        yield from self._pending.values()
        for rows in (self._latest.values(), self._tombstones.values(), *self._shares.values()):
            for row in rows:
                yield row if self._is_pending(row) else _without_producer(row)

    def _committed_rows(self) -> Iterator[EventRow]:
        topic, partition = self.state.topic, self.state.partition
        for batch in self.committed():
            for key, value, offset, timestamp_ms in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield EventRow(key, value, topic, partition, offset, timestamp_ms)

    def restore_open_transactions(self) -> None:
        """Restores the open transactions after a resume from a checkpoint, from the producers in the state.

        The checkpoint lacks the first record of a transaction if a later record superseded this record.
        """
        opened = self._opened
        self._opened = {}
        self._faults = self.state.fault_count
        for entry in self.state.producers.entries():
            if entry.txn_first_offset >= 0:
                row = opened.get(entry.producer_id, self._empty_row(entry))
                self._opened[entry.producer_id] = row._replace(offset=entry.txn_first_offset)

    def _final_batches(self, newest: Mapping[int, EventRow]) -> Iterator[EventRow]:
        """Yields an empty batch for each producer whose last record in its open transaction was superseded.

        The batch keeps the time and sequence number of that record.
        """
        for entry in self.state.producers.entries():
            row = newest.get(entry.producer_id)
            if row is not None and (row.timestamp_ms, row.last_sequence) != (
                entry.last_timestamp_ms,
                entry.last_sequence,
            ):
                yield self._empty_row(entry)._replace(last_sequence=entry.last_sequence, batch_only=True)

    def _is_pending(self, row: EventRow) -> bool:
        opened = self._opened.get(row.producer_id) if row.transactional else None
        return opened is not None and row.offset >= opened.offset

    def _producers(self) -> Iterator[EventRow]:
        """Yields rows that restore each producer's state except its open transaction.

        These rows are an empty batch, and a marker that ends no transaction.
        """
        for entry in self.state.producers.entries():
            row = self._empty_row(entry)
            ended = entry.coordinator_epoch >= 0
            if entry.last_sequence >= 0 or not ended:
                yield row._replace(last_sequence=entry.last_sequence, batch_only=True)
            if ended:
                epoch = entry.coordinator_epoch.to_bytes(4, "big", signed=True)
                yield row._replace(key=bytes(4), value=bytes(2) + epoch, control=True)

    def _empty_row(self, entry: ProducerEntry) -> EventRow:
        """Returns a row without key and value, with the id, epoch and last timestamp of a producer."""
        return EventRow(
            None,
            None,
            self.state.topic,
            self.state.partition,
            0,
            entry.last_timestamp_ms,
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
        )


def _without_producer(row: EventRow) -> EventRow:
    """Returns a record without producer and transaction."""
    return row._replace(producer_id=-1, producer_epoch=-1, last_sequence=-1, transactional=False)


def _by_offset(rows: Iterable[EventRow]) -> list[EventRow]:
    return sorted(rows, key=lambda row: row.offset)


def _committed_batch(records: OffsetRecords) -> pa.RecordBatch:
    arrays = [filled_array(field.type, column) for field, column in zip(COMMITTED, records.take(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=COMMITTED)
