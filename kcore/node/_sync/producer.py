# Made by tools/generate_sync.py from _async/producer.py: change that file, then run the program.
"""Producers: batches by size and time, one idempotent sequence for each partition, and retries in order."""

from __future__ import annotations

import random
import time
from collections import deque
from types import TracebackType
from typing import Any

from kcore.client.aio.broker import Broker
from kcore.client.partitioner import partition_of
from kcore.errors import ConnectionClosedError, KafkaError, KcoreError
from kcore.node import versions
from kcore.node._sync.backend import Event, guard, monotonic, sleep, spawn
from kcore.node._sync.calls import Calls, backoff_s
from kcore.node.requests import build_batch, produce_request, record_size
from kcore.node.types import HeaderList, RecordMetadata, TopicPartition, to_bytes
from kcore.protocol.compression import CompressionType
from kcore.protocol.error_codes import RETRIABLE, ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest

ACKS_ALL = -1
REQUEST_BYTES = 1 << 20
REQUEST_TIMEOUT_MS = 30_000
MAX_SEQUENCE = 0x7FFFFFFF
NEW_TOPIC_S = 10.0
BEING_CREATED = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})
BUMPED = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""Errors after which an idempotent producer begins a new sequence."""


class Batch:
    """Records of one partition that are sent together.

    Attributes:
        rows: timestamp in ms, key, value and headers of each record.
        size: an upper bound of the encoded size.
        created_s: the time of the first record.
        done: set when the batch is stored, or has failed.
        error: the reason of the failure.
        base_offset: the offset of its first record.
        sequence: the producer id, epoch and first sequence; None: not sent yet.
    """

    __slots__ = ("attempts", "base_offset", "created_s", "done", "error", "log_time_ms", "rows", "sequence", "size")

    def __init__(self, created_s: float) -> None:
        self.rows: list[tuple[int, bytes | None, bytes | None, HeaderList]] = []
        self.size = 0
        self.created_s = created_s
        self.done = Event()
        self.error: Exception | None = None
        self.base_offset = -1
        self.log_time_ms = -1
        self.sequence: tuple[int, int, int] | None = None
        self.attempts = 0


class Delivery:
    """The result of one record: `producer.append` returns it at once, `result` waits for it."""

    __slots__ = ("_batch", "_index", "_partition")

    def __init__(self, partition: TopicPartition, batch: Batch, index: int) -> None:
        self._partition = partition
        self._batch = batch
        self._index = index

    @property
    def done(self) -> bool:
        """True once the record is stored, or has failed."""
        return self._batch.done.is_set()

    def result(self) -> RecordMetadata:
        """Waits until the record is stored, and returns its place.

        Raises:
            KafkaError: the server refused the record's batch.
            TimeoutError: the batch was not stored in time.
        """
        batch = self._batch
        batch.done.wait()
        if batch.error is not None:
            raise batch.error
        time_ms = batch.log_time_ms if batch.log_time_ms >= 0 else batch.rows[self._index][0]
        offset = batch.base_offset + self._index if batch.base_offset >= 0 else -1
        return RecordMetadata(*self._partition, offset, time_ms)


class Queue:
    """The batches of one partition. One batch at a time is sent, so that retries keep the order."""

    __slots__ = ("batches", "not_before_s", "sending", "sequence")

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.sending = False
        self.not_before_s = 0.0
        self.sequence = (-1, -1, 0)  # producer id, epoch, next sequence


class Producer:
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
    """

    def __init__(
        self,
        calls: Calls,
        linger_s: float,
        batch_bytes: int,
        buffer_bytes: int,
        compression: CompressionType,
        timeout_s: float,
        acks: int = ACKS_ALL,
        create_topics: bool = False,
    ) -> None:
        self._calls = calls
        self._linger_s = linger_s
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._compression = compression
        self._timeout_s = timeout_s
        self._acks = acks
        self._create_topics = create_topics
        self._guard = guard()
        self._wakeup = Event()
        self._room = Event()
        self._idle = Event()
        self._queues: dict[TopicPartition, Queue] = {}
        self._counts: dict[str, int] = {}
        self._sticky: dict[str, tuple[int, int]] = {}  # topic -> partition of records without a key, bytes so far
        self._size = 0
        self._flushing = 0
        self._busy: set[Broker] = set()
        self._id = (-1, -1)
        self._started = False
        self._closed = False
        self._errors: list[Exception] = []
        self._channel = f"producer-{id(self)}"

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def append(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        *,
        headers: HeaderList = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
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
        data = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else to_bytes(value)
        name = key.encode() if isinstance(key, str) else key if isinstance(key, bytes) else to_bytes(key)
        if self._closed:
            raise KcoreError("the producer is closed")
        if topic not in self._counts:
            self.look_up(topic)
        if self._size >= self._buffer_bytes:
            self._wait_for_room()
        size = record_size(name, data, headers)
        with self._guard:
            if partition is None:
                partition = self._choose(topic, name, size)
            place = TopicPartition(topic, partition)
            queue = self._queues.get(place)
            if queue is None:
                queue = self._queues[place] = Queue()
            batches = queue.batches
            batch = batches[-1] if batches else None
            if batch is None or batch.sequence is not None or batch.size + size > self._batch_bytes:
                batch = Batch(monotonic())
                batches.append(batch)
            batch.rows.append(
                (time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms, name, data, headers)
            )
            batch.size += size
            self._size += size
            delivery = Delivery(place, batch, len(batch.rows) - 1)
            wake = len(batch.rows) == 1 or batch.size >= self._batch_bytes
        if wake:
            self._start()
            self._wakeup.set()
        return delivery

    def look_up(self, topic: str) -> None:
        """Looks a topic up, which the first `append` does otherwise.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist, and is not created.
        """
        until_s = monotonic() + (NEW_TOPIC_S if self._create_topics else 0.0)
        while True:
            (row,) = (self._calls.transport.metadata([topic], self._create_topics)).topics
            if not row.error_code and row.partitions:
                self._counts[topic] = len(row.partitions)
                return
            if row.error_code not in BEING_CREATED or monotonic() >= until_s:
                raise KafkaError.of(row.error_code, f"topic {topic!r}")
            sleep(0.1)

    def _wait_for_room(self) -> None:
        until_s = monotonic() + self._timeout_s
        while self._size >= self._buffer_bytes:
            self._room.clear()
            if not self._room.wait(until_s - monotonic()):
                raise TimeoutError("the producer's buffer is full: the brokers do not store its records in time")

    def _choose(self, topic: str, key: bytes | None, size: int) -> int:
        count = self._counts[topic]
        if key is not None:
            return partition_of(key, count)
        partition, filled = self._sticky.get(topic, (-1, 0))
        if partition < 0 or filled + size > self._batch_bytes:
            partition, filled = random.randrange(count), 0
        self._sticky[topic] = (partition, filled + size)
        return partition

    def flush(self) -> None:
        """Sends all records and waits until they are stored.

        Raises:
            KafkaError, TimeoutError: records could not be stored, since the last call; the first of the errors.
        """
        self._start()
        with self._guard:
            self._flushing += 1
        try:
            while self._size:
                self._idle.clear()
                self._wakeup.set()
                self._idle.wait(0.1)
        finally:
            with self._guard:
                self._flushing -= 1
                errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Ends the producer; records that were not flushed are lost."""
        self._calls.resources.pop(self, None)
        if self._closed:
            return
        self._closed = True
        with self._guard:
            for queue in self._queues.values():
                for batch in queue.batches:
                    batch.error = KcoreError("the producer was closed before the record was stored")
                    batch.done.set()
            self._queues.clear()
            self._size = 0
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

    def _send_loop(self) -> None:
        while not self._closed:
            try:
                if self._id[0] < 0 and self._size and self._acks == ACKS_ALL:
                    self._initialize()
                pause_s = self._send_ready()
            except (KafkaError, ConnectionClosedError, TimeoutError) as error:
                pause_s = backoff_s(0)
                self._expire(monotonic(), error)
            self._wakeup.wait(pause_s)
            self._wakeup.clear()

    def _initialize(self) -> None:
        """Gets a producer id."""

        def read(response: Any) -> tuple[int, int]:
            if response.error_code:
                raise KafkaError.of(response.error_code)
            return response.producer_id, response.producer_epoch

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=MAX_SEQUENCE)
        self._id = self._calls.call(request, read, at_most=5)

    def _send_ready(self) -> float | None:
        """Sends the batches that are due. Returns the time until the next one; None: none waits."""
        now_s = monotonic()
        self._expire(now_s, None)
        ready: list[TopicPartition] = []
        pause_s: float | None = None
        with self._guard:
            for place, queue in self._queues.items():
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
            for broker, partitions in self._leaders(ready):
                if broker not in self._busy:
                    self._busy.add(broker)
                    spawn(self._send, broker, partitions)
        return pause_s

    def _leaders(self, ready: list[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        try:
            return self._calls.transport.by_leader(ready)
        except KafkaError as error:
            for place in ready:
                if not error.partitions or place in error.partitions:
                    self._later(place)
            raise

    def _later(self, place: TopicPartition) -> None:
        queue = self._queues.get(place)
        if queue is not None and queue.batches:
            queue.batches[0].attempts += 1
            queue.not_before_s = monotonic() + backoff_s(queue.batches[0].attempts - 1)

    def _expire(self, now_s: float, error: Exception | None) -> None:
        """Fails batches whose time limit has passed."""
        for place, queue in list(self._queues.items()):
            while queue.batches and not queue.sending and now_s - queue.batches[0].created_s > self._timeout_s:
                late = TimeoutError(f"{place}: the batch was not stored within {self._timeout_s:g} s")
                late.__cause__ = error
                if queue.batches[0].sequence is not None:
                    queue.sequence = (-1, -1, 0)  # the broker may have stored it: the next batch begins a new sequence
                    self._id = (-1, -1)
                self._complete(place, queue.batches[0], late)

    def _send(self, broker: Broker, partitions: list[TopicPartition]) -> None:
        """Sends the first batch of each partition to their leader."""
        batches: dict[TopicPartition, Batch] = {}
        encoded: dict[TopicPartition, bytes] = {}
        size = 0
        with self._guard:
            for place in partitions:
                queue = self._queues.get(place)
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
                producer_id, epoch, base = batch.sequence
                encoded[place] = build_batch(
                    batch.rows,
                    self._compression,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=base,
                    size_bytes=batch.size,
                )
            request = produce_request(encoded, self._acks, REQUEST_TIMEOUT_MS)
            response = self._calls.transport.send(
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
                self._queues[place].sending = False
                self._complete(place, batch, error)
            batches = {}
        finally:
            for place in batches:  # no response: the same batches are sent again
                if place in self._queues:
                    self._queues[place].sending = False
                    self._later(place)
            self._busy.discard(broker)
            self._wakeup.set()

    def _assign_sequence(self, queue: Queue, batch: Batch) -> None:
        if self._acks != ACKS_ALL:
            batch.sequence = (-1, -1, -1)
        elif batch.sequence is None:
            if queue.sequence[:2] != self._id:
                queue.sequence = (*self._id, 0)
            producer_id, epoch, base = queue.sequence
            batch.sequence = queue.sequence
            queue.sequence = (producer_id, epoch, (base + len(batch.rows)) & MAX_SEQUENCE)

    def _stored(self, place: TopicPartition, batch: Batch, row: Any, request: Any) -> None:
        """Handles the result of one batch."""
        queue = self._queues.get(place)
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

    def _restart_sequences(self, queue: Queue) -> None:
        """Makes the partition's batches begin a new sequence, under a new producer id."""
        self._id = (-1, -1)
        queue.sequence = (-1, -1, 0)
        for batch in queue.batches:
            batch.sequence = None

    def _complete(self, place: TopicPartition, batch: Batch, error: Exception | None) -> None:
        with self._guard:
            queue = self._queues.get(place)
            if queue is not None and queue.batches and queue.batches[0] is batch:
                queue.batches.popleft()
                self._size -= batch.size
            batch.error = error
            if error is not None:
                self._errors.append(error)
        batch.done.set()
        self._room.set()
        if not self._size:
            self._idle.set()
