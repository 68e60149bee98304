"""The state of one coordinator partition, replayed from its log by the engine's own state machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kcore.group.shard import GroupShard
from kcore.protocol import DecodeError
from kcore.protocol.records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from kcore.share.shard import ShareShard
from kcore.spark.decode.record_types import NO_KEY
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.state.completeness import Completeness
from kcore.spark.state.machines import group_machine, share_machine, transaction_machine
from kcore.spark.state.producers import Producers, marker_of
from kcore.transaction.shard import TransactionShard
from kcore_ext.group.offsets import OffsetDecoder

COORDINATOR_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
LOSSES = ("corrupt", "missing")
"""Kinds of `LogFault` that leave a gap in a log."""
MAX_FAULTS = 1_000
"""Maximum number of faults (`LogFault`) to store per partition. `fault_count` also counts further faults."""


class PartitionState:
    """The state of one partition of an internal topic as of the last applied row.

    Rows arrive in offset order, each offset at most once; the reader ensures that. A row that cannot be decoded, or
    that contradicts earlier rows, is recorded as a fault and changes nothing. So one bad record does not hide the other
    records.

    Args:
        topic: one of `COORDINATOR_TOPICS`.
        partition: the number of the partition.
        cleaned_to: the offset up to which compaction has run, if known.

    Attributes:
        groups: classic, consumer and share groups, and offsets, in the engine's machine.
        transactions: transactional ids, in the engine's machine.
        share: share partitions, in the engine's machine.
        producers: the producers that wrote to the partition.
        completeness: tracks compaction and gaps of the log.
        next_offset: the offset after the last row, -1 before the first.
        largest_timestamp_ms: the largest timestamp of a row; -1 before the first. The last row may have a smaller one.
        records: the number of applied records.
        unknown: the number of records of unknown types, which are skipped as in Kafka.
        faults: the records that were not applied, and unreadable parts.
        fault_count: the number of faults.
        topic_id: the id of the topic in hexadecimal digits; None if the source does not know it.
    """

    topic_id: str | None = None

    def __init__(self, topic: str, partition: int, cleaned_to: int | None = None) -> None:
        if topic not in COORDINATOR_TOPICS:
            raise ValueError(f"{topic} is not an internal topic with coordinator state")
        self.topic = topic
        self.partition = partition
        self.groups: GroupShard = group_machine()
        self.transactions: TransactionShard = transaction_machine()
        self.share: ShareShard = share_machine()
        self.producers = Producers()
        self.completeness = Completeness(topic, cleaned_to)
        self.next_offset = -1
        self.first_offset = -1
        self.last_timestamp_ms = -1
        self.largest_timestamp_ms = -1
        self.records = 0
        self.unknown = 0
        self.faults: list[LogFault] = []
        self.fault_count = 0
        self._decode_offset = OffsetDecoder().decode
        self._apply: Callable[[EventRow], bool] = {
            CONSUMER_OFFSETS: self._apply_group,
            TRANSACTION_STATE: self._apply_transaction,
            SHARE_GROUP_STATE: self._apply_share,
        }[topic]

    def apply(self, row: EventRow) -> None:
        """Applies one row of the log to the state."""
        offset = row.offset
        if self.first_offset < 0:
            self.first_offset = offset
        self.completeness.add(row, self.next_offset)
        self.next_offset = offset + 1
        self.last_timestamp_ms = row.timestamp_ms
        self.largest_timestamp_ms = max(self.largest_timestamp_ms, row.timestamp_ms)
        self.replay(row)

    def replay(self, row: EventRow) -> None:
        """Applies a row to the state. The caller tracks the position in the log."""
        offset = row.offset
        if row.producer_id >= 0:
            self.producers.replay(row)
        if row.batch_only:
            return
        if row.control:
            marker = marker_of(row)
            if marker is not None:
                self.groups.replay_marker(offset, row.producer_id, row.producer_epoch, marker[0])
            return
        if row.key is None:
            self.fault(offset, "decode", NO_KEY)
            return
        try:
            is_known = self._apply(row)
        except DecodeError as error:
            self.fault(offset, "decode", str(error))
        except (ValueError, AssertionError) as error:  # raised by a machine's checks: the record is invalid
            self.fault(offset, "replay", str(error))
        else:
            self.records += is_known
            self.unknown += not is_known

    def fault(self, offset: int, kind: str, detail: str) -> None:
        """Records that a part of the log could not be read or applied."""
        if kind in LOSSES and offset <= max(self.next_offset, 0):  # a loss after the cut does not affect the state
            self.completeness.lost = True
        self.fault_count += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(LogFault(self.topic, self.partition, offset, kind, detail))

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended."""
        unstable = self.producers.first_unstable_offset()
        return self.next_offset if unstable is None else unstable

    # ---- one topic each

    def _apply_group(self, row: EventRow) -> bool:
        producer_id = row.producer_id if row.transactional else -1
        key, value = row.key, row.value
        assert key is not None, "`replay` has refused a record without a key"
        typed: tuple[Any, Any] | None = self._decode_offset(key, value)
        if typed is None:
            typed = self.groups.decode(key, value)
        if typed is None:
            return False
        self.groups.replay(row.offset, producer_id, *typed)
        return True

    def _apply_transaction(self, row: EventRow) -> bool:
        typed = self.transactions.decode(row.key, row.value)
        if typed is None:
            return False
        self.transactions.replay(row.offset, -1, *typed)
        return True

    def _apply_share(self, row: EventRow) -> bool:
        typed = self.share.decode(row.key, row.value)
        if typed is None:
            return False
        self.share.replay(row.offset, -1, *typed)
        return True
