"""An idempotent producer, which uses kcore's accumulator and delivery rules and sends several batches at a time."""

from __future__ import annotations

from functools import partial
from typing import Any

from kcore.client import delivery as order
from kcore.client import versions
from kcore.errors import KafkaError
from kcore.node.requests import produce_request, record_size
from kcore.node.types import to_bytes
from kcore.protocol.compression import compress
from kcore.protocol.error_codes import RETRIABLE, ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.client.accumulator import Accumulator, DeliveryBase, PartitionQueue, ProducerBatch
from tools.simulate.clients.client import NETWORK, Client
from tools.simulate.history import ACKNOWLEDGED, REFUSED, Write

NO_PRODUCER = (-1, -1)
NO_TIMEOUT_MS = 0x7FFFFFFF
DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
OUT_OF_ORDER = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
GIVE_UP_MS = 60_000


class _Flag:
    """The completion flag of a batch."""

    def __init__(self) -> None:
        self.done = False

    def set(self) -> None:
        self.done = True


class Producer(Client):
    """A producer that appends records with unique values to a topic.

    Options: topic, partitions, interval_ms, burst, keyed, size_bytes (the size of the padding), tombstones (the
    probability of a tombstone).
    """

    def start(self) -> None:
        """Implements `Client.start`."""
        self._padding = "x" * self.options.get("size_bytes", 0)
        self._channel = self.channel()
        self._topic = self.options["topic"]
        self._partitions = self.options["partitions"]
        kernel = self.kernel
        self._accumulator = Accumulator(
            DeliveryBase,
            TopicPartition,
            _Flag,
            batch_bytes=600 + 2 * len(self._padding),
            buffer_bytes=1 << 20,
            burst_bytes=1 << 20,
            compression=0,
            compress=compress,
            to_bytes=to_bytes,
            measure=record_size,
            on_batch=lambda: None,
            monotonic=lambda: kernel.now_ms / 1000,
        )
        self._accumulator.add_topic(self._topic, self._partitions)
        self._written: dict[ProducerBatch, list[Write]] = {}
        self._failures: dict[ProducerBatch, int] = {}
        self._id = NO_PRODUCER
        self._initializing = False
        self._count = 0
        self._wakes_ms = -1
        self.later(self.choice.randrange(self.options["interval_ms"]), self._produce)

    def _produce(self) -> None:
        if self.world.calm:
            self._send()
            return
        for _ in range(self.choice.randrange(1, self.options["burst"] + 1)):
            name = f"{self._padding}{self.name}.{self.life}:{self._count}".encode()
            key = f"k{self.choice.randrange(8)}".encode() if self.options.get("keyed") else None
            tombstone = key is not None and self.choice.random() < self.options.get("tombstones", 0)
            partition = self.choice.randrange(self._partitions)
            wall_ms = self.world.node.clock.wall_ms()
            value = None if tombstone else name
            appended = self._accumulator.append(self._topic, value, key, (), partition, wall_ms)
            if appended is None:  # the first record of a burst lets the sender run
                self._accumulator.rest()
                continue
            self._count += 1
            write = self.history.write(name, TopicPartition(self._topic, partition), self.name)
            write.key, write.tombstone, write.timestamp_ms = key, tombstone, wall_ms
            self._written.setdefault(appended.batch, []).append(write)
        self._send()
        self.later(self.choice.randrange(1, 2 * self.options["interval_ms"]), self._produce)

    def _wake(self, delay_ms: int) -> None:
        when_ms = self.kernel.now_ms + delay_ms
        if self._wakes_ms < self.kernel.now_ms or when_ms < self._wakes_ms:
            self._wakes_ms = when_ms
            self.later(delay_ms, self._woken, when_ms)

    def _woken(self, when_ms: int) -> None:
        if when_ms == self._wakes_ms:  # otherwise an earlier time has replaced this one
            self._wakes_ms = -1
            self._send()

    def _initialize(self) -> None:
        if self._initializing:
            return
        self._initializing = True
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TIMEOUT_MS)
        self._channel.send(request, self._initialized, at_most=versions.INIT_PRODUCER_ID)

    def _initialized(self, response: Any) -> None:
        self._initializing = False
        if not self.alive:
            return
        if isinstance(response, Exception) or response.error_code:
            self._wake(200)
            return
        self._id = response.producer_id, response.producer_epoch
        self._send()

    def _send(self) -> None:
        now_s = self.kernel.now_ms / 1000
        self._expire(now_s)
        if not self._accumulator.size:
            return
        if self._id == NO_PRODUCER:
            self._initialize()
            return
        for partition, queue in list(self._accumulator.queues.items()):
            batch = order.next_batch(queue, self._id, order.MAX_IN_FLIGHT)
            if batch is None:
                continue
            if queue.not_before_s > now_s:
                self._wake(int((queue.not_before_s - now_s) * 1000) + 1)
                continue
            order.assign_sequence(queue, batch, self._id)
            assert batch.sequence is not None, "a batch that is sent has a sequence"
            data = batch.build(*batch.sequence)
            batch.in_flight = True
            self._channel.send(
                produce_request({partition: data}, -1, 30_000),
                partial(self._handle, queue, batch),
                at_most=versions.PRODUCE,
            )
            self._wake(0)

    def _expire(self, now_s: float) -> None:
        for queue in list(self._accumulator.queues.values()):
            while queue.batches:
                batch = queue.batches[0]
                if batch.in_flight or (now_s - batch.created_s) * 1000 <= GIVE_UP_MS:
                    break
                self._fail(queue, batch, TimeoutError("late"))

    def _handle(self, queue: PartitionQueue, batch: ProducerBatch, response: Any) -> None:
        if not self.alive:
            return
        if isinstance(response, NETWORK):
            self._renew_after(order.note_unsent(queue, batch))
            self._later(queue, batch)
        elif isinstance(response, Exception):
            raise response
        else:
            row = response.responses[0].partition_responses[0]
            self._handle_row(queue, batch, row)
        self._send()

    def _handle_row(self, queue: PartitionQueue, batch: ProducerBatch, row: Any) -> None:
        code = row.error_code
        if not code or code == DUPLICATE:
            batch.in_flight = False
            offset = -1 if code else row.base_offset
            for at, write in enumerate(self._written.pop(batch)):
                write.result = ACKNOWLEDGED
                write.offset = -1 if offset < 0 else offset + at
                self.history.acknowledged(write.partition, write.offset + 1, self.kernel.now_ms)
            self._accumulator.remove(queue, batch)
            batch.complete(None)
            self._renew_after(order.note_stored(queue))
        elif code in OUT_OF_ORDER:
            first = queue.batches[0] is batch
            self._renew_after(order.note_out_of_order(queue, batch))
            if first:
                self._later(queue, batch)
        elif code in RETRIABLE:
            self._renew_after(order.note_unsent(queue, batch))
            self._later(queue, batch)
        else:
            batch.in_flight = False
            if batch not in self._failures:  # its only attempt was refused
                for write in self._written[batch]:
                    write.result = REFUSED
            self._fail(queue, batch, KafkaError.of(code))

    def _renew_after(self, ended: bool) -> None:
        if ended:
            self._id = NO_PRODUCER

    def _later(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._failures[batch] = attempt = self._failures.get(batch, 0) + 1
        pause_ms = min(1_000, 50 << min(attempt, 6))
        queue.not_before_s = (self.kernel.now_ms + pause_ms) / 1000
        self._wake(pause_ms + 1)

    def _fail(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        self._written.pop(batch, None)
        self._accumulator.remove(queue, batch)
        batch.complete(error)
        self._renew_after(order.note_failed(queue, batch))

    def at_rest(self) -> str | None:
        """Implements `Client.at_rest`."""
        return f"{self._accumulator.size} bytes are not stored" if self._accumulator.size else None
