"""Producers: batches by size and time, one idempotent sequence for each partition, and retries in order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any

from kcore.client.aio.broker import Broker
from kcore.errors import ConnectionClosedError, KafkaError, KcoreError
from kcore.node import versions
from kcore.node._async.backend import Event, guard, monotonic, no_wait, sleep, spawn
from kcore.node._async.calls import AsyncCalls, backoff_s
from kcore.node.interceptors import UNKNOWN, ProducerInterceptor, ProducerRecord, chained, notified
from kcore.node.requests import produce_request, record_size
from kcore.node.types import HeaderList, RecordMetadata, TopicPartition, to_bytes
from kcore.protocol.compression import CompressionType, compress
from kcore.protocol.error_codes import RETRIABLE, ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore_ext.client.accumulator import Accumulator, DeliveryBase, PartitionQueue, ProducerBatch

ACKS_ALL = -1
REQUEST_BYTES = 1 << 20
REQUEST_TIMEOUT_MS = 30_000
MAX_SEQUENCE = 0x7FFFFFFF
NEW_TOPIC_S = 10.0
BEING_CREATED = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})
BUMPED = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""Errors after which an idempotent producer begins a new sequence."""


class AsyncDelivery(DeliveryBase):
    """The result of one record: `producer.append` returns it at once, `result` waits for it."""

    __slots__ = ()

    @property
    def done(self) -> bool:
        """True once the record is stored, or has failed."""
        return bool(self.batch.done.is_set())

    async def result(self) -> RecordMetadata:
        """Waits until the record is stored, and returns its place.

        Raises:
            KafkaError: the server refused the record's batch.
            TimeoutError: the batch was not stored in time.
        """
        batch = self.batch
        await batch.done.wait()
        if batch.error is not None:
            raise batch.error
        topic, partition = self.partition
        return RecordMetadata(topic, partition, self.offset, self.timestamp_ms)


class AsyncProducer:
    """Appends records in batches. `node.producer()` creates it; use it with `with`, or call `flush`.

    Records of a partition are stored in the order of their `append`, each once: a repetition after a lost response
    has the same sequence, by which the broker recognizes it (KIP-98).

    Args:
        calls: the node's requests.
        linger_s: the time for which a batch waits for more records.
        batch_bytes: the size at which a batch is sent at once.
        buffer_bytes: the size of all batches at which `append` waits.
        compression: the codec.
        timeout_s: the time limit of a record, from its batch's creation on.
        acks: -1 for all in-sync replicas; 1 for the leader alone, without protection against repeated records.
        create_topics: True to let the server create missing topics, if it is configured to.
        interceptors: see each record before it is appended, and its result.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        linger_s: float,
        batch_bytes: int,
        buffer_bytes: int,
        compression: CompressionType,
        timeout_s: float,
        acks: int = ACKS_ALL,
        create_topics: bool = False,
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> None:
        self._calls = calls
        self._linger_s = linger_s
        self._batch_bytes = batch_bytes
        self._timeout_s = timeout_s
        self._acks = acks
        self._create_topics = create_topics
        self._interceptors = interceptors
        self._intercepted: dict[ProducerBatch, list[AsyncDelivery]] = {}
        self._guard = guard()
        self._wakeup = Event()
        self._room = Event()
        self._idle = Event()
        self._accumulator = Accumulator(
            AsyncDelivery,
            TopicPartition,
            Event,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            burst_bytes=REQUEST_BYTES,
            compression=int(compression),
            compress=compress,
            to_bytes=to_bytes,
            measure=record_size,
            on_batch=self._on_batch,
            monotonic=monotonic,
        )
        self._flushing = 0
        self._busy: set[Broker] = set()
        self._id = (-1, -1)
        self._started = False
        self._closed = False
        self._errors: list[Exception] = []
        self._channel = f"producer-{id(self)}"

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
        timestamp_ms: int | None = None,
    ) -> AsyncDelivery:
        """Adds a record to a batch. Waits only while the buffer is full, or for the first lookup of the topic.

        Args:
            topic: the topic.
            value: the value; text is encoded as UTF-8; None is a tombstone.
            key: the key; records with equal keys go to the same partition.
            headers: names and values.
            partition: the partition; None: by the key, or without a key the same one until a batch is full.
            timestamp_ms: the record's timestamp in milliseconds since the epoch; None: now.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            TimeoutError: the buffer was full for too long.
        """
        if self._interceptors:
            return await self._append_intercepted(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
        return await self._append(topic, value, key, headers, partition, timestamp_ms)

    async def _append_intercepted(self, record: ProducerRecord) -> AsyncDelivery:
        """Appends what the interceptors make of a record, and keeps its delivery for them."""
        record = chained([each.on_send for each in self._interceptors], record)
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
            waits = not delivery.done
            if waits:
                self._intercepted.setdefault(delivery.batch, []).append(delivery)
        if not waits:
            self._acknowledge_delivery(delivery, delivery.batch.error)
        return delivery

    def _acknowledge_delivery(self, delivery: AsyncDelivery, error: Exception | None) -> None:
        topic, partition = delivery.partition
        offset = delivery.offset if error is None else UNKNOWN
        self._acknowledge(RecordMetadata(topic, partition, offset, delivery.timestamp_ms), error)

    def _acknowledge(self, metadata: RecordMetadata, error: Exception | None) -> None:
        notified(partial(each.on_acknowledgement, metadata, error) for each in self._interceptors)

    def _finish(self, batch: ProducerBatch, error: Exception | None) -> None:
        """Completes a batch, and tells the interceptors the result of each record."""
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
        delivery = self._accumulator.append(topic, value, key, headers, partition, timestamp_ms)
        while delivery is None:
            await self._prepare(topic, partition or 0)
            delivery = self._accumulator.append(topic, value, key, headers, partition, timestamp_ms)
        return delivery  # type: ignore[no-any-return]

    async def _prepare(self, topic: str, partition: int) -> None:
        """Waits until the accumulator can take a record."""
        accumulator = self._accumulator
        if self._closed:
            raise KcoreError("the producer is closed")
        if not accumulator.knows(topic, partition):
            await self.look_up(topic)
            if not accumulator.knows(topic, partition):
                place = TopicPartition(topic, partition)
                raise KafkaError.of(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic!r} has no partition {partition}", [place]
                )
        elif accumulator.full:
            await self._wait_for_room()
        else:  # the tasks that send records get a turn
            await no_wait()
        accumulator.rest()

    def _on_batch(self) -> None:
        """Wakes the sender after the first record of a batch."""
        self._start()
        self._wakeup.set()

    async def look_up(self, topic: str) -> None:
        """Looks a topic up, which the first `append` does otherwise.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist, and is not created.
        """
        until_s = monotonic() + (NEW_TOPIC_S if self._create_topics else 0.0)
        while True:
            (row,) = (await self._calls.transport.metadata([topic], self._create_topics)).topics
            if not row.error_code and row.partitions:
                with self._guard:
                    self._accumulator.add_topic(topic, len(row.partitions))
                return
            if row.error_code not in BEING_CREATED or monotonic() >= until_s:
                raise KafkaError.of(row.error_code, f"topic {topic!r}")
            await sleep(0.1)

    async def _wait_for_room(self) -> None:
        until_s = monotonic() + self._timeout_s
        while self._accumulator.full:
            self._room.clear()
            if not await self._room.wait(until_s - monotonic()):
                raise TimeoutError("the producer's buffer is full: the brokers do not store its records in time")

    async def flush(self) -> None:
        """Sends all records and waits until they are stored.

        Raises:
            KafkaError, TimeoutError: records could not be stored, since the last call; the first of the errors.
        """
        self._start()
        with self._guard:
            self._flushing += 1
        try:
            while self._accumulator.size:
                self._idle.clear()
                self._wakeup.set()
                await self._idle.wait(0.1)
        finally:
            with self._guard:
                self._flushing -= 1
                errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    async def close(self) -> None:
        """Ends the producer; records that were not flushed are lost."""
        self._calls.resources.pop(self, None)
        if self._closed:
            return
        self._closed = self._accumulator.closed = True
        with self._guard:
            batches = self._accumulator.clear()
        for batch in batches:
            self._finish(batch, KcoreError("the producer was closed before the record was stored"))
        self._wakeup.set()
        self._room.set()
        self._idle.set()
        self._calls.transport.close_channel(self._channel)

    # ---- sending

    def _start(self) -> None:
        with self._guard:
            if self._started:
                return
            self._started = True
        self._calls.resources[self] = None
        spawn(self._send_loop)

    async def _send_loop(self) -> None:
        while not self._closed:
            try:
                if self._id[0] < 0 and self._accumulator.size and self._acks == ACKS_ALL:
                    await self._initialize()
                pause_s = await self._send_ready()
            except (KafkaError, ConnectionClosedError, TimeoutError) as error:
                pause_s = backoff_s(0)
                self._expire(monotonic(), error)
            await self._wakeup.wait(pause_s)
            self._wakeup.clear()

    async def _initialize(self) -> None:
        """Gets a producer id."""

        def read(response: Any) -> tuple[int, int]:
            if response.error_code:
                raise KafkaError.of(response.error_code)
            return response.producer_id, response.producer_epoch

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=MAX_SEQUENCE)
        self._id = await self._calls.call(request, read, at_most=5)

    async def _send_ready(self) -> float | None:
        """Sends the batches that are due. Returns the time until the next one; None: none waits."""
        now_s = monotonic()
        self._expire(now_s, None)
        ready: list[TopicPartition] = []
        pause_s: float | None = None
        with self._guard:
            for place, queue in list(self._accumulator.queues.items()):
                if not queue.batches or queue.sending:
                    continue
                batch = queue.batches[0]
                full = batch.size >= self._batch_bytes or len(queue.batches) > 1 or self._flushing > 0
                due_s = max(queue.not_before_s, 0.0 if full or batch.attempts else batch.created_s + self._linger_s)
                if due_s <= now_s:
                    ready.append(place)
                else:
                    pause_s = due_s - now_s if pause_s is None else min(pause_s, due_s - now_s)
        if ready:
            for broker, partitions in await self._leaders(ready):
                if broker not in self._busy:
                    self._busy.add(broker)
                    spawn(self._send, broker, partitions)
        return pause_s

    async def _leaders(self, ready: list[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        try:
            return await self._calls.transport.by_leader(ready)
        except KafkaError as error:
            for place in ready:
                if not error.partitions or place in error.partitions:
                    self._later(place)
            raise

    def _later(self, place: TopicPartition) -> None:
        queue = self._accumulator.queues.get(place)
        if queue is not None and queue.batches:
            queue.batches[0].attempts += 1
            queue.not_before_s = monotonic() + backoff_s(queue.batches[0].attempts - 1)

    def _expire(self, now_s: float, error: Exception | None) -> None:
        """Fails batches whose time limit has passed."""
        for place, queue in list(self._accumulator.queues.items()):
            while queue.batches and not queue.sending and now_s - queue.batches[0].created_s > self._timeout_s:
                late = TimeoutError(f"{place}: the batch was not stored within {self._timeout_s:g} s")
                late.__cause__ = error
                if queue.batches[0].sequence is not None:
                    queue.sequence = (-1, -1, 0)  # the broker may have stored it: the next batch begins a new sequence
                    self._id = (-1, -1)
                self._complete(place, queue.batches[0], late)

    async def _send(self, broker: Broker, partitions: list[TopicPartition]) -> None:
        """Sends the first batch of each partition to their leader."""
        batches: dict[TopicPartition, ProducerBatch] = {}
        encoded: dict[TopicPartition, bytes] = {}
        size = 0
        with self._guard:
            for place in partitions:
                queue = self._accumulator.queues.get(place)
                if queue is None or not queue.batches or queue.sending:
                    continue
                batch = queue.batches[0]
                if batches and size + batch.size > REQUEST_BYTES:
                    break
                queue.sending = True
                size += batch.size
                batches[place] = batch
                self._assign_sequence(queue, batch)
        try:
            for place, batch in batches.items():
                assert batch.sequence is not None, "a batch that is sent has a sequence"
                encoded[place] = batch.build(*batch.sequence)
            request = produce_request(encoded, self._acks, REQUEST_TIMEOUT_MS)
            response = await self._calls.transport.send(
                request, at_most=versions.PRODUCE, broker=broker, channel=self._channel
            )
            for topic in response.responses:
                for row in topic.partition_responses:
                    place = TopicPartition(topic.name, row.index)
                    self._stored(place, batches.pop(place), row, request)
        except (ConnectionClosedError, TimeoutError):
            self._calls.transport.forget(produce_request(encoded, ACKS_ALL, REQUEST_TIMEOUT_MS))
        except Exception as error:
            for place, batch in batches.items():
                self._accumulator.queues[place].sending = False
                self._complete(place, batch, error)
            batches = {}
        finally:
            for place in batches:  # no response: the same batches are sent again
                queue = self._accumulator.queues.get(place)
                if queue is not None:
                    queue.sending = False
                    self._later(place)
            self._busy.discard(broker)
            self._wakeup.set()

    def _assign_sequence(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if self._acks != ACKS_ALL:
            queue.assign(batch, (-1, -1, -1))
        elif batch.sequence is None:
            if queue.sequence[:2] != self._id:
                queue.sequence = (*self._id, 0)
            producer_id, epoch, base = queue.sequence
            queue.assign(batch, queue.sequence)
            queue.sequence = (producer_id, epoch, (base + batch.count) & MAX_SEQUENCE)

    def _stored(self, place: TopicPartition, batch: ProducerBatch, row: Any, request: Any) -> None:
        """Handles the result of one batch."""
        queue = self._accumulator.queues.get(place)
        if queue is None:
            return
        queue.sending = False
        code = row.error_code
        if not code or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            batch.base_offset = row.base_offset if not code else -1
            batch.log_time_ms = row.log_append_time_ms
            self._complete(place, batch, None)
        elif code in BUMPED and batch.attempts < 3:
            self._restart_sequences(queue)
            self._later(place)
        elif code in RETRIABLE:
            self._calls.transport.forget(request)
            self._later(place)
        else:
            self._restart_sequences(queue)
            self._complete(place, batch, KafkaError.of(code, row.error_message, [place]))

    def _restart_sequences(self, queue: PartitionQueue) -> None:
        """Makes the partition's batches begin a new sequence, under a new producer id."""
        self._id = (-1, -1)
        queue.sequence = (-1, -1, 0)
        for batch in queue.batches:
            batch.sequence = None

    def _complete(self, place: TopicPartition, batch: ProducerBatch, error: Exception | None) -> None:
        with self._guard:
            queue = self._accumulator.queues.get(place)
            if queue is not None:
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
