"""Producers with pipelined batches: each record is stored once and in order, despite failures of requests.

The broker is an engine. Between broker and producer, requests and responses are delayed, lost, reordered and replaced
by errors, in virtual time.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import pytest

import kcore
from kcore.client.aio.broker import Broker
from kcore.client.aio.results import OnDone
from kcore.client.delivery import (
    MAX_IN_FLIGHT,
    assign_sequence,
    next_batch,
    note_failed,
    note_out_of_order,
    note_stored,
    note_unsent,
)
from kcore.errors import ConnectionClosedError, KafkaError
from kcore.node.requests import produce_request, record_size
from kcore.node.types import TopicPartition, to_bytes
from kcore.protocol.compression import compress
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.metadata import MetadataResponse
from kcore.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kcore.testing.virtual import VirtualTimeLoop
from kcore_ext.batch.header import parse_header
from kcore_ext.client.accumulator import Accumulator, DeliveryBase, PartitionQueue, ProducerBatch
from tests.nodes import TargetTransport
from tests.seeds import SEED, first_of

T = TypeVar("T")

TOPIC = "t"
PARTITIONS = 3
BROKERS = (Broker(0, "localhost", 9092), Broker(1, "localhost", 9093))

REFUSED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
)
"""Errors in responses to batches that the broker has not stored."""
STORED = (
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
"""Errors in responses to batches that the broker has stored nevertheless."""


def run(scenario: Callable[[], Awaitable[T]]) -> T:
    """Runs a coroutine function on an event loop in virtual time."""
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(scenario(), 3_600.0))
    finally:
        loop.close()


class InFlightRequest:
    """A Produce request whose response has not reached the producer yet."""

    def __init__(self, request: Any, version: int | None, on_done: OnDone, broker: Broker) -> None:
        self.request = request
        self.version = version
        self.on_done = on_done
        self.broker = broker
        self.response: Any = None
        self.ended = False

    def end(self, response: Any, error: Exception | None) -> None:
        """Reports the result, unless the connection was lost earlier."""
        if not self.ended:
            self.ended = True
            self.on_done(response, error)


class Network:
    """The transport of a producer to an engine.

    Args:
        engine: the broker.
        chance: the random number generator of the faults.
        fault_rate: the probability of a fault for each request, until `heal`.
        delay_s: the longest delay of a request or a response.
    """

    clock_ms = None

    def __init__(self, engine: kcore.EmbeddedNode, chance: random.Random, fault_rate: float, delay_s: float) -> None:
        self._engine = engine
        self._random = chance
        self._fault_rate = fault_rate
        self._delay_s = delay_s
        self._open: list[InFlightRequest] = []
        self.most_in_flight = 0
        self.without_id = 0

    def heal(self) -> None:
        """Ends all faults."""
        self._fault_rate = 0.0

    def _fails(self) -> bool:
        return self._random.random() < self._fault_rate

    async def send(self, request: Any, version: int | None = None, **options: Any) -> Any:
        """Sends a request for a producer id."""
        await asyncio.sleep(self._random.random() * self._delay_s)
        if self._fails():
            raise self._random.choice([ConnectionClosedError("lost"), TimeoutError("late")])
        return self._engine.send(request, options.get("at_most"))

    def start(
        self, request: Any, on_done: OnDone, *, at_most: int | None = None, broker: Broker, channel: str = ""
    ) -> None:
        """Sends a Produce request, which may arrive before earlier ones."""
        in_flight = InFlightRequest(request, at_most, on_done, broker)
        self._open.append(in_flight)
        self.most_in_flight = max(self.most_in_flight, sum(each.broker == broker for each in self._open))
        loop = asyncio.get_running_loop()
        loop.call_later(self._random.random() * self._delay_s, self._arrive, in_flight)

    def _arrive(self, in_flight: InFlightRequest) -> None:
        """Delivers a request, unless its connection was lost."""
        if in_flight.ended:
            return
        if self._fails() and self._random.random() < 0.3:
            self._disconnect(in_flight.broker)
            return
        in_flight.response = self._decide(in_flight)
        delay_s = self._random.random() * self._delay_s
        asyncio.get_running_loop().call_later(delay_s, self._respond, in_flight)

    def _respond(self, in_flight: InFlightRequest) -> None:
        if in_flight in self._open:
            self._open.remove(in_flight)
        in_flight.end(in_flight.response, None)

    def _disconnect(self, broker: Broker) -> None:
        """Breaks a connection. Its open requests arrive or are lost, at random and in any order, and none gets a
        response.
        """
        lost = [each for each in self._open if each.broker == broker]
        self._random.shuffle(lost)
        for in_flight in lost:
            self._open.remove(in_flight)
            if in_flight.response is None and self._random.random() < 0.5:
                self._decide(in_flight)
        for in_flight in lost:
            in_flight.end(None, self._random.choice([ConnectionClosedError("lost"), TimeoutError("late")]))

    def _decide(self, in_flight: InFlightRequest) -> Any:
        """Stores the batches of a request in the engine, and replaces some results by errors."""
        request: ProduceRequest = in_flight.request
        self.without_id += sum(
            parse_header(row.records).producer_id < 0 for topic in request.topic_data for row in topic.partition_data
        )
        refused: dict[TopicPartition, ErrorCode] = {}
        kept = []
        for topic in request.topic_data:
            for row in topic.partition_data:
                if self._fails():
                    refused[TopicPartition(topic.name, row.index)] = self._random.choice(REFUSED)
                else:
                    kept.append((topic.name, row.index, row.records))
        rows = [_row(topic_partition, error_code=code) for topic_partition, code in refused.items()]
        if kept:
            batches = {TopicPartition(topic, index): records for topic, index, records in kept}
            stored = self._engine.send(produce_request(batches, request.acks, 1_000), in_flight.version)
            for topic in stored.responses:
                for row in topic.partition_responses:
                    code = row.error_code or (self._random.choice(STORED) if self._fails() else 0)
                    rows.append(_row((topic.name, row.index), error_code=code, base_offset=row.base_offset))
        return ProduceResponse(responses=rows)

    async def metadata(self, topics: Iterable[str] | None, create: bool = False) -> MetadataResponse:
        """Returns the metadata of topics."""
        return self._engine._calls.transport.metadata(topics, create)

    async def by_leader(self, partitions: Sequence[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Groups partitions by their leaders; the two brokers lead alternate partitions."""
        await asyncio.sleep(0)
        if self._fails():
            raise KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE)
        grouped: dict[Broker, list[TopicPartition]] = {}
        for partition in partitions:
            grouped.setdefault(BROKERS[partition.partition % 2], []).append(partition)
        return list(grouped.items())

    def forget(self, request: Any) -> None:
        """Does nothing, because the leaders of partitions never change in these tests."""

    def close_channel(self, channel: str) -> None:
        """Loses all connections without a notification."""
        for in_flight in self._open:
            in_flight.ended = True
        self._open.clear()

    async def close(self) -> None:
        """Does nothing."""


def _row(topic_partition: tuple[str, int], **fields: Any) -> TopicProduceResponse:
    row = PartitionProduceResponse(index=topic_partition[1], log_append_time_ms=-1, **fields)
    return TopicProduceResponse(name=topic_partition[0], partition_responses=[row])


def stored_numbers(node: kcore.Node, partition: int) -> list[int]:
    """Returns the numbers of all records of a partition in the order of its log."""
    numbers: list[int] = []
    while records := node.topics[TOPIC].read(partition, len(numbers), isolation="read_uncommitted"):
        numbers += [int(record.value or b"") for record in records]
    return numbers


async def produce(network: Network, chance: random.Random, records: int, linger: float) -> dict[int, list[Any]]:
    """Appends numbered records at random times while requests fail. Returns the results of each partition."""
    deliveries: dict[int, list[Any]] = {partition: [] for partition in range(PARTITIONS)}
    node = kcore.AsyncNode(network)  # type: ignore[arg-type]
    timeout = chance.choice([2.0, 20.0, 600.0])
    producer = node.producer(linger=linger, batch_bytes=300, timeout=timeout)
    for number in range(records):
        partition = chance.randrange(PARTITIONS)
        deliveries[partition].append((number, await producer.append(TOPIC, f"{number:060}", partition=partition)))
        if chance.random() < 0.2:
            await asyncio.sleep(chance.random() * 0.3)
    network.heal()
    try:
        await producer.flush()
    except (KafkaError, TimeoutError):
        assert any(delivery.batch.error for own in deliveries.values() for _, delivery in own)
    assert all(delivery.done for own in deliveries.values() for _, delivery in own)
    if timeout == 600.0:
        errors = {type(delivery.batch.error) for own in deliveries.values() for _, delivery in own}
        assert TimeoutError not in errors, "once the faults end, all records are stored"
    await producer.close()
    return deliveries


@pytest.mark.seeded
@pytest.mark.parametrize("case", first_of(range(40), 10))
def test_each_record_is_stored_once_and_in_order(case: int) -> None:
    """A record whose append failed may be stored or not, but never twice, and never after a later record."""
    chance = random.Random(f"{SEED} {case}")
    random.seed(f"{SEED} {case}")  # the jitter of the pauses before repetitions
    with kcore.open() as engine:
        limit = chance.choice([1_000_000, 220, 140])  # a full batch has 271 bytes, and one of a single record 131
        engine.topics.create(TOPIC, PARTITIONS, config={"max.message.bytes": limit})
        network = Network(engine, chance, chance.choice([0.0, 0.05, 0.2, 0.4]), chance.choice([0.01, 0.5]))
        linger = chance.choice([0.0, 0.05])
        deliveries = run(lambda: produce(network, chance, 300, linger))
        assert not network.without_id, "every batch has a producer id, or its repetition would not be recognized"
        for partition, own in deliveries.items():
            numbers = stored_numbers(engine, partition)
            assert numbers == sorted(set(numbers)), "the records are not in order, or not stored once"
            acknowledged = {number for number, delivery in own if delivery.batch.error is None}
            assert acknowledged <= set(numbers) <= {number for number, _ in own}
            for number, delivery in own:
                if number in acknowledged and delivery.offset >= 0:
                    assert numbers[delivery.offset] == number
    assert network.most_in_flight <= MAX_IN_FLIGHT


def test_full_batches_are_sent_before_the_responses_to_earlier_ones() -> None:
    with kcore.open() as engine:
        engine.topics.create(TOPIC, PARTITIONS)
        network = Network(engine, random.Random(1), 0.0, 1.0)

        async def scenario() -> None:
            producer = kcore.AsyncNode(network).producer(batch_bytes=300)  # type: ignore[arg-type]
            for number in range(100):
                await producer.append(TOPIC, f"{number:060}", partition=0)
            await producer.flush()
            await producer.close()

        run(scenario)
        assert network.most_in_flight == MAX_IN_FLIGHT
        assert stored_numbers(engine, 0) == list(range(100))


def test_a_batch_that_is_not_full_grows_while_the_one_before_it_is_stored() -> None:
    """If batches did not grow, a program that appends slowly would send a request for each record."""
    with kcore.open() as engine:
        engine.topics.create(TOPIC, PARTITIONS)
        network = Network(engine, random.Random(1), 0.0, 1.0)

        async def scenario() -> list[int]:
            producer = kcore.AsyncNode(network).producer()  # type: ignore[arg-type]
            deliveries = []
            for number in range(100):
                deliveries.append(await producer.append(TOPIC, str(number), partition=0))
                await asyncio.sleep(0.1)
            assert network.most_in_flight == 1
            await producer.flush()
            await producer.close()
            return [delivery.batch.count for delivery in deliveries]

        assert max(run(scenario)) >= 5


class DelayedTransport(TargetTransport):
    """The transport of threads to an engine. Another thread delivers each Produce request after a delay."""

    def __init__(self, engine: kcore.EmbeddedNode) -> None:
        super().__init__(engine)
        self._lock = threading.Lock()
        self._in_flight = 0
        self.most_in_flight = 0

    def start(
        self, request: Any, on_done: OnDone, *, at_most: int | None = None, broker: Broker, channel: str = ""
    ) -> None:
        """Delivers a request after a delay."""
        with self._lock:
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        threading.Timer(0.3, self._deliver, (request, at_most, on_done)).start()

    def _deliver(self, request: Any, at_most: int | None, on_done: OnDone) -> None:
        response = self.send(request, at_most=at_most)
        with self._lock:
            self._in_flight -= 1
        on_done(response, None)


def test_threads_have_several_batches_in_flight_too() -> None:
    with kcore.open() as engine:
        engine.topics.create(TOPIC, PARTITIONS)
        transport = DelayedTransport(engine)
        with kcore.Node(transport, local=True).producer(batch_bytes=300) as producer:
            for number in range(50):
                producer.append(TOPIC, f"{number:060}", partition=0)
        assert stored_numbers(engine, 0) == list(range(50))
    assert transport.most_in_flight == MAX_IN_FLIGHT


def queue_of(batches: int) -> PartitionQueue:
    """Returns a partition's queue with full batches."""
    accumulator = Accumulator(
        DeliveryBase,
        TopicPartition,
        threading.Event,
        batch_bytes=1,
        buffer_bytes=1 << 20,
        burst_bytes=1 << 20,
        compression=0,
        compress=compress,
        to_bytes=to_bytes,
        measure=record_size,
        on_batch=lambda: None,
        monotonic=lambda: 0.0,
    )
    accumulator.add_topic(TOPIC, 1)
    for _ in range(batches):
        assert accumulator.append(TOPIC, b"v", None, (), 0, 0) is not None
    queue: PartitionQueue = accumulator.queues[TopicPartition(TOPIC, 0)]
    return queue


def send(queue: PartitionQueue, producer: tuple[int, int] = (7, 0)) -> ProducerBatch | None:
    """Sends the next batch, if a batch may be sent."""
    batch = next_batch(queue, producer, MAX_IN_FLIGHT)
    if batch is not None:
        assign_sequence(queue, batch, producer)
        batch.in_flight = True
    return batch


def test_a_batch_is_sent_only_while_the_broker_recognizes_the_first_one_without_result() -> None:
    """A broker recognizes repetitions of the last five batches only. Therefore the producer sends at most four batches
    after a batch whose result is not known yet.
    """
    queue = queue_of(9)
    first = send(queue)
    assert (first, send(queue)) == (queue.batches[0], None), "the first batch of a sequence is sent alone"
    queue.remove(queue.batches[0])
    sent = [send(queue) for _ in range(6)]
    assert sent == [*list(queue.batches)[:5], None]
    queue.remove(queue.batches[2])  # stored before the first one, whose response is late
    assert send(queue) is None
    queue.remove(queue.batches[0])
    assert send(queue) is queue.batches[3]


def test_a_refused_sequence_ends_for_all_later_batches() -> None:
    queue = queue_of(5)
    queue.remove(cast(ProducerBatch, send(queue)))
    first, second, third = (cast(ProducerBatch, send(queue)) for _ in range(3))
    assert not note_out_of_order(queue, second), "the first batch may still arrive"
    assert second.sequence == (7, 0, 2)
    assert send(queue) is None, "a repeated batch waits for the earlier ones"
    assert not note_out_of_order(queue, first), "the third batch has no result yet"
    assert [batch.sequence for batch in queue.batches] == [None, None, (7, 0, 3), None]
    assert send(queue) is None
    assert note_unsent(queue, third), "no batch is left in the sequence"
    assert send(queue, (8, 0)) is first
    assert first.sequence == (8, 0, 0)


def test_batches_after_a_failed_one_keep_their_sequence_until_the_broker_refuses_it() -> None:
    """A batch has failed, but the broker may have stored it. So the next batch keeps its sequence number. The producer
    begins a new sequence only afterwards.
    """
    queue = queue_of(5)
    queue.remove(cast(ProducerBatch, send(queue)))
    first, second = (cast(ProducerBatch, send(queue)) for _ in range(2))
    queue.remove(first)
    assert not note_failed(queue, first)
    assert not note_unsent(queue, second)
    assert send(queue) is second
    assert second.sequence == (7, 0, 2)
    assert send(queue) is None, "the next batch waits for the new sequence"
    queue.remove(second)
    assert note_stored(queue)
    third = cast(ProducerBatch, send(queue, (8, 0)))
    assert third.sequence == (8, 0, 0)
