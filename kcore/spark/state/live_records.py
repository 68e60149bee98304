"""The records that a partition's state is made of: what compaction would leave of its log, at any moment.

Replayed in their order they give the same state. So a data folder that holds nothing else is that moment's: see
`data_folder`. They are collected while a log is replayed, and held in its task's memory: as much as lives in it, twice
at most, whatever the length of its history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kcore.broker.data.producer_state import ProducerEntry
from kcore.protocol.records.base import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from kcore.spark.events.event import EventRow
from kcore.spark.state.group_records import OFFSET_COMMIT_TYPES
from kcore.spark.state.partition_state import PartitionState

SLACK: Final = 10_000
"""How many records that may be dead are held before it is worth while to look."""

TOMBSTONES: Final = 1_000
"""How many of the newest tombstones are kept. A cut may fall amidst the records of one decision: a member that loses
its assignment first, and itself with a later record, has none in between."""

SHARE_SNAPSHOT: Final = b"\x00\x00"
TYPE_BYTES: Final = 2


class LiveRecords:
    """Collects them for one partition.

    Args:
        state: the partition's state, to which each row was applied already when it comes here.
    """

    __slots__ = ("_faults", "_latest", "_limit", "_offsets", "_opened", "_shares", "_state", "_tombstones")

    def __init__(self, state: PartitionState) -> None:
        self._state = state
        self._faults = 0
        self._latest: dict[bytes, EventRow] = {}  # by key
        self._offsets: dict[int, EventRow] = {}  # committed offsets, by the offset of their records
        self._shares: dict[bytes, list[EventRow]] = {}  # a snapshot and what came behind it, by share partition
        self._opened: dict[int, EventRow] = {}  # by producer: where its open transaction began
        self._tombstones: dict[bytes, EventRow] = {}  # the newest, oldest first
        self._limit = SLACK

    def saw(self, row: EventRow) -> None:
        """A row that was applied. What the state refused is not part of it, and does not count here."""
        refused, self._faults = self._state.fault_count != self._faults, self._state.fault_count
        if row.control:
            self._opened.pop(row.producer_id, None)
            return
        key = row.key
        if row.batch_only or refused or key is None:
            return
        if row.transactional:
            self._opened.setdefault(row.producer_id, row)
        if self._state.topic == SHARE_GROUP_STATE:
            self._saw_share(key, row)
        elif self._state.topic == CONSUMER_OFFSETS and key[:TYPE_BYTES] in OFFSET_COMMIT_TYPES:
            if row.value is not None:
                self._offsets[row.offset] = row
            if len(self._offsets) >= self._limit:
                self._forget_dead()
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

    def _forget_dead(self) -> None:
        alive = self._living_offsets()
        self._offsets = {offset: row for offset, row in self._offsets.items() if offset in alive}
        self._limit = 2 * len(self._offsets) + SLACK

    def _living_offsets(self) -> set[int]:
        """Where the records stand that the machine has offsets of, committed and pending ones."""
        store = self._state.groups.offsets
        alive: set[int] = set()
        for group_id in store.groups():
            for partitions in store.topics(group_id).values():
                alive.update(offset.record_offset for offset in partitions.values())
            alive.update(offset.record_offset for *_, offset in store.pending_offsets(group_id))
        return alive

    def rows(self) -> Iterator[EventRow]:
        """The rows of a log that gives the state: producers first, then records in their order.

        Records of transactions that are over stand outside of any. An open transaction of which nothing is pending any
        more is opened by its first record, and a tombstone behind it takes that back.
        """
        self._forget_dead()
        pending = {row.producer_id for row in self._offsets.values() if self._is_pending(row)}
        newest: dict[int, EventRow] = {}
        yield from self._producers()
        for producer_id, first in sorted(self._opened.items()):
            if producer_id not in pending:
                newest[producer_id] = first
                yield first
                yield _plain(first._replace(value=None))
        living = [*self._latest.values(), *self._tombstones.values(), *self._offsets.values()]
        for of_share in self._shares.values():
            living += of_share
        for row in sorted(living, key=lambda row: row.offset):
            if self._is_pending(row):
                newest[row.producer_id] = row
                yield row
            else:
                yield _plain(row)
        yield from self._last_words(newest)

    def _last_words(self, newest: Mapping[int, EventRow]) -> Iterator[EventRow]:
        """A batch of nothing for producers of open transactions whose last record is dead: it said when they wrote."""
        for entry in self._state.producers.entries():
            row = newest.get(entry.producer_id)
            if row is not None and (row.timestamp_ms, row.last_sequence) != (
                entry.last_timestamp_ms,
                entry.last_sequence,
            ):
                yield self._nothing_of(entry)._replace(last_sequence=entry.last_sequence, batch_only=True)

    def _is_pending(self, row: EventRow) -> bool:
        opened = self._opened.get(row.producer_id) if row.transactional else None
        return opened is not None and row.offset >= opened.offset

    def _producers(self) -> Iterator[EventRow]:
        """What is known of each producer beside its open transaction: a batch of nothing, and a marker of nothing."""
        for entry in self._state.producers.entries():
            row = self._nothing_of(entry)
            ended = entry.coordinator_epoch >= 0
            if entry.last_sequence >= 0 or not ended:
                yield row._replace(last_sequence=entry.last_sequence, batch_only=True)
            if ended:
                epoch = entry.coordinator_epoch.to_bytes(4, "big", signed=True)
                yield row._replace(key=bytes(4), value=bytes(2) + epoch, control=True)

    def _nothing_of(self, entry: ProducerEntry) -> EventRow:
        """A row of a producer with nothing in it yet."""
        return EventRow(
            None,
            None,
            self._state.topic,
            self._state.partition,
            0,
            entry.last_timestamp_ms,
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
        )


def _plain(row: EventRow) -> EventRow:
    """A record that belongs to no producer and no transaction."""
    return row._replace(producer_id=-1, producer_epoch=-1, last_sequence=-1, transactional=False)
