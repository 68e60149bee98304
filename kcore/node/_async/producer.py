"""Producers: records are appended to batches, which a background loop sends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from types import TracebackType

from kcore.client.producer_settings import ProducerSettings
from kcore.errors import KafkaError, KcoreError
from kcore.node._async.backend import Event, guard, let_others_run, monotonic, running_loop, sleep
from kcore.node._async.batch_sender import REQUEST_BYTES, AsyncBatchSender
from kcore.node._async.calls import AsyncCalls
from kcore.node._async.delivery import AsyncDelivery
from kcore.node.arguments import check_partition_number, check_text
from kcore.node.interceptors import UNKNOWN, ProducerInterceptor, ProducerRecord, intercept, notify
from kcore.node.requests import NEW_TOPIC_TIMEOUT_S, error_about, record_size
from kcore.node.types import HeaderList, RecordMetadata, TopicPartition, to_bytes, to_timestamp_ms
from kcore.protocol.compression import compress
from kcore.protocol.error_codes import NEW_TOPIC_ERRORS, ErrorCode
from kcore_ext.client.accumulator import Accumulator, PartitionQueue, ProducerBatch


class AsyncProducer:
    """A producer that appends records in batches. `node.producer()` creates it; use it with `with`, or call `flush`.

    The broker stores each record of a partition once, in the order of the `append` calls. If a response is lost, the
    producer repeats the batch with the same sequence, so that the broker recognizes the repetition (KIP-98).

    Args:
        calls: the node's requests.
        settings: the sizes, times and acknowledgements of batches.
        interceptors: called with each record before it is appended, and with its result.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        settings: ProducerSettings,
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> None:
        self._calls = calls
        self._settings = settings
        self._interceptors = interceptors
        self._intercepted: dict[ProducerBatch, list[AsyncDelivery]] = {}
        self._guard = guard()
        self._room = Event()
        self._idle = Event()
        self._accumulator = Accumulator(
            AsyncDelivery,
            TopicPartition,
            Event,
            batch_bytes=settings.batch_bytes,
            buffer_bytes=settings.buffer_bytes,
            burst_bytes=REQUEST_BYTES,
            compression=int(settings.compression),
            compress=compress,
            to_bytes=to_bytes,
            measure=record_size,
            on_batch=self._on_batch,
            monotonic=monotonic,
            clock_ms=calls.transport.clock_ms,
            loop=calls.loop,
            running_loop=running_loop,
        )
        self._sender = AsyncBatchSender(
            calls, self._accumulator, settings, self._guard, self._complete, self._move_intercepted
        )
        self._started = False
        self._closed = False
        self._errors: list[Exception] = []

    def __repr__(self) -> str:
        return f"AsyncProducer({'closed' if self._closed else 'open'})"

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self.close()

    async def append(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        *,
        headers: HeaderList = (),
        partition: int | None = None,
        timestamp: datetime | float | None = None,
    ) -> AsyncDelivery:
        """Adds a record to a batch. Waits only while the buffer is full, or for the first lookup of the topic.

        Args:
            topic: the name of the topic.
            value: bytes, or a text, which is encoded as UTF-8; None is a tombstone.
            key: bytes, a text or None. Records with equal keys go to the same partition.
            headers: names and values.
            partition: the partition number; None: the key selects the partition. Records without a key go to one
                partition until a batch is full.
            timestamp: the time of the record, as a datetime or in seconds since the epoch; None: now.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            TimeoutError: the buffer was full for too long.
            TypeError, ValueError: an argument has a wrong type, the partition is negative, or the timestamp is not a
                time in seconds. The record is not appended.
        """
        timestamp_ms = None if timestamp is None else to_timestamp_ms(timestamp)
        if self._interceptors:
            return await self._append_intercepted(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
        try:
            # A second coroutine would double the time of this call.
            delivery = self._accumulator.append(topic, value, key, headers, partition, timestamp_ms)
            if delivery is None:
                delivery = await self._append(topic, value, key, headers, partition, timestamp_ms)
        except (TypeError, ValueError, OverflowError):  # the errors of the compiled code do not name the argument
            check_text("the name of a topic", topic)
            if partition is not None:
                check_partition_number(partition)
            raise
        return delivery  # type: ignore[no-any-return]

    async def _append_intercepted(self, record: ProducerRecord) -> AsyncDelivery:
        """Appends the record that the interceptors return. Stores the `Delivery`, whose result they receive later."""
        record = intercept([each.on_send for each in self._interceptors], record)
        try:
            delivery = await self._append(
                record.topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms
            )
        except Exception as error:
            partition = UNKNOWN if record.partition is None else record.partition
            time_ms = UNKNOWN if record.timestamp_ms is None else record.timestamp_ms
            self._acknowledge(RecordMetadata(record.topic, partition, UNKNOWN, time_ms), error)
            raise
        with self._guard:
            pending = not delivery.done
            if pending:
                self._intercepted.setdefault(delivery.batch, []).append(delivery)
        if not pending:
            self._acknowledge_delivery(delivery, delivery.batch.error)
        return delivery

    def _acknowledge_delivery(self, delivery: AsyncDelivery, error: Exception | None) -> None:
        topic, partition = delivery.partition
        offset = delivery.offset if error is None else UNKNOWN
        self._acknowledge(RecordMetadata(topic, partition, offset, delivery.timestamp_ms), error)

    def _acknowledge(self, metadata: RecordMetadata, error: Exception | None) -> None:
        notify(partial(each.on_acknowledgement, metadata, error) for each in self._interceptors)

    def _move_intercepted(self, batch: ProducerBatch) -> None:
        """Assigns the records of interceptors to the smaller batches that have replaced `batch`."""
        for delivery in self._intercepted.pop(batch, ()):
            self._intercepted.setdefault(delivery.batch, []).append(delivery)

    def _finish(self, batch: ProducerBatch, error: Exception | None) -> None:
        """Completes a batch, and passes the result of each record to the interceptors."""
        with self._guard:
            batch.complete(error)
            deliveries = self._intercepted.pop(batch, ())
        for delivery in deliveries:
            self._acknowledge_delivery(delivery, error)

    async def _append(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: HeaderList,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> AsyncDelivery:
        if partition is not None:
            check_partition_number(partition)
        delivery = self._accumulator.append(topic, value, key, headers, partition, timestamp_ms)
        while delivery is None:
            await self._prepare(topic, partition or 0)
            delivery = self._accumulator.append(topic, value, key, headers, partition, timestamp_ms)
        return delivery  # type: ignore[no-any-return]

    async def _prepare(self, topic: str, partition: int) -> None:
        """Waits until the accumulator accepts a record."""
        self._calls.require_owner()
        accumulator = self._accumulator
        if self._closed:
            raise KcoreError("the producer is closed")
        if not accumulator.knows(topic, partition):
            await self.look_up(topic)
            if not accumulator.knows(topic, partition):
                missing = [TopicPartition(topic, partition)]
                raise KafkaError.of(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic!r} has no partition {partition}", missing
                )
        elif accumulator.full:
            await self._wait_for_room()
        else:  # so that the send loop runs
            await let_others_run()
        accumulator.rest()

    def _on_batch(self) -> None:
        """Wakes the sender after the first record of a batch."""
        self._start()
        self._sender.wake()

    async def look_up(self, topic: str) -> None:
        """Looks a topic up, so that the first `append` to it does not wait for the lookup.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist, and the server does not create it.
        """
        check_text("the name of a topic", topic)
        until_s = monotonic() + (NEW_TOPIC_TIMEOUT_S if self._settings.create_topics else 0.0)
        while True:
            (row,) = (await self._calls.metadata([topic], self._settings.create_topics)).topics
            if not row.error_code and row.partitions:
                with self._guard:
                    self._accumulator.add_topic(topic, len(row.partitions))
                return
            if row.error_code not in NEW_TOPIC_ERRORS or monotonic() >= until_s:
                raise error_about(row.error_code, f"topic {topic!r}")
            await sleep(0.1)

    async def _wait_for_room(self) -> None:
        until_s = monotonic() + self._settings.timeout_s
        while self._accumulator.full:
            self._room.clear()
            if not await self._room.wait(until_s - monotonic()):
                raise TimeoutError("the producer's buffer is full: the brokers do not store its records in time")

    async def flush(self) -> None:
        """Sends all records and waits until they are stored.

        Raises:
            KafkaError, TimeoutError: the first error of a record since the last call of `flush`.
            KcoreError: the producer was closed before a record was stored.
        """
        if not self._closed:
            self._start()
        with self._guard:
            self._sender.flushing += 1
        try:
            while self._accumulator.size:
                self._idle.clear()
                self._sender.wake()
                await self._idle.wait(0.1)
        finally:
            with self._guard:
                self._sender.flushing -= 1
                errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    async def close(self) -> None:
        """Ends the producer; records that were not flushed are lost."""
        if self._closed or self._calls.forked or self._calls.loop_ended:
            return
        self._calls.require_owner()
        self._calls.resources.pop(self, None)
        self._closed = self._accumulator.closed = True
        self._sender.stop()
        with self._guard:
            batches = self._accumulator.clear()
        lost = KcoreError("the producer was closed before the record was stored")
        if batches:
            self._errors.append(lost)  # `flush` raises it, for example if another thread has closed the node
        for batch in batches:
            self._finish(batch, lost)
        self._room.set()
        self._idle.set()
        self._calls.transport.close_channel(self._sender.channel)

    def _start(self) -> None:
        self._calls.require_owner()
        with self._guard:
            if self._started:
                return
            self._calls.add_resource(self)
            self._started = True
        try:
            self._sender.start()
        except BaseException:
            self._started = False  # the next call tries again
            raise

    def _complete(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception | None) -> None:
        """Removes a batch that is stored or has failed, and ends the waits for its end and for room in the buffer."""
        with self._guard:
            self._accumulator.remove(queue, batch)
            if error is not None:
                self._errors.append(error)
        if self._interceptors:
            self._finish(batch, error)
        else:
            batch.complete(error)
        self._room.set()
        if not self._accumulator.size:
            self._idle.set()
