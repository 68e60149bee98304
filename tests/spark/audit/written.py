"""Logs that tests write record by record, to plant faults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kcore.protocol.consumer_protocol import Assignment, TopicPartition
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kcore.protocol.records.consumer_group_current_member_assignment import TopicPartitions as Owned
from kcore.protocol.records.consumer_group_member_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from kcore.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.protocol.records.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from kcore.spark.audit.across import compare, sort_key
from kcore.spark.audit.finding import AuditObservation, Evidence, Finding
from kcore.spark.audit.logs import Logs
from kcore.spark.audit.partition import examine
from kcore.spark.events.event import EventRow, LogFault
from kcore.transaction.states import TransactionStatus

START_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


class Written:
    """A log that a test writes. The timestamp of each record is one millisecond after that of the previous record.

    Args:
        topic: the topic of the log.
        partition: the partition number.
        clock: a log whose clock this log shares; None: a separate clock.
    """

    def __init__(self, topic: str = CONSUMER_OFFSETS, partition: int = 0, clock: Written | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.rows: list[EventRow | LogFault] = []
        self.next_offset = 0
        self._time = [START_MS] if clock is None else clock._time

    def put(
        self, key: Any, value: Any = None, version: int = 0, *, producer: tuple[int, int] | None = None
    ) -> Evidence:
        """Writes a record. With `producer`, the record belongs to a transaction. Returns the position of the record."""
        data = None if value is None else value if isinstance(value, bytes) else value.encode_value(version)
        return self.raw(key.encode_key(), data, producer=producer, transactional=producer is not None)

    def raw(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        producer: tuple[int, int] | None = None,
        transactional: bool = False,
        control: bool = False,
    ) -> Evidence:
        """Writes a record whose key and value are given as bytes."""
        writer = (-1, -1) if producer is None else producer
        row = EventRow(
            key, value, self.topic, self.partition, self.next_offset, self._time[0], producer_id=writer[0],
            producer_epoch=writer[1], transactional=transactional, control=control,
        )  # fmt: skip
        return self.row(row)

    def row(self, row: EventRow) -> Evidence:
        """Writes a row unchanged."""
        self.rows.append(row)
        self.next_offset = row.offset + 1
        self._time[0] += 1
        return Evidence(row.topic, row.partition, row.offset, row.timestamp_ms)

    def mark(self, producer: tuple[int, int], commit: bool, coordinator_epoch: int = 0) -> Evidence:
        """Writes a transaction marker."""
        key, value = bytes([0, 0, 0, commit]), b"\0\0" + coordinator_epoch.to_bytes(4, "big", signed=True)
        return self.raw(key, value, producer=producer, transactional=True, control=True)

    def wait(self, ms: int) -> None:
        """Advances the time."""
        self._time[0] += ms

    # ---- records of coordinators

    def commit(
        self, group: str, offset: int, topic: str = "t", partition: int = 0, producer: tuple[int, int] | None = None
    ) -> Evidence:
        """Writes a committed offset."""
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=self._time[0])
        return self.put(key, value, 4, producer=producer)

    def generation(self, group: str, generation: int, **members: Iterable[int]) -> Evidence:
        """Writes a generation of a classic group. `members` maps each member to its partitions of topic `t`."""
        found = [
            MemberMetadata(
                member_id=name,
                assignment=Assignment(
                    assigned_partitions=[TopicPartition(topic="t", partitions=list(parts))]
                ).encode_versioned(0),
            )
            for name, parts in members.items()
        ]
        value = GroupMetadataValue(
            protocol_type="consumer", generation=generation, protocol="range", leader=next(iter(members), None),
            members=found,
        )  # fmt: skip
        return self.put(GroupMetadataKey(group=group), value, 3)

    def member(self, group: str, member: str) -> Evidence:
        """Writes a member of a consumer group."""
        key = ConsumerGroupMemberMetadataKey(group_id=group, member_id=member)
        return self.put(key, ConsumerGroupMemberMetadataValue(client_id="c", client_host="h"))

    def group_epoch(self, group: str, epoch: int) -> Evidence:
        """Writes a consumer group's epoch."""
        return self.put(ConsumerGroupMetadataKey(group_id=group), ConsumerGroupMetadataValue(epoch=epoch))

    def current(
        self, group: str, member: str, epoch: int, owned: Iterable[int] = (), revoking: Iterable[int] = ()
    ) -> Evidence:
        """Writes the current assignment of a member of a consumer group, with partitions of one topic."""
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch,
            previous_member_epoch=epoch,
            assigned_partitions=[Owned(topic_id=TOPIC_ID, partitions=list(owned))],
            partitions_pending_revocation=[Owned(topic_id=TOPIC_ID, partitions=list(revoking))],
        )
        return self.put(ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member), value)

    def transaction(
        self,
        transactional_id: str,
        state: TransactionStatus,
        producer: tuple[int, int],
        places: Iterable[tuple[str, int]] = (),
        *,
        started_ms: int = -1,
        timeout_ms: int = 60_000,
        next_producer_id: int = -1,
    ) -> Evidence:
        """Writes a transition of a transactional id."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in places:
            by_topic.setdefault(topic, []).append(partition)
        value = TransactionLogValue(
            producer_id=producer[0],
            producer_epoch=producer[1],
            next_producer_id=next_producer_id,
            previous_producer_id=producer[0],
            transaction_timeout_ms=timeout_ms,
            transaction_status=state,
            transaction_partitions=None
            if state is TransactionStatus.EMPTY
            else [PartitionsSchema(topic=topic, partition_ids=parts) for topic, parts in by_topic.items()],
            transaction_last_update_timestamp_ms=self._time[0],
            transaction_start_timestamp_ms=started_ms,
        )
        return self.put(TransactionLogKey(transactional_id=transactional_id), value, 1)

    @property
    def now_ms(self) -> int:
        """Returns the current time."""
        return self._time[0]


def found(*logs: Written, cleaned_to: int | None = None, **at_end: Any) -> list[Finding]:
    """Returns the findings of the audit without Spark, within each log and between the logs."""
    results = [one for log in logs for one in examine(log.topic, log.partition, log.rows, cleaned_to=cleaned_to)]
    observations = [one for one in results if isinstance(one, AuditObservation)]
    findings = [one for one in results if isinstance(one, Finding)]
    return [*findings, *compare(sorted(observations, key=sort_key), Logs.of(observations, **at_end))]


def transaction_log(clock: Written | None = None) -> Written:
    """Returns a log of transactions, as one partition."""
    return Written(TRANSACTION_STATE, clock=clock)


def share_log() -> Written:
    """Returns a log of share partition state."""
    return Written(SHARE_GROUP_STATE)
