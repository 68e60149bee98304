"""Transactions: records and committed offsets that become visible together, or not at all (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Protocol

from kcore.client import versions
from kcore.client.aio.routes import TRANSACTION
from kcore.client.consumer_coordinator.ownership import NOT_IN_GROUP
from kcore.client.partitioner import partition_of
from kcore.errors import (
    CommitFailedError,
    KafkaError,
    KcoreError,
    MessageTooLargeError,
    ProducerFencedError,
    raise_partition_errors,
)
from kcore.node._async.backend import AsyncLock, caller
from kcore.node._async.calls import AsyncCalls
from kcore.node.interceptors import UNKNOWN, ProducerInterceptor, ProducerRecord, chained, notified
from kcore.node.requests import build_batch, by_topic, check_commit, produce_request, record_size, to_commit
from kcore.node.types import (
    GroupMetadata,
    HeaderList,
    Offsets,
    Partition,
    RecordMetadata,
    TopicPartition,
    as_partition,
    to_bytes,
    to_ms,
)
from kcore.protocol.compression import CompressionType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kcore.protocol.messages.end_txn import EndTxnRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

FLUSH_BYTES = 512 << 10
"""Buffered bytes of a transaction after which they are sent."""

ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 30_000
MAX_SEQUENCE = 0x7FFFFFFF
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
NOT_A_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""Errors of a commit in a transaction by a member that was fenced, or that has left its group."""

Row = tuple[int, bytes | None, bytes | None, HeaderList]
"""A record: timestamp in ms, key, value, headers."""


class HasGroupMetadata(Protocol):
    """A group, member or consumer, whose offsets a transaction commits."""

    @property
    def group_metadata(self) -> tuple[str, str, int, str | None]:
        """Group id, member id, generation or member epoch, and instance id."""
        ...


def metadata_of(
    group: HasGroupMetadata | tuple[str, str, int, str | None] | str, partitions: Iterable[Partition]
) -> GroupMetadata:
    """Returns the committer of offsets of the partitions.

    Raises:
        CommitFailedError: the member must not commit them: it is not in its group, was removed since its user's last
            poll or event, or has given a partition up.
        TypeError: `group` is none of the types.
    """
    if isinstance(group, str):
        return GroupMetadata(group)
    metadata_for = getattr(group, "_metadata_for", None)
    if metadata_for is not None:
        found: GroupMetadata = metadata_for(partitions)
        return found
    row = group if isinstance(group, tuple) else getattr(group, "group_metadata", None)
    if row is None:
        raise TypeError(
            f"a {type(group).__name__} has no group; valid: a consumer, a member, its group_metadata, a group or its id"
        )
    metadata = GroupMetadata(*row)
    if metadata.member_id and metadata.epoch < 0:  # the coordinator would not check the member
        raise CommitFailedError(NOT_IN_GROUP)
    return metadata


class TransactionalProducer:
    """The producer of one transactional id: producer id, epoch and sequences.

    Args:
        calls: the node's requests.
        transactional_id: the id; a new producer of the same id fences the earlier one.
        timeout_s: the time after which the coordinator aborts an open transaction.
    """

    def __init__(self, calls: AsyncCalls, transactional_id: str, timeout_s: float) -> None:
        self.calls = calls
        self.transactional_id = transactional_id
        self.timeout_s = timeout_s
        self.lock = AsyncLock()
        self.holder: object = None  # the task or thread with an open transaction, which holds the lock
        self.producer_id = -1
        self.epoch = -1
        self.implicit = False  # True: brokers add partitions to the transaction (KIP-890)
        self.sequences: dict[TopicPartition, int] = {}
        self._initialized = False
        self._fenced: KafkaError | None = None

    async def prepare(self) -> None:
        """Gets a producer id and epoch, unless this producer has a valid one.

        Raises:
            ProducerFencedError: another producer has taken over the transactional id.
            KafkaError: the coordinator refused the request.
        """
        if self._fenced is not None:
            raise ProducerFencedError(self._fenced.message)
        if self._initialized:
            return

        def read(response: Any) -> Any:
            if response.error_code:
                raise KafkaError.of(response.error_code)
            return response

        await self.calls.coordinator(TRANSACTION, self.transactional_id)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=round(self.timeout_s * 1000),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
        )
        response = await self._coordinate(request, read, at_most=versions.INIT_PRODUCER_ID)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self.sequences.clear()
        self.implicit = (
            await self.calls.transport.feature("transaction.version") >= 2
            and await self.calls.transport.newest(EndTxnRequest) > versions.TRANSACTION_V1_END
        )
        self._initialized = True

    def require_free(self) -> None:
        """Raises KcoreError if the caller itself has a transaction of this id open: it would wait for ever."""
        if self.holder is not None and self.holder == caller():
            raise KcoreError(
                f"a transaction of {self.transactional_id!r} is open in this block; a transactional id has one "
                "transaction at a time: end it first, or use another id"
            )

    async def _coordinate(self, request: Any, read: Any, at_most: int | None = None) -> Any:
        """Sends a request to a coordinator. A refused epoch means that the producer is fenced."""
        try:
            return await self.calls.call(request, read, at_most=at_most)
        except KafkaError as error:
            if error.code in FENCED:
                self._fenced = error
                raise ProducerFencedError(
                    f"another producer has taken over the transactional id {self.transactional_id!r}"
                ) from error
            raise

    async def add_partitions(self, partitions: list[TopicPartition]) -> None:
        """Adds partitions to the transaction; only version 1 of the protocol needs it."""
        topics = [
            AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic(partitions).items()
        ]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )

        def read(response: Any) -> None:
            codes = {
                TopicPartition(topic.name, row.partition_index): row.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            }
            for code in codes.values():
                if code in FENCED:
                    raise KafkaError.of(code)
            attempted = {key: code for key, code in codes.items() if code != ErrorCode.OPERATION_NOT_ATTEMPTED}
            raise_partition_errors("addition of partitions to the transaction", attempted, len(partitions))

        await self._coordinate(request, read, at_most=versions.ADD_PARTITIONS_BY_CLIENT)

    async def produce(
        self, partition: TopicPartition, rows: list[Row], compression: CompressionType
    ) -> tuple[int, int]:
        """Appends a batch to a partition. A repetition has the same sequence, so that it is stored once.

        Returns:
            The offset of the first record, and the time of the append in ms if the topic's records have that
            timestamp. Both are -1 if the response does not contain them.
        """
        sequence = self.sequences.get(partition, 0)
        batch = build_batch(
            rows,
            compression,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

        def read(response: Any) -> tuple[int, int]:
            row = response.responses[0].partition_responses[0]
            if row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # stored before; the offset is not known
                return UNKNOWN, UNKNOWN
            if row.error_code:
                raise KafkaError.of(row.error_code, row.error_message, [partition])
            return row.base_offset, row.log_append_time_ms

        request = produce_request({partition: batch}, ACKS_ALL, PRODUCE_TIMEOUT_MS, self.transactional_id)
        at_most = versions.PRODUCE if self.implicit else versions.TRANSACTION_V1_PRODUCE
        stored: tuple[int, int] = await self.calls.call(request, read, at_most=at_most)
        self.sequences[partition] = (sequence + len(rows)) & MAX_SEQUENCE
        return stored

    async def commit_offsets(self, group: tuple[str, str, int, str | None], offsets: Offsets) -> None:
        """Adds offsets of a group to the transaction."""
        group_id, member_id, epoch, instance_id = group
        if not self.implicit:

            def added(response: Any) -> None:
                if response.error_code:
                    raise KafkaError.of(response.error_code)

            await self._coordinate(
                AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    group_id=group_id,
                ),
                added,
            )
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for each, value in offsets.items():
            topic, partition = as_partition(each)
            given = to_commit(value)
            row = TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=given.offset,
                committed_leader_epoch=-1 if given.leader_epoch is None else given.leader_epoch,
                committed_metadata=given.metadata,
            )
            topics.setdefault(topic, []).append(row)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=epoch,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=rows) for topic, rows in topics.items()],
        )
        at_most = None if self.implicit else versions.TRANSACTION_V1_COMMIT
        action = f"commit of group {group_id!r} in a transaction"
        try:
            await self._coordinate(request, lambda response: check_commit(action, response, len(offsets)), at_most)
        except KafkaError as error:
            if member_id and error.code in NOT_A_MEMBER:
                raise CommitFailedError("the member was removed from the group before the commit") from error
            raise

    async def end(self, commit: bool) -> None:
        """Commits or aborts the transaction."""

        def read(response: Any) -> Any:
            if response.error_code:
                raise KafkaError.of(response.error_code)
            return response

        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        at_most = None if self.implicit else versions.TRANSACTION_V1_END
        response = await self._coordinate(request, read, at_most)
        if self.implicit and response.producer_id >= 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()

    def invalidate(self) -> None:
        """Makes the next transaction begin with a new epoch, because a failed request may still arrive."""
        self._initialized = False


class AsyncTransaction:
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
        self._changed = False  # a request was sent that the coordinator must end
        self._failed = False
        self._open = False

    async def init(self) -> None:
        """Fences earlier producers of the id now, and waits until the coordinator has aborted their open transaction.

        Entering the block does the same. A program that consumes and then writes in transactions calls `init` before
        it consumes: offsets in the open transaction of a crashed predecessor are pending, and no member gets them
        until that transaction ends, at its timeout.

        Raises:
            ProducerFencedError: another producer has taken over the transactional id.
            KafkaError: the coordinator refused the request.
        """
        if self._open:
            raise KcoreError("the transaction is open, so its producer is initialized")
        self._producer.require_free()
        async with self._producer.lock:
            await self._producer.prepare()

    async def __aenter__(self) -> AsyncTransaction:
        self._producer.require_free()
        await self._producer.lock.__aenter__()
        try:
            await self._producer.prepare()
        except BaseException:
            await self._producer.lock.__aexit__(None, None, None)
            raise
        self._rows = {}
        self._size_bytes = 0
        self._partitions.clear()
        self._changed = self._failed = False  # the object may have had a block before
        self._open = True
        self._producer.holder = caller()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._open:
                return
            if error is None:
                try:
                    await self.commit()
                except BaseException as failed:
                    if self._open:
                        await self._abort_after(failed)
                    raise
            else:
                await self._abort_after(error)
        finally:
            self._open = False
            self._producer.holder = None
            await self._producer.lock.__aexit__(None, None, None)

    def _require_open(self) -> None:
        if not self._open:
            raise KcoreError("the transaction is not open: use it inside its `with` block, before commit() or abort()")

    async def append(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        *,
        headers: HeaderList = (),
        partition: int | None = None,
        timestamp: datetime | float | None = None,
    ) -> None:
        """Adds a record. It is buffered, sent at the latest when the transaction commits, and visible from then on.

        Args:
            topic: the topic.
            value: the value; text is encoded as UTF-8; None is a tombstone.
            key: the key.
            headers: names and values.
            partition: the partition; None: by the key, or without a key in turn.
            timestamp: the time of the record, or seconds since the epoch; None: now.

        Raises:
            ProducerFencedError: another producer has taken over the transactional id.
            KafkaError: the server refused buffered records.
        """
        self._require_open()
        timestamp_ms = None if timestamp is None else to_ms(timestamp)
        if self._interceptors:
            await self._buffer_intercepted(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
        else:
            await self._buffer(topic, value, key, headers, partition, timestamp_ms)
        if self._size_bytes >= FLUSH_BYTES:
            await self.flush()

    async def _buffer_intercepted(self, record: ProducerRecord) -> None:
        """Buffers the record that the interceptors return."""
        record = chained([each.on_send for each in self._interceptors], record)
        try:
            await self._buffer(
                record.topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms
            )
        except Exception as error:
            partition = UNKNOWN if record.partition is None else record.partition
            timestamp_ms = UNKNOWN if record.timestamp_ms is None else record.timestamp_ms
            self._acknowledge(RecordMetadata(record.topic, partition, UNKNOWN, timestamp_ms), error)
            raise

    async def _buffer(
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
        if partition is None:
            partition = await self._choose(topic, name)
        if timestamp_ms is None:
            timestamp_ms = self._producer.calls.now_ms()
        size_bytes = record_size(name, data, headers)
        self._rows.setdefault(TopicPartition(topic, partition), []).append((timestamp_ms, name, data, headers))
        self._size_bytes += size_bytes

    def _acknowledge(self, metadata: RecordMetadata, error: Exception | None) -> None:
        notified(partial(each.on_acknowledgement, metadata, error) for each in self._interceptors)

    def _acknowledge_stored(self, partition: TopicPartition, rows: list[Row], base_offset: int, time_ms: int) -> None:
        """Tells the interceptors the offsets of a batch."""
        if not self._interceptors:
            return
        for index, row in enumerate(rows):
            offset = UNKNOWN if base_offset < 0 else base_offset + index
            self._acknowledge(RecordMetadata(*partition, offset, row[0] if time_ms < 0 else time_ms), None)

    def _acknowledge_failed(self, rows: Mapping[TopicPartition, list[Row]], error: BaseException) -> None:
        """Tells the interceptors that records were not stored."""
        if not self._interceptors:
            return
        cause = error if isinstance(error, Exception) else KcoreError(f"the transaction was interrupted: {error!r}")
        for partition, batch in rows.items():
            for row in batch:
                self._acknowledge(RecordMetadata(*partition, UNKNOWN, row[0]), cause)

    async def _choose(self, topic: str, key: bytes | None) -> int:
        count = self._counts.get(topic)
        if count is None:
            (row,) = (await self._producer.calls.metadata([topic])).topics
            if row.error_code:
                raise KafkaError.of(row.error_code, f"topic {topic!r}")
            count = self._counts[topic] = len(row.partitions)
        if key is not None:
            return partition_of(key, count)
        return self._producer.calls.next_partition(topic, count)

    async def flush(self) -> None:
        """Sends the buffered records."""
        self._require_open()
        rows, self._rows = self._rows, {}
        self._size_bytes = 0
        try:
            added = [partition for partition in rows if partition not in self._partitions]
            if added and not self._producer.implicit:
                await self._producer.add_partitions(added)
            self._partitions.update(added)
            self._changed = self._changed or bool(rows)
            for partition in list(rows):
                limit = len(rows[partition])
                while rows[partition]:
                    limit = await self._send(partition, rows, limit)
                del rows[partition]
        except BaseException as error:
            self._failed = True
            self._acknowledge_failed(rows, error)
            raise

    async def _send(self, partition: TopicPartition, rows: dict[TopicPartition, list[Row]], limit: int) -> int:
        """Sends the first records of a partition in one batch: `limit` of them, or half as often as it is too large.

        Returns:
            The number of records of the batch that the broker stored.
        """
        while True:
            batch = rows[partition][:limit]
            try:
                stored = await self._producer.produce(partition, batch, self._compression)
            except MessageTooLargeError:
                if len(batch) == 1:
                    raise
                limit = len(batch) // 2
            else:
                rows[partition] = rows[partition][limit:]
                self._acknowledge_stored(partition, batch, *stored)
                return limit

    async def commit_offsets(
        self, group: HasGroupMetadata | tuple[str, str, int, str | None] | str, offsets: Offsets
    ) -> None:
        """Commits offsets of a group with the transaction (KIP-447).

        Offsets of a consumer or member are refused, before anything is sent, if it was removed from its group since
        its last poll or event, or has given up one of the partitions, even if it has joined again meanwhile.

        Args:
            group: the consumer or member that read the records, or the `group_metadata` that it had then, so that the
                offsets of a fenced member are refused; or a group without members, or its id.
            offsets: partition -> the offset of the next record to read, for example `consumer.positions()`.

        Raises:
            CommitFailedError: the member has left the group, or was fenced: begin again at the committed offsets.
            FencedInstanceIdError: another member has the instance id.
            ProducerFencedError: another producer has taken over the transactional id.
            KafkaError, PartitionErrors: the coordinator refused offsets.
            TypeError: `group` is none of these.
            ValueError: an offset is negative.
        """
        self._require_open()
        try:
            metadata = metadata_of(group, offsets)
            if not offsets:
                return
            self._changed = True
            await self._producer.commit_offsets(metadata, offsets)
        except BaseException:
            self._failed = True
            raise

    async def commit(self) -> None:
        """Commits the transaction before the end of the block.

        Raises:
            KcoreError: an earlier operation of the transaction failed; it can only be aborted.
        """
        self._require_open()
        if self._failed:
            raise KcoreError("an operation of this transaction failed: it can only be aborted")
        await self.flush()
        if self._changed:
            await self._producer.end(True)
        self._open = False

    async def abort(self) -> None:
        """Aborts the transaction before the end of the block."""
        self._require_open()
        rows, self._rows = self._rows, {}
        self._open = False
        self._acknowledge_failed(rows, KcoreError("the transaction was aborted before the record was sent"))
        if self._changed:
            await self._producer.end(False)
        if self._failed and not self._producer.implicit:
            self._producer.invalidate()

    async def _abort_after(self, error: BaseException) -> None:
        """Aborts because of `error`, which stays the error that the caller gets."""
        try:
            await self.abort()
        except ProducerFencedError as fenced:
            if isinstance(error, KafkaError) and error.code in FENCED:
                raise fenced from error
            error.add_note(f"the transaction could not be aborted: {fenced}")
        except Exception as failed:
            self._producer.invalidate()
            error.add_note(f"the transaction could not be aborted: {failed}")


def transactional_producer(
    calls: AsyncCalls, producers: Mapping[str, TransactionalProducer], transactional_id: str, timeout_s: float
) -> TransactionalProducer:
    """Returns the node's producer of a transactional id; a new one if there is none with this timeout."""
    known = producers.get(transactional_id)
    if known is not None and known.timeout_s == timeout_s:
        return known
    return TransactionalProducer(calls, transactional_id, timeout_s)
