"""Transactional clients: kcore's transactional producer, which writes records and copies topics exactly once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from kcore.client.aio.broker import Broker
from kcore.errors import KafkaError, PartitionErrors, ProducerFencedError
from kcore.node._async.transactional_producer import Row, TransactionalProducer
from kcore.protocol.compression import CompressionType
from kcore.protocol.messages.end_txn import EndTxnRequest
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kcore.protocol.topic_partition import TopicPartition
from tools.simulate.batches import visible_records
from tools.simulate.channel import Channel
from tools.simulate.clients.client import NETWORK, Client
from tools.simulate.clients.member import FETCH_VERSION, OFFSETS_VERSION, fetch_request
from tools.simulate.history import ACKNOWLEDGED, REFUSED, UNKNOWN, OffsetWrite, Transaction

ERRORS = (KafkaError, PartitionErrors, *NETWORK)
REPEAT_MS = 20_000


class _Transport:
    """The part of a transport that a transactional producer needs."""

    def __init__(self, implicit: bool) -> None:
        self._implicit = implicit

    async def feature(self, name: str) -> int:
        """Returns the level of transaction.version that the client uses."""
        return 2 if self._implicit else 1

    async def newest(self, request: Any) -> int:
        """Returns the newest version of EndTxn."""
        return int(EndTxnRequest.MAX_VERSION)


class SimulatedCalls:
    """The `AsyncCalls` of a transactional producer, over a simulated connection."""

    def __init__(self, client: Client, channel: Channel, implicit: bool) -> None:
        self._client = client
        self._channel = channel
        self.transport = _Transport(implicit)
        self.local = False

    async def call(
        self,
        request: Any,
        read: Callable[[Any], Any],
        *,
        at_most: int | None = None,
        codes: Collection[int] = (),
    ) -> Any:
        """Implements `AsyncCalls.call`. Repeats the request after every retriable error, not only after `codes`."""
        kernel = self._client.kernel
        until_ms = kernel.now_ms + REPEAT_MS
        pause_ms = 20
        while True:
            try:
                return read(await self._channel.call(request, at_most=at_most))
            except ERRORS as error:
                retriable = isinstance(error, NETWORK) or bool(getattr(error, "retriable", False))
                if not retriable or kernel.now_ms >= until_ms:
                    raise
            await kernel.sleep(pause_ms)
            pause_ms = min(1_000, pause_ms * 2)

    async def coordinator(self, key_type: int, key: str) -> Broker | None:
        """Implements `AsyncCalls.coordinator`."""

        def read(response: Any) -> None:
            if response.coordinators[0].error_code:
                raise KafkaError.of(response.coordinators[0].error_code)

        await self.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), read)
        return None


class TransactionalClient(Client):
    """A client that writes transactions.

    Options: topic, partitions, aborts, source (the topic to copy from), group, and implicit (True if the broker adds
    partitions to transactions, as in version 2).
    """

    def start(self) -> None:
        """Implements `Client.start`."""
        self._channel = self.channel()
        self._reader = self.channel()
        calls = SimulatedCalls(self, self._channel, self.options["implicit"])
        transactional_id = f"tx-{self.options.get('identity', self.name)}"
        timeout_s = self.options.get("timeout_s", 20)
        self.producer = TransactionalProducer(calls, transactional_id, timeout_s)  # type: ignore[arg-type]
        self.world.transactional[transactional_id] = self.producer
        self._count = 0
        self._copied = 0
        self._idle = False
        self.spawn(self._run())

    async def _run(self) -> None:
        while self.alive:
            self._idle = False
            try:
                await self.producer.prepare()
                if self.options.get("source"):
                    await self._copy()
                elif not self.world.calm:
                    await self._write()
                else:
                    self._idle = True
            except ProducerFencedError:
                self.world.trace(f"fenced {self.name}")
                return
            except ERRORS:
                self.producer.invalidate()
            await self.kernel.sleep(self.choice.randrange(1, 400))

    def _begin(self) -> Transaction:
        self._count += 1
        transaction = Transaction(f"{self.name}.{self.life}:{self._count}")
        self.history.transactions.append(transaction)
        return transaction

    async def _write(self) -> None:
        """Writes one transaction of new records."""
        transaction = self._begin()
        topic, partitions = self.options["topic"], self.options["partitions"]
        chosen = self.choice.sample(range(partitions), self.choice.randrange(1, partitions + 1))
        values = {
            TopicPartition(topic, partition): [
                f"{transaction.name}/{partition}/{number}".encode() for number in range(self.choice.randrange(1, 4))
            ]
            for partition in chosen
        }
        await self._transact(transaction, values, {}, commit=self.choice.random() >= self.options["aborts"])

    async def _transact(
        self,
        transaction: Transaction,
        values: dict[TopicPartition, list[bytes]],
        offsets: dict[TopicPartition, int],
        *,
        commit: bool,
    ) -> None:
        producer = self.producer
        try:
            if not producer.implicit:
                await producer.add_partitions(list(values))
            for partition, batch in values.items():
                await self._produce(transaction, partition, batch)
                if self.choice.random() < 0.1:
                    await self.kernel.sleep(self.choice.choice([50, 30_000]))  # may exceed the transaction's timeout
            noted = self._note_offsets(transaction, offsets)
            if offsets:
                group = (self.options["group"], "", -1, None)
                await producer.commit_offsets(group, dict(offsets))
        except ERRORS:
            await self._abort(transaction)
            raise
        transaction.commit_sent = commit
        await producer.end(commit)
        transaction.result = "committed" if commit else "aborted"
        for write in noted:
            write.result = ACKNOWLEDGED if commit else REFUSED
            write.done_ms = self.kernel.now_ms

    async def _produce(self, transaction: Transaction, partition: TopicPartition, batch: list[bytes]) -> None:
        writes = [self.history.write(value, partition, self.name, transaction) for value in batch]
        wall_ms = self.world.node.clock.wall_ms()
        rows: list[Row] = [(wall_ms, None, value, ()) for value in batch]
        offset, _ = await self.producer.produce(partition, rows, CompressionType.NONE)
        for at, write in enumerate(writes):
            write.result = ACKNOWLEDGED
            write.offset = -1 if offset < 0 else offset + at
            self.history.acknowledged(partition, write.offset + 1, self.kernel.now_ms)

    def _note_offsets(self, transaction: Transaction, offsets: dict[TopicPartition, int]) -> list[OffsetWrite]:
        noted = []
        for partition, offset in offsets.items():
            transaction.offsets[self.options["group"], partition] = offset
            write = OffsetWrite(offset, self.kernel.now_ms, result=UNKNOWN, transaction=transaction)
            noted.append(self.history.commit(self.options["group"], partition, write))
        return noted

    async def _abort(self, transaction: Transaction) -> None:
        try:
            await self.producer.end(False)
        except ERRORS:
            self.producer.invalidate()
        else:
            transaction.result = "aborted"

    # ---- copying

    async def _copy(self) -> None:
        """Copies the next records of one partition of the source, and commits the position in the transaction."""
        source = TopicPartition(self.options["source"], self.choice.randrange(self.options["source_partitions"]))
        offset = await self._position(source)
        if offset is None:
            return
        response = await self._reader.call(fetch_request(source, offset, committed=True, wait_ms=50), FETCH_VERSION)
        row = response.responses[0].partitions[0] if response.responses else None
        if row is None or row.error_code:
            return
        records, after = visible_records(row, offset, committed=True)
        if after == offset:
            self._idle = True
            return
        for at, value in records:
            self.world.checks.saw_record(source, at, value, committed=True)
        target = TopicPartition(self.options["topic"], source.partition % self.options["partitions"])
        commit = self.world.calm or self.choice.random() >= self.options["aborts"]
        copies = [b"copy of %b@%d" % (value or b"", at) for at, value in records]
        # A value may be copied again after an aborted attempt: each attempt has values of its own.
        attempt = self._begin()
        values = [b"%b by %b" % (copy, attempt.name.encode()) for copy in copies]
        await self._transact(attempt, {target: values} if values else {}, {source: after}, commit=commit)
        self._copied += len(values)

    async def _position(self, source: TopicPartition) -> int | None:
        topics = [OffsetFetchRequestTopics(name=source.topic, partition_indexes=[source.partition])]
        group = OffsetFetchRequestGroup(group_id=self.options["group"], topics=topics)
        sent_ms = self.kernel.now_ms
        response = await self._reader.call(OffsetFetchRequest(groups=[group], require_stable=True), OFFSETS_VERSION)
        (group,) = response.groups
        if group.error_code or group.topics[0].partitions[0].error_code:
            return None
        offset = int(group.topics[0].partitions[0].committed_offset)
        self.world.checks.saw_committed(self.options["group"], source, offset, sent_ms)
        return max(0, offset)

    def at_rest(self) -> str | None:
        """Implements `Client.at_rest`."""
        return None


class Abandoner(TransactionalClient):
    """A client that begins transactions and never ends them, so that each one must time out.

    Each transaction has a different transactional id. Options: interval_ms.
    """

    def start(self) -> None:
        """Implements `Client.start`."""
        self._channel = self.channel()
        self._count = 0
        self.spawn(self._run())

    async def _run(self) -> None:
        while self.alive and not self.world.calm:
            await self.kernel.sleep(self.choice.randrange(1, 2 * self.options["interval_ms"]))
            calls = SimulatedCalls(self, self._channel, self.options["implicit"])
            transaction = self._begin()
            self.producer = TransactionalProducer(calls, f"lost-{transaction.name}", 5)  # type: ignore[arg-type]
            partition = TopicPartition(self.options["topic"], self.choice.randrange(self.options["partitions"]))
            try:
                await self.producer.prepare()
                if not self.producer.implicit:
                    await self.producer.add_partitions([partition])
                await self._produce(transaction, partition, [f"{transaction.name}/0".encode()])
            except ERRORS:
                continue
