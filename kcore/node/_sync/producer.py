# Made by tools/generate_sync.py from _async/producer.py: change that file, then run the program.
"""Producers: batches by size and time, pipelined requests, one idempotent sequence for each partition."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

from kcore.client import delivery as order
from kcore.client import versions
from kcore.client.aio.broker import Broker
from kcore.client.missing_topics import MISSING, MissingTopics
from kcore.errors import ConnectionClosedError, KafkaError, KcoreError
from kcore.node._sync.backend import Event, SingleTask, guard, let_others_run, monotonic, running_loop, sleep
from kcore.node._sync.calls import Calls, backoff_s
from kcore.node._sync.delivery import Delivery
from kcore.node.arguments import check_partition_number, check_text
from kcore.node.interceptors import UNKNOWN, ProducerInterceptor, ProducerRecord, intercept, notify
from kcore.node.requests import NEW_TOPIC_TIMEOUT_S, error_about, produce_request, record_size
from kcore.node.types import HeaderList, RecordMetadata, TopicPartition, to_bytes, to_ms
from kcore.protocol.compression import CompressionType, compress
from kcore.protocol.error_codes import NEW_TOPIC_ERRORS, RETRIABLE, ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore_ext.client.accumulator import Accumulator, PartitionQueue, ProducerBatch

logger = logging.getLogger(__name__)

ACKS_ALL = -1
REQUEST_BYTES = 1 << 20
REQUEST_TIMEOUT_MS = 30_000
NO_TIMEOUT_MS = 0x7FFFFFFF
NO_PRODUCER = (-1, -1)
GATHER_S = 0.01
"""Minimum time in seconds between two requests to a broker that has not responded to the first one."""
SHORTEST_PAUSE_S = 0.0001  # of the send loop: a timer may fire early, and the loop would then run many times


class SentBatches(NamedTuple):
    """The batches of one request to a broker.

    Attributes:
        broker: the leader that receives the request.
        request: the Produce request.
        batches: for each partition, its queue and the batch that the request contains.
    """

    broker: Broker
    request: Any
    batches: dict[TopicPartition, tuple[PartitionQueue, ProducerBatch]]


class Producer:
    """A producer that appends records in batches. `node.producer()` creates it; use it with `with`, or call `flush`.

    The broker stores each record of a partition once, in the order of the `append` calls. If a response is lost, the
    producer repeats the batch with the same sequence, so that the broker recognizes the repetition (KIP-98).

    Args:
        calls: the node's requests.
        linger_s: the time for which a batch waits for more records.
        batch_bytes: the size at which a batch is sent at once.
        buffer_bytes: the total size of all batches at which `append` begins to wait.
        compression: the codec with which batches are compressed.
        timeout_s: the time limit of a record, from its batch's creation on.
        acks: -1 for all in-sync replicas; 1 for the leader alone, without protection against repeated records.
        create_topics: True to let the server create missing topics, if its settings allow that.
        interceptors: called with each record before it is appended, and with its result.
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
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> None:
        self._calls = calls
        self._linger_s = linger_s
        self._batch_bytes = batch_bytes
        self._timeout_s = timeout_s
        self._acks = acks
        self._create_topics = create_topics
        self._interceptors = interceptors
        self._intercepted: dict[ProducerBatch, list[Delivery]] = {}
        self._guard = guard()
        self._wakeup = Event()
        self._room = Event()
        self._idle = Event()
        self._accumulator = Accumulator(
            Delivery,
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
            clock_ms=calls.transport.clock_ms,
            loop=calls.loop,
            running_loop=running_loop,
        )
        self._flushing = 0
        self._in_flight: dict[Broker, int] = {}
        self._sent_s: dict[Broker, float] = {}
        self._responses: deque[tuple[SentBatches, Any, BaseException | None]] = deque()
        self._id = NO_PRODUCER
        self._max_in_flight = order.MAX_IN_FLIGHT if acks == ACKS_ALL else 1  # only sequences keep the order of more
        self._started = False
        self._sending = SingleTask(self._send_loop)
        self._closed = False
        self._errors: list[Exception] = []
        self._missing = MissingTopics()
        # the errors after which the oldest batches of partitions are sent again
        self._repeated: dict[TopicPartition, BaseException] = {}
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
        timestamp: datetime | float | None = None,
    ) -> Delivery:
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
        timestamp_ms = None if timestamp is None else to_ms(timestamp)
        if self._interceptors:
            return self._append_intercepted(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
        try:
            # A second coroutine would double the time of this call.
            delivery = self._accumulator.append(topic, value, key, headers, partition, timestamp_ms)
            if delivery is None:
                delivery = self._append(topic, value, key, headers, partition, timestamp_ms)
        except (TypeError, OverflowError):  # the errors of the compiled code do not name the argument
            check_text("the name of a topic", topic)
            if partition is not None:
                check_partition_number(partition)
            raise
        return delivery  # type: ignore[no-any-return]

    def _append_intercepted(self, record: ProducerRecord) -> Delivery:
        """Appends the record that the interceptors return. Stores the `Delivery`, whose result they receive later."""
        record = intercept([each.on_send for each in self._interceptors], record)
        try:
            delivery = self._append(
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

    def _acknowledge_delivery(self, delivery: Delivery, error: Exception | None) -> None:
        topic, partition = delivery.partition
        offset = delivery.offset if error is None else UNKNOWN
        self._acknowledge(RecordMetadata(topic, partition, offset, delivery.timestamp_ms), error)

    def _acknowledge(self, metadata: RecordMetadata, error: Exception | None) -> None:
        notify(partial(each.on_acknowledgement, metadata, error) for each in self._interceptors)

    def _finish(self, batch: ProducerBatch, error: Exception | None) -> None:
        """Completes a batch, and passes the result of each record to the interceptors."""
        with self._guard:
            batch.complete(error)
            deliveries = self._intercepted.pop(batch, ())
        for delivery in deliveries:
            self._acknowledge_delivery(delivery, error)

    def _append(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: HeaderList,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        delivery = self._accumulator.append(topic, value, key, headers, partition, timestamp_ms)
        while delivery is None:
            self._prepare(topic, partition or 0)
            delivery = self._accumulator.append(topic, value, key, headers, partition, timestamp_ms)
        return delivery  # type: ignore[no-any-return]

    def _prepare(self, topic: str, partition: int) -> None:
        """Waits until the accumulator accepts a record."""
        self._calls.require_owner()
        accumulator = self._accumulator
        if self._closed:
            raise KcoreError("the producer is closed")
        if not accumulator.knows(topic, partition):
            self.look_up(topic)
            if not accumulator.knows(topic, partition):
                missing = [TopicPartition(topic, partition)]
                raise KafkaError.of(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic!r} has no partition {partition}", missing
                )
        elif accumulator.full:
            self._wait_for_room()
        else:  # so that the send loop runs
            let_others_run()
        accumulator.rest()

    def _on_batch(self) -> None:
        """Wakes the sender after the first record of a batch."""
        self._start()
        self._wakeup.set()

    def look_up(self, topic: str) -> None:
        """Looks a topic up, so that the first `append` to it does not wait for the lookup.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist, and the server does not create it.
        """
        until_s = monotonic() + (NEW_TOPIC_TIMEOUT_S if self._create_topics else 0.0)
        while True:
            (row,) = (self._calls.metadata([topic], self._create_topics)).topics
            if not row.error_code and row.partitions:
                with self._guard:
                    self._accumulator.add_topic(topic, len(row.partitions))
                return
            if row.error_code not in NEW_TOPIC_ERRORS or monotonic() >= until_s:
                raise error_about(row.error_code, f"topic {topic!r}")
            sleep(0.1)

    def _wait_for_room(self) -> None:
        until_s = monotonic() + self._timeout_s
        while self._accumulator.full:
            self._room.clear()
            if not self._room.wait(until_s - monotonic()):
                raise TimeoutError("the producer's buffer is full: the brokers do not store its records in time")

    def flush(self) -> None:
        """Sends all records and waits until they are stored.

        Raises:
            KafkaError, TimeoutError: the first error of a record since the last call of `flush`.
            KcoreError: the producer was closed before a record was stored.
        """
        if not self._closed:
            self._start()
        with self._guard:
            self._flushing += 1
        try:
            while self._accumulator.size:
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
        if self._closed or self._calls.forked or self._calls.loop_ended:
            return
        self._calls.require_owner()
        self._calls.resources.pop(self, None)
        self._closed = self._accumulator.closed = True
        with self._guard:
            batches = self._accumulator.clear()
        lost = KcoreError("the producer was closed before the record was stored")
        if batches:
            self._errors.append(lost)  # `flush` raises it, for example if another thread has closed the node
        for batch in batches:
            self._finish(batch, lost)
        self._wakeup.set()
        self._room.set()
        self._idle.set()
        self._calls.transport.close_channel(self._channel)

    # ---- sending

    def _start(self) -> None:
        self._calls.require_owner()
        with self._guard:
            if self._started:
                return
            self._calls.add_resource(self)
            self._started = True
        try:
            self._sending.start()
        except BaseException:
            self._started = False  # the next call tries again
            raise

    def _send_loop(self) -> None:
        while not self._closed:
            try:
                self._handle_responses()
                if self._lacks_id and self._accumulator.size:
                    self._initialize()
                pause_s = self._send_ready()
            except (KafkaError, ConnectionClosedError, TimeoutError) as error:
                pause_s = backoff_s(0)
                self._expire(monotonic(), error)
            except Exception as error:  # for example MemoryError; if the loop ended, no wait would end
                logger.exception(
                    "client: an internal error of the producer with producer id %d; the producer tries again until its "
                    "records expire; please report the error",
                    self._id[0],
                )
                pause_s = backoff_s(0)
                self._expire(monotonic(), error)
            self._wakeup.wait(pause_s)
            self._wakeup.clear()

    @property
    def _lacks_id(self) -> bool:
        """True while the producer has no producer id, and therefore sends no batches."""
        return self._acks == ACKS_ALL and self._id[0] < 0

    def _initialize(self) -> None:
        """Requests a producer id."""

        def read(response: Any) -> tuple[int, int]:
            if response.error_code:
                raise KafkaError.of(response.error_code)
            return response.producer_id, response.producer_epoch

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TIMEOUT_MS)
        self._id = self._calls.call(request, read, at_most=versions.INIT_PRODUCER_ID)

    def _send_ready(self) -> float | None:
        """Sends the batches that are due.

        Returns the seconds until the next batch is due; None if no batch has a due time in the future.
        """
        now_s = monotonic()
        self._expire(now_s, None)
        ready: list[TopicPartition] = []
        pause_s: float | None = None
        with self._guard:
            for partition, queue in list(self._accumulator.queues.items()):
                batch = order.next_batch(queue, self._id, self._max_in_flight)
                if batch is None or (due_s := self._due_s(queue, batch)) is None:
                    continue
                if due_s <= now_s:
                    ready.append(partition)
                else:
                    wait_s = max(due_s - now_s, SHORTEST_PAUSE_S)
                    pause_s = wait_s if pause_s is None else min(pause_s, wait_s)
        if ready:
            for broker, partitions in self._leaders(ready):
                in_flight = self._in_flight.get(broker, 0)
                wait_s = self._sent_s.get(broker, 0.0) + GATHER_S - now_s if in_flight else 0.0
                if wait_s > 0:
                    wait_s = max(wait_s, SHORTEST_PAUSE_S)
                    pause_s = wait_s if pause_s is None else min(pause_s, wait_s)
                elif in_flight < order.MAX_IN_FLIGHT and self._send(broker, partitions):
                    self._sent_s[broker] = now_s
                    pause_s = GATHER_S if pause_s is None else min(pause_s, GATHER_S)  # more batches may be due then
        return pause_s

    def _due_s(self, queue: PartitionQueue, batch: ProducerBatch) -> float | None:
        """Returns the time to send a batch, in seconds; None if it must wait for the response to an earlier batch."""
        full = batch.size >= self._batch_bytes or batch is not queue.batches[-1] or self._flushing > 0
        if full or batch.attempts:
            return queue.not_before_s
        if batch is not queue.batches[0] and not self._linger_s:
            return None  # the batch grows while the previous batch is being stored
        return max(queue.not_before_s, batch.created_s + self._linger_s)

    def _leaders(self, ready: list[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        try:
            return self._calls.transport.by_leader(ready)
        except KafkaError as error:
            for partition in ready:
                queue = self._accumulator.queues.get(partition)
                if queue is not None and queue.batches and (not error.partitions or partition in error.partitions):
                    self._warn_if_missing(queue, error.code)
                    self._postpone(queue, queue.batches[0])
            raise

    def _postpone(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Postpones the next attempt to send a batch."""
        batch.attempts += 1
        queue.not_before_s = monotonic() + backoff_s(batch.attempts - 1)

    def _warn_if_missing(self, queue: PartitionQueue, code: int) -> None:
        """Logs a warning if the error means that the topic does not exist. The records wait until they expire."""
        topic = queue.partition.topic
        if code in MISSING and self._missing.missing(topic, monotonic()):
            logger.warning(
                "client: a producer has records of topic %r, which the brokers do not know; "
                "the records fail %g s after their append unless the topic is created",
                topic,
                self._timeout_s,
            )

    def _expire(self, now_s: float, error: Exception | None) -> None:
        """Fails batches whose time limit has passed, except batches whose response has not arrived yet."""
        for partition, queue in list(self._accumulator.queues.items()):
            while queue.batches:
                batch = queue.batches[0]
                if batch.in_flight or now_s - batch.created_s <= self._timeout_s:
                    break
                cause = error or self._repeated.get(partition)
                last = "" if cause is None else f"; the last attempt failed: {cause}"
                late = TimeoutError(f"{partition}: the batch was not stored within {self._timeout_s:g} s{last}")
                late.__cause__ = cause
                self._fail(queue, batch, late)

    def _send(self, broker: Broker, partitions: list[TopicPartition]) -> bool:
        """Sends the next batches of partitions to their leader, `broker`. Returns False if no batch was sent."""
        batches: dict[TopicPartition, tuple[PartitionQueue, ProducerBatch]] = {}
        size = 0
        if self._lacks_id:
            return False
        with self._guard:
            for partition in partitions:
                queue = self._accumulator.queues.get(partition)
                batch = None if queue is None else order.next_batch(queue, self._id, self._max_in_flight)
                if queue is None or batch is None:
                    continue
                if batches and size + batch.size > REQUEST_BYTES:
                    break
                size += batch.size
                order.assign_sequence(queue, batch, self._id if self._acks == ACKS_ALL else NO_PRODUCER)
                batches[partition] = queue, batch
        encoded: dict[TopicPartition, bytes] = {}
        for partition, (queue, batch) in list(batches.items()):
            try:
                encoded[partition] = self._encode(batch)
            except Exception as error:
                del batches[partition]
                self._fail(queue, batch, error)
        if not batches:
            return False
        sent = SentBatches(broker, produce_request(encoded, self._acks, REQUEST_TIMEOUT_MS), batches)
        on_done = partial(self._receive, sent)
        for _, batch in batches.values():
            batch.in_flight = True
        self._in_flight[broker] = self._in_flight.get(broker, 0) + 1
        try:
            # Only this loop starts requests, so they are sent in the order of their sequences.
            self._calls.transport.start(
                sent.request, on_done, at_most=versions.PRODUCE, broker=broker, channel=self._channel
            )
        except Exception as error:  # the batches fail, because no response will arrive
            on_done(None, error)
        return True

    def _encode(self, batch: ProducerBatch) -> bytes:
        assert batch.sequence is not None, "a batch that is sent has a sequence"
        return batch.build(*batch.sequence) if self._acks == ACKS_ALL else batch.build(*NO_PRODUCER, -1)

    def _receive(self, sent: SentBatches, response: Any, error: BaseException | None) -> None:
        """Stores the result of a request for the send loop. Another thread may call this method."""
        self._responses.append((sent, response, error))
        self._wakeup.set()

    def _handle_responses(self) -> None:
        while self._responses and not self._closed:
            sent, response, error = self._responses.popleft()
            self._in_flight[sent.broker] -= 1
            try:
                self._handle_response(sent, response, error)
            except Exception as failure:
                # The other batches of the request count as lost: the broker recognizes those that it has stored.
                batches = {key: (queue, batch) for key, (queue, batch) in sent.batches.items() if batch.in_flight}
                lost = ConnectionClosedError(f"the response was lost: {failure!r}")
                self._handle_response(sent._replace(batches=batches), None, lost)
                raise

    def _handle_response(self, sent: SentBatches, response: Any, error: BaseException | None) -> None:
        """Completes or repeats the batches of a request, depending on its response or error."""
        batches = dict(sent.batches)
        if error is None:
            for topic in response.responses:
                for row in topic.partition_responses:
                    entry = batches.pop(TopicPartition(topic.name, row.index), None)
                    if entry is not None:
                        self._handle_row(*entry, row, sent)
        elif not isinstance(error, ConnectionClosedError | TimeoutError):
            for queue, batch in batches.values():
                batch.in_flight = False
                self._fail(queue, batch, error if isinstance(error, Exception) else KcoreError(repr(error)))
            return
        if batches:
            self._calls.transport.forget(sent.request)
        for queue, batch in batches.values():  # no response: the same batches are sent again
            batch.may_be_stored = True
            if error is not None:
                self._repeated[queue.partition] = error
            self._renew_after(order.note_unsent(queue, batch))
            self._postpone(queue, batch)

    def _handle_row(self, queue: PartitionQueue, batch: ProducerBatch, row: Any, sent: SentBatches) -> None:
        """Completes, repeats or splits a batch, depending on its entry `row` in the response."""
        code = row.error_code
        if not code or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            batch.in_flight = False
            self._missing.found(queue.partition.topic)
            if self._repeated:
                self._repeated.pop(queue.partition, None)
            batch.base_offset = row.base_offset if not code else -1
            batch.log_time_ms = row.log_append_time_ms
            self._complete(queue, batch, None)
            self._renew_after(order.note_stored(queue))
        elif code in order.OUT_OF_ORDER and self._acks == ACKS_ALL:
            is_first = queue.batches[0] is batch
            self._renew_after(order.note_out_of_order(queue, batch))
            if is_first:
                self._postpone(queue, batch)
        elif code in RETRIABLE:
            self._warn_if_missing(queue, code)
            self._repeated[queue.partition] = KafkaError.of(code, row.error_message)
            batch.may_be_stored = batch.may_be_stored or code not in order.NOT_STORED
            self._calls.transport.forget(sent.request)
            self._renew_after(order.note_unsent(queue, batch))
            self._postpone(queue, batch)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1 and not batch.may_be_stored:
            self._split(queue, batch)
        else:
            batch.in_flight = False
            self._fail(queue, batch, KafkaError.of(code, row.error_message, [queue.partition]))

    def _split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Replaces a batch that is too large for the broker by smaller batches.

        The producer does not split a batch that the broker may have stored: the broker would not recognize the smaller
        batches, and would store their records again.
        """
        with self._guard:
            if self._closed:
                return
            try:
                parts = self._accumulator.split(queue, batch)
            except MemoryError as error:
                failure: Exception | None = error
            else:
                failure, ended = None, order.note_split(queue, batch, parts)
                for delivery in self._intercepted.pop(batch, ()):
                    self._intercepted.setdefault(delivery.batch, []).append(delivery)
        if failure is None:
            self._renew_after(ended)
        else:
            batch.in_flight = False
            self._fail(queue, batch, failure)

    def _fail(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        """Completes a batch with an error. Requests a new producer id if the partition needs one."""
        self._complete(queue, batch, error)
        self._renew_after(order.note_failed(queue, batch))

    def _renew_after(self, ended: bool) -> None:
        """Requests a new producer id before the next batch if the sequence of a partition has ended."""
        if ended:
            self._id = NO_PRODUCER
            self._wakeup.set()  # the send loop requests the id in its next turn

    def _complete(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception | None) -> None:
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
