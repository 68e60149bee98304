# Made by tools/generate_sync.py from _async/transactions.py: change that file, then run the program.
"""Transactions: records and committed offsets that become visible together, or not at all (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Protocol

from kcore.client.consumer_coordinator.ownership import NOT_IN_GROUP
from kcore.client.partitioner import partition_of
from kcore.errors import (
    CommitFailedError,
    KafkaError,
    KcoreError,
    MessageTooLargeError,
    ProducerFencedError,
)
from kcore.node._sync.backend import caller
from kcore.node._sync.transactional_producer import FENCED, Row, TransactionalProducer
from kcore.node._sync.turns import Turn
from kcore.node.arguments import check_offsets, check_partition_number, check_text, check_texts
from kcore.node.blocks import tracked_exit
from kcore.node.interceptors import UNKNOWN, ProducerInterceptor, ProducerRecord, intercept, notify
from kcore.node.requests import error_about, record_size
from kcore.node.types import (
    GroupMetadata,
    HeaderList,
    Offsets,
    Partition,
    RecordMetadata,
    TopicPartition,
    to_bytes,
    to_timestamp_ms,
)
from kcore.protocol.compression import CompressionType

FLUSH_BYTES = 512 << 10
"""Number of buffered bytes at which a transaction sends its records."""


class HasGroupMetadata(Protocol):
    """A group, member or consumer, whose offsets a transaction commits."""

    @property
    def group_metadata(self) -> tuple[str, str, int, str | None]:
        """Group id, member id, generation or member epoch, and instance id."""
        ...


def metadata_of(
    group: HasGroupMetadata | tuple[str, str, int, str | None] | str, partitions: Iterable[Partition]
) -> GroupMetadata:
    """Returns the group metadata with which offsets of the partitions are committed.

    Raises:
        CommitFailedError: the member must not commit these offsets. It is not in its group, or it was removed from the
            group or gave a partition up since its last poll or event.
        ConfigError: a text of `group` is too long.
        TypeError: `group` has another type.
    """
    if isinstance(group, str):
        check_text("the id of a group", group)
        return GroupMetadata(group)
    metadata_for = getattr(group, "_metadata_for", None)
    if metadata_for is not None:
        member_metadata: GroupMetadata = metadata_for(partitions)
        return member_metadata
    row = group if isinstance(group, tuple) else getattr(group, "group_metadata", None)
    if row is None:
        raise TypeError(
            f"a {type(group).__name__} has no group; valid: a consumer, a member, its group_metadata, a group or its id"
        )
    metadata = GroupMetadata(*row)
    check_texts(group_id=metadata.group_id, member_id=metadata.member_id, instance_id=metadata.instance_id)
    if metadata.member_id and metadata.epoch < 0:  # the coordinator would not check the member
        raise CommitFailedError(NOT_IN_GROUP)
    return metadata


class Transaction:
    """One transaction, as a context manager: commits at the end of the block, and aborts if the block raises."""

    def __init__(
        self,
        producer: TransactionalProducer,
        compression: CompressionType,
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> None:
        self._producer = producer
        self._compression = compression
        self._interceptors = interceptors
        self._rows: dict[TopicPartition, list[Row]] = {}
        self._size_bytes = 0
        self._partitions: set[TopicPartition] = set()
        self._counts: dict[str, int] = {}
        self._failed = False
        self._open = False
        self._turn = Turn()
        self._block: object = None  # set by `tracked_exit`

    def __repr__(self) -> str:
        return f"Transaction({self._producer.transactional_id!r}, {'open' if self._open else 'not open'})"

    def init(self) -> None:
        """Fences earlier producers of the id now, and waits until the coordinator has aborted their open transaction.

        Entering the block does the same. A program that consumes and then writes in transactions calls `init` before it
        consumes. Without this call, the open transaction of a crashed predecessor may still have pending offsets. The
        group's members wait for these offsets until the transaction ends, at its timeout.

        Raises:
            ProducerFencedError: another producer of the transactional id has fenced this producer.
            KafkaError: the coordinator refused the request.
        """
        if self._open:
            raise KcoreError("the transaction is open already: call init() before the transaction begins")
        self._producer.require_free()
        turn = Turn()
        try:
            self._producer.turns.wait(turn)
            self._producer.prepare()
        finally:
            self._producer.turns.leave(turn)

    def __enter__(self) -> Transaction:
        self._producer.require_free()
        self._turn = Turn()
        try:
            self._producer.turns.wait(self._turn)
            self._producer.prepare()
            self._rows = {}
            self._size_bytes = 0
            self._partitions.clear()
            self._failed = False  # an earlier `with` block may have set it
            self._open = True
            self._turn.caller = caller()
        except BaseException:
            self._leave()
            raise
        return self

    @tracked_exit(lambda block: block._leave(), lambda block: block._open)
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._open:
                return
            if error is None:
                try:
                    self.commit()
                except BaseException as failed:
                    if self._open:
                        self._abort_after(failed)
                    raise
            else:
                self._abort_after(error)
        finally:
            try:
                self._leave()
            except BaseException:  # a KeyboardInterrupt: the next transaction of the id would wait forever
                self._leave()
                raise

    def _leave(self) -> None:
        """Lets the next transaction of the producer begin."""
        self._open = False
        self._producer.turns.leave(self._turn)
        self._block = None  # the exit is complete

    def _require_open(self) -> None:
        self._producer.calls.require_owner()
        if not self._open:
            raise KcoreError("the transaction is not open: use it inside its `with` block, before commit() or abort()")

    def append(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        *,
        headers: HeaderList = (),
        partition: int | None = None,
        timestamp: datetime | float | None = None,
    ) -> None:
        """Buffers a record. The transaction sends the record at its commit or earlier; `read_committed` readers get the
        record after the commit.

        Args:
            topic: the name of the topic.
            value: bytes, or a text, which is encoded as UTF-8; None is a tombstone.
            key: bytes, a text or None. Records with equal keys go to the same partition.
            headers: names and values.
            partition: the partition number; None: the key selects the partition. Records without a key go to each
                partition in turn.
            timestamp: the time of the record, as a datetime or in seconds since the epoch; None: now.

        Raises:
            ProducerFencedError: another producer of the transactional id has fenced this producer.
            KafkaError: the server refused buffered records.
            TypeError, ValueError: an argument has a wrong type, the partition is negative, or the timestamp is not a
                time in seconds. The record is not buffered.
        """
        self._require_open()
        timestamp_ms = None if timestamp is None else to_timestamp_ms(timestamp)
        if self._interceptors:
            self._buffer_intercepted(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
        else:
            self._buffer(topic, value, key, headers, partition, timestamp_ms)
        if self._size_bytes >= FLUSH_BYTES:
            self.flush()

    def _buffer_intercepted(self, record: ProducerRecord) -> None:
        """Buffers the record that the interceptors return."""
        record = intercept([each.on_send for each in self._interceptors], record)
        try:
            self._buffer(record.topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms)
        except Exception as error:
            partition = UNKNOWN if record.partition is None else record.partition
            timestamp_ms = UNKNOWN if record.timestamp_ms is None else record.timestamp_ms
            self._acknowledge(RecordMetadata(record.topic, partition, UNKNOWN, timestamp_ms), error)
            raise

    def _buffer(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: HeaderList,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> None:
        data = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else to_bytes(value)
        name = key.encode() if isinstance(key, str) else key if isinstance(key, bytes) else to_bytes(key)
        check_text("the name of a topic", topic)
        if partition is None:
            partition = self._choose(topic, name)
        else:
            check_partition_number(partition)
        if timestamp_ms is None:
            timestamp_ms = self._producer.calls.now_ms()
        size_bytes = record_size(name, data, headers)
        self._rows.setdefault(TopicPartition(topic, partition), []).append((timestamp_ms, name, data, headers))
        self._size_bytes += size_bytes

    def _acknowledge(self, metadata: RecordMetadata, error: Exception | None) -> None:
        notify(partial(each.on_acknowledgement, metadata, error) for each in self._interceptors)

    def _acknowledge_stored(self, partition: TopicPartition, rows: list[Row], base_offset: int, time_ms: int) -> None:
        """Passes the offsets of a batch to the interceptors."""
        if not self._interceptors:
            return
        for index, row in enumerate(rows):
            offset = UNKNOWN if base_offset < 0 else base_offset + index
            self._acknowledge(RecordMetadata(*partition, offset, row[0] if time_ms < 0 else time_ms), None)

    def _acknowledge_failed(self, rows: Mapping[TopicPartition, list[Row]], error: BaseException) -> None:
        """Notifies the interceptors of records that were not stored."""
        if not self._interceptors:
            return
        cause = error if isinstance(error, Exception) else KcoreError(f"the transaction was interrupted: {error!r}")
        for partition, batch in rows.items():
            for row in batch:
                self._acknowledge(RecordMetadata(*partition, UNKNOWN, row[0]), cause)

    def _choose(self, topic: str, key: bytes | None) -> int:
        count = self._counts.get(topic)
        if count is None:
            (row,) = (self._producer.calls.metadata([topic])).topics
            if row.error_code:
                raise error_about(row.error_code, f"topic {topic!r}")
            count = self._counts[topic] = len(row.partitions)
        if key is not None:
            return partition_of(key, count)
        return self._producer.calls.next_partition(topic, count)

    def flush(self) -> None:
        """Sends the buffered records."""
        self._require_open()
        rows, self._rows = self._rows, {}
        self._size_bytes = 0
        try:
            added = [partition for partition in rows if partition not in self._partitions]
            if added and not self._producer.implicit:
                self._producer.add_partitions(added)
            self._partitions.update(added)
            if rows:
                self._producer.unfinished = True
            for partition in list(rows):
                limit = len(rows[partition])
                while rows[partition]:
                    limit = self._send(partition, rows, limit)
                del rows[partition]
        except BaseException as error:
            self._failed = True
            self._acknowledge_failed(rows, error)
            raise

    def _send(self, partition: TopicPartition, rows: dict[TopicPartition, list[Row]], limit: int) -> int:
        """Sends the first `limit` records of a partition in one batch; halves `limit` while the batch is too large.

        Returns:
            The number of records of the batch that the broker stored.
        """
        while True:
            batch = rows[partition][:limit]
            try:
                stored = self._producer.produce(partition, batch, self._compression)
            except MessageTooLargeError:
                if len(batch) == 1:
                    raise
                limit = len(batch) // 2
            else:
                rows[partition] = rows[partition][limit:]
                self._acknowledge_stored(partition, batch, *stored)
                return limit

    def commit_offsets(
        self, group: HasGroupMetadata | tuple[str, str, int, str | None] | str, offsets: Offsets
    ) -> None:
        """Commits offsets of a group with the transaction (KIP-447).

        This method fails without a request if the group has removed the member since its last poll or event. It also
        fails without a request if the member gave up one of the partitions. A later rejoin does not change this.

        Args:
            group: the consumer or member that read the records, or its `group_metadata` from the time of the read. The
                coordinator refuses the offsets of a fenced member. If the group has no members, pass the group or its
                id. For a group with members, do not pass the group or its id. The request would then name no member, so
                the coordinator would accept the offsets without a check of the member.
            offsets: partition -> the offset of the next record to read, for example `consumer.positions()`.

        Raises:
            CommitFailedError: the member has left the group, or was fenced. Continue at the committed offsets.
            FencedInstanceIdError: another member has the instance id.
            ProducerFencedError: another producer of the transactional id has fenced this producer.
            KafkaError, PartitionErrors: the coordinator refused offsets.
            TypeError: `group` or `offsets` has another type.
            ValueError: an offset is negative.
        """
        self._require_open()
        try:
            check_offsets(offsets)
            metadata = metadata_of(group, offsets)
            if not offsets:
                return
            self._producer.unfinished = True
            self._producer.commit_offsets(metadata, offsets)
        except BaseException:
            self._failed = True
            raise

    def commit(self) -> None:
        """Commits the transaction before the end of the block.

        Raises:
            KcoreError: an earlier operation of the transaction failed, so that the transaction can only be aborted.
        """
        self._require_open()
        if self._failed:
            raise KcoreError("an operation of this transaction failed: the transaction can only be aborted")
        self.flush()
        if self._producer.unfinished:
            self._producer.end(True)
        self._open = False

    def abort(self) -> None:
        """Aborts the transaction before the end of the block."""
        self._require_open()
        rows, self._rows = self._rows, {}
        self._open = False
        self._acknowledge_failed(rows, KcoreError("the transaction was aborted before the record was sent"))
        if self._producer.unfinished:
            try:
                self._producer.end(False)
            except BaseException:
                self._producer.invalidate()  # else the next transaction would include the records of this transaction
                raise
        if self._failed and not self._producer.implicit:
            self._producer.invalidate()

    def _abort_after(self, error: BaseException) -> None:
        """Aborts the transaction after `error`, which the caller then raises."""
        try:
            self.abort()
        except ProducerFencedError as fenced:
            if isinstance(error, KafkaError) and error.code in FENCED:
                raise fenced from error
            error.add_note(f"the transaction could not be aborted: {fenced}")
        except Exception as failed:
            self._producer.invalidate()
            error.add_note(f"the transaction could not be aborted: {failed}")
