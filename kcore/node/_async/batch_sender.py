"""The sending side of a producer: one loop, pipelined requests, and repetitions after errors."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from kcore.client import delivery as order
from kcore.client import versions
from kcore.client.aio.broker import Broker
from kcore.client.missing_topics import MISSING, MissingTopics
from kcore.client.producer_settings import ProducerSettings
from kcore.errors import ConnectionClosedError, KafkaError, KcoreError
from kcore.node._async.backend import Event, SingleTask, monotonic
from kcore.node._async.calls import AsyncCalls, backoff_s
from kcore.node.requests import produce_request
from kcore.node.types import TopicPartition
from kcore.protocol.error_codes import RETRIABLE, ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore_ext.client.accumulator import Accumulator, PartitionQueue, ProducerBatch

logger = logging.getLogger(__name__)

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


class AsyncBatchSender:
    """A background loop that sends a producer's batches to the leaders of their partitions, and repeats lost batches.

    Args:
        calls: the node's requests.
        accumulator: the batches of the producer.
        settings: the settings of the producer.
        guard: a lock that the producer and this object hold while they use the accumulator.
        on_completed: called with each batch that is stored, or with its error. It removes the batch.
        on_split: called with each batch that smaller batches have replaced, while the guard is held.

    Attributes:
        channel: the name of the connections on which the batches are sent.
        flushing: the number of callers that wait for all batches. While there are any, no batch waits for more records.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        accumulator: Accumulator,
        settings: ProducerSettings,
        guard: AbstractContextManager[Any],
        on_completed: Callable[[PartitionQueue, ProducerBatch, Exception | None], None],
        on_split: Callable[[ProducerBatch], None],
    ) -> None:
        self._calls = calls
        self._accumulator = accumulator
        self._settings = settings
        self._guard = guard
        self._on_completed = on_completed
        self._on_split = on_split
        self.channel = f"producer-{id(self)}"
        self.flushing = 0
        self._wakeup = Event()
        self._in_flight: dict[Broker, int] = {}
        self._sent_s: dict[Broker, float] = {}
        self._responses: deque[tuple[SentBatches, Any, BaseException | None]] = deque()
        self._id = NO_PRODUCER
        self._max_in_flight = order.MAX_IN_FLIGHT if settings.idempotent else 1  # only sequences keep the order of more
        self._sending = SingleTask(self._send_loop)
        self._closed = False
        self._missing = MissingTopics()
        # the errors after which the oldest batches of partitions are sent again
        self._repeated: dict[TopicPartition, BaseException] = {}

    def start(self) -> None:
        """Starts the loop, unless it is running."""
        self._sending.start()

    def wake(self) -> None:
        """Makes the loop look for batches that are due now."""
        self._wakeup.set()

    def stop(self) -> None:
        """Ends the loop. Later responses have no effect."""
        self._closed = True
        self._wakeup.set()

    async def _send_loop(self) -> None:
        while not self._closed:
            try:
                self._handle_responses()
                if self._lacks_id and self._accumulator.size:
                    await self._initialize()
                pause_s = await self._send_ready()
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
            await self._wakeup.wait(pause_s)
            self._wakeup.clear()

    @property
    def _lacks_id(self) -> bool:
        """True while the producer has no producer id, and therefore sends no batches."""
        return self._settings.idempotent and self._id[0] < 0

    async def _initialize(self) -> None:
        """Requests a producer id."""

        def read(response: Any) -> tuple[int, int]:
            if response.error_code:
                raise KafkaError.of(response.error_code)
            return response.producer_id, response.producer_epoch

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TIMEOUT_MS)
        self._id = await self._calls.call(request, read, at_most=versions.INIT_PRODUCER_ID)

    async def _send_ready(self) -> float | None:
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
            for broker, partitions in await self._leaders(ready):
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
        full = batch.size >= self._settings.batch_bytes or batch is not queue.batches[-1] or self.flushing > 0
        if full or batch.attempts:
            return queue.not_before_s
        if batch is not queue.batches[0] and not self._settings.linger_s:
            return None  # the batch grows while the previous batch is being stored
        return max(queue.not_before_s, batch.created_s + self._settings.linger_s)

    async def _leaders(self, ready: list[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        try:
            return await self._calls.transport.by_leader(ready)
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
                self._settings.timeout_s,
            )

    def _expire(self, now_s: float, error: Exception | None) -> None:
        """Fails batches whose time limit has passed, except batches whose response has not arrived yet."""
        for partition, queue in list(self._accumulator.queues.items()):
            while queue.batches:
                batch = queue.batches[0]
                if batch.in_flight or now_s - batch.created_s <= self._settings.timeout_s:
                    break
                cause = error or self._repeated.get(partition)
                last = "" if cause is None else f"; the last attempt failed: {cause}"
                late = TimeoutError(
                    f"{partition}: the batch was not stored within {self._settings.timeout_s:g} s{last}"
                )
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
                order.assign_sequence(queue, batch, self._id if self._settings.idempotent else NO_PRODUCER)
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
        sent = SentBatches(broker, produce_request(encoded, self._settings.acks, REQUEST_TIMEOUT_MS), batches)
        on_done = partial(self._receive, sent)
        for _, batch in batches.values():
            batch.in_flight = True
        self._in_flight[broker] = self._in_flight.get(broker, 0) + 1
        try:
            # Only this loop starts requests, so they are sent in the order of their sequences.
            self._calls.transport.start(
                sent.request, on_done, at_most=versions.PRODUCE, broker=broker, channel=self.channel
            )
        except Exception as error:  # the batches fail, because no response will arrive
            on_done(None, error)
        return True

    def _encode(self, batch: ProducerBatch) -> bytes:
        assert batch.sequence is not None, "a batch that is sent has a sequence"
        return batch.build(*batch.sequence) if self._settings.idempotent else batch.build(*NO_PRODUCER, -1)

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
            self._on_completed(queue, batch, None)
            self._renew_after(order.note_stored(queue))
        elif code in order.OUT_OF_ORDER and self._settings.idempotent:
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
                self._on_split(batch)
        if failure is None:
            self._renew_after(ended)
        else:
            batch.in_flight = False
            self._fail(queue, batch, failure)

    def _fail(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        """Completes a batch with an error. Requests a new producer id if the partition needs one."""
        self._on_completed(queue, batch, error)
        self._renew_after(order.note_failed(queue, batch))

    def _renew_after(self, ended: bool) -> None:
        """Requests a new producer id before the next batch if the sequence of a partition has ended."""
        if ended:
            self._id = NO_PRODUCER
            self._wakeup.set()  # the send loop requests the id in its next turn
