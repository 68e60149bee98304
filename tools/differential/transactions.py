"""Random requests of transactional and idempotent producers, for the comparison with Apache Kafka.

They cover producer ids, partitions and offsets of transactions, and the records that consumers see.
"""

from __future__ import annotations

import random
from binascii import crc32
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    init_producer_id,
    list_offsets,
    list_transactions,
    offset_fetch,
    produce,
    txn_offset_commit,
)
from kcore_ext.batch.builder import BatchBuilder
from tools.differential.program import Call, Step, await_condition
from tools.differential.side import CLIENT_IDS, NOW_MS, Side
from tools.differential.topics import CREATE

NO_PRODUCER: Final = (-1, -1)
UNKNOWN_PRODUCERS: Final = 1 << 40
"""The lowest producer id for a producer name that has no allocated id. Each of these names gets a different id.

Different ids are necessary: Kafka remembers the first sequence of a refused transactional batch, and compares later
batches of the same id with this sequence.
"""


def producer_of(side: Side, name: str, delta: int) -> tuple[int, int]:
    """Returns a producer's id and its epoch plus `delta`. The producer `none` has no id."""
    if name == "none":
        return NO_PRODUCER
    producer_id, epoch = side.producers.get(name) or (UNKNOWN_PRODUCERS + crc32(name.encode()), 0)
    return producer_id, max(epoch + delta, 0)


def _init(
    side: Side, tid: str | None, timeout_ms: int, known: str, delta: int, version: int, **_: Any
) -> tuple[Any, int]:
    producer_id, epoch = producer_of(side, known, delta) if version >= 3 else NO_PRODUCER
    return init_producer_id.InitProducerIdRequest(
        transactional_id=tid, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
    ), version


def _learn_init(side: Side, response: Any, tid: str | None, **more: Any) -> None:
    if not response.error_code:
        side.producers[tid or more["known_as"]] = (response.producer_id, response.producer_epoch)


def _add_partitions(side: Side, tid: str, delta: int, topics: dict[str, list[int]], version: int) -> tuple[Any, int]:
    producer_id, epoch = producer_of(side, tid, delta)
    rows = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=n, partitions=p) for n, p in topics.items()]
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=tid,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=rows,
    ), version


def _add_offsets(side: Side, tid: str, delta: int, group: str, version: int) -> tuple[Any, int]:
    producer_id, epoch = producer_of(side, tid, delta)
    return add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=tid, producer_id=producer_id, producer_epoch=epoch, group_id=group
    ), version


def _commit(
    side: Side, tid: str, delta: int, group: str, offsets: list[tuple[str, int, int]], version: int
) -> tuple[Any, int]:
    producer_id, epoch = producer_of(side, tid, delta)
    rows = [
        txn_offset_commit.TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=[
                txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=offset)
            ],
        )
        for topic, number, offset in offsets
    ]
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=tid, group_id=group, producer_id=producer_id, producer_epoch=epoch, topics=rows
    ), version


def _end(side: Side, tid: str, delta: int, committed: bool, version: int) -> tuple[Any, int]:
    producer_id, epoch = producer_of(side, tid, delta)
    return end_txn.EndTxnRequest(
        transactional_id=tid, producer_id=producer_id, producer_epoch=epoch, committed=committed
    ), version


def _learn_end(side: Side, response: Any, tid: str, version: int, **_: Any) -> None:
    if not response.error_code and version >= 5 and response.producer_id >= 0:
        side.producers[tid] = (response.producer_id, response.producer_epoch)


def await_end(side: Side, tid: str | None, **_: Any) -> None:
    """Waits until a decided transaction is complete. The coordinator writes the markers after its response."""
    if tid:
        request = describe_transactions.DescribeTransactionsRequest(transactional_ids=[tid])
        await_condition(side, request, 0, _is_complete)


def _is_complete(response: Any) -> bool:
    return not response.transaction_states[0].transaction_state.startswith("Prepare")


def batch_of(side: Side, producer: str, delta: int, sequence: int, values: list[bytes], transactional: bool) -> bytes:
    """Makes a batch, which is the same for both servers except for the producer id and epoch."""
    producer_id, epoch = producer_of(side, producer, delta)
    builder = BatchBuilder(
        1 << 20,
        base_timestamp_ms=NOW_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence if producer_id >= 0 else -1,
        transactional=transactional,
    )
    for value in values:
        builder.append(NOW_MS, None, value)
    return builder.build()


def _produce(
    side: Side, topic: str, partition: int, tid: str | None, version: int, acks: int = -1, **batch: Any
) -> tuple[Any, int]:
    records = batch_of(side, **batch)
    data = produce.PartitionProduceData(index=partition, records=records)
    row = produce.TopicProduceData(name=topic, topic_id=side.topic_id(topic), partition_data=[data])
    return produce.ProduceRequest(transactional_id=tid, acks=acks, timeout_ms=5_000, topic_data=[row]), version


def _list_offsets(
    side: Side, topic: str, partition: int, timestamp: int, isolation: int, version: int
) -> tuple[Any, int]:
    partition_request = list_offsets.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    row = list_offsets.ListOffsetsTopic(name=topic, partitions=[partition_request])
    return list_offsets.ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation if version >= 2 else 0, topics=[row]
    ), version


def _fetch(side: Side, topic: str, partition: int, offset: int, isolation: int, version: int) -> tuple[Any, int]:
    partition_request = fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    row = fetch.FetchTopic(topic=topic, topic_id=side.topic_id(topic), partitions=[partition_request])
    return fetch.FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=isolation, topics=[row]
    ), version


def _offsets(side: Side, group: str, stable: bool) -> tuple[Any, int]:
    group_request = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)
    return offset_fetch.OffsetFetchRequest(groups=[group_request], require_stable=stable), 8


def _producers(side: Side, topic: str, partitions: list[int]) -> tuple[Any, int]:
    row = describe_producers.TopicRequest(name=topic, partition_indexes=partitions)
    return describe_producers.DescribeProducersRequest(topics=[row]), 0


def _describe(side: Side, tids: list[str]) -> tuple[Any, int]:
    return describe_transactions.DescribeTransactionsRequest(transactional_ids=tids), 0


def _list(side: Side, states: list[str], version: int) -> tuple[Any, int]:
    return list_transactions.ListTransactionsRequest(state_filters=states), version


class Transactions:
    """Lists of random requests that use three transactional ids, an idempotent producer, two topics and a group."""

    NAME = "transactions"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "init": Call(_init, _learn_init, settle=await_end),
        "add_partitions": Call(_add_partitions),
        "add_offsets": Call(_add_offsets),
        "commit": Call(_commit),
        "end": Call(_end, _learn_end, settle=await_end),
        "produce": Call(_produce),
        "list_offsets": Call(_list_offsets),
        "fetch": Call(_fetch),
        "offsets": Call(_offsets),
        "producers": Call(_producers),
        "describe": Call(_describe),
        "list": Call(_list),
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns two topics and 12 to 40 random requests."""
        topics = [f"{name}-a", f"{name}-b"]
        steps = [Step(0, "create_topic", {"name": topic, "partitions": 2}) for topic in topics]
        drawer = _Drawer(chance, name, topics)
        steps += [drawer.step() for _ in range(chance.randrange(12, 40))]
        return steps


class _Drawer:
    def __init__(self, chance: random.Random, name: str, topics: list[str]) -> None:
        self.chance = chance
        self.topics = topics
        self.group = f"{name}-g"
        self.tids = [f"{name}-t", f"{name}-u", f"{name}-v"]
        self.idempotent = f"{name}-i"
        self.sequences: dict[tuple[str, str, int], int] = {}
        self.new_protocol = chance.random() < 0.5  # transactions as of KIP-890, or as before
        weights = {
            self._init: 6, self._add_partitions: 6, self._add_offsets: 3, self._commit: 4, self._end: 7,
            self._produce: 12, self._list_offsets: 3, self._fetch: 4, self._offsets: 3, self._producers: 2,
            self._describe: 2, self._list: 1,
        }  # fmt: skip
        self.kinds = [kind for kind in weights if kind == self._init or chance.random() < 0.8]
        self.weights = [weights[kind] for kind in self.kinds]

    def step(self) -> Step:
        (kind,) = self.chance.choices(self.kinds, self.weights)
        call, arguments = kind()
        return Step(self.chance.randrange(len(CLIENT_IDS)), call, arguments)

    def _tid(self) -> str:
        return self.chance.choices(self.tids, [8, 2, 1])[0]

    def _delta(self) -> int:
        return self.chance.choices([0, -1, 1], [88, 7, 5])[0]

    def _place(self) -> dict[str, Any]:
        topic = self.chance.choice(self.topics) if self.chance.random() < 0.95 else f"{self.topics[0]}-none"
        return {"topic": topic, "partition": self.chance.choices([0, 1, 2], [60, 35, 5])[0]}

    def _init(self) -> tuple[str, dict[str, Any]]:
        tid = self._tid() if self.chance.random() < 0.85 else None
        timeout_ms = self.chance.choices([60_000, 0, -1, 2_000_000_000], [90, 4, 3, 3])[0]
        known = self.chance.choices(["none", tid or self.idempotent, self.tids[0]], [70, 25, 5])[0]
        named = tid or self.idempotent
        for key in [key for key in self.sequences if key[0] == named]:
            del self.sequences[key]
        return "init", {
            "tid": tid,
            "timeout_ms": timeout_ms,
            "known": known,
            "delta": self._delta(),
            "version": self.chance.randrange(6),
            "known_as": named,
        }

    def _add_partitions(self) -> tuple[str, dict[str, Any]]:
        topic_partition = self._place()
        return "add_partitions", {
            "tid": self._tid(),
            "delta": self._delta(),
            "topics": {topic_partition["topic"]: [topic_partition["partition"]]},
            "version": self.chance.randrange(4),
        }

    def _add_offsets(self) -> tuple[str, dict[str, Any]]:
        version = 4 if self.new_protocol else self.chance.randrange(4)
        return "add_offsets", {"tid": self._tid(), "delta": self._delta(), "group": self.group, "version": version}

    def _commit(self) -> tuple[str, dict[str, Any]]:
        topic_partition = self._place()
        offset = self.chance.randrange(100)
        return "commit", {
            "tid": self._tid(),
            "delta": self._delta(),
            "group": self.group,
            "offsets": [(topic_partition["topic"], topic_partition["partition"], offset)],
            "version": 5 if self.new_protocol else self.chance.randrange(5),
        }

    def _end(self) -> tuple[str, dict[str, Any]]:
        return "end", {
            "tid": self._tid(),
            "delta": self._delta(),
            "committed": self.chance.random() < 0.6,
            "version": 5 if self.new_protocol else self.chance.randrange(5),
        }

    def _produce(self) -> tuple[str, dict[str, Any]]:
        kind = self.chance.choices(["transactional", "idempotent", "plain"], [75, 18, 7])[0]
        tid = self._tid() if kind == "transactional" else None
        producer = tid or (self.idempotent if kind == "idempotent" else "none")
        topic_partition = self._place()
        values = [b"value"] * self.chance.choice([1, 1, 2])
        key = (producer, topic_partition["topic"], topic_partition["partition"])
        sequence = self.sequences.get(key, 0)
        off = self.chance.choices([0, 1, -1, 7], [88, 4, 5, 3])[0]
        if not off:
            self.sequences[key] = sequence + len(values)
        return "produce", {
            **topic_partition,
            "tid": tid if self.chance.random() < 0.97 else None,
            "producer": producer,
            "delta": self._delta(),
            "sequence": max(sequence + off, 0),
            "values": values,
            "transactional": kind == "transactional",
            "version": self.chance.choice([12, 13]) if self.new_protocol else self.chance.randrange(3, 12),
        }

    def _list_offsets(self) -> tuple[str, dict[str, Any]]:
        return "list_offsets", {
            **self._place(),
            "timestamp": self.chance.choice([-1, -1, -2, -3, NOW_MS, NOW_MS + 100_000]),
            "isolation": self.chance.randrange(2),
            "version": self.chance.randrange(1, 12),
        }

    def _fetch(self) -> tuple[str, dict[str, Any]]:
        return "fetch", {
            **self._place(),
            "offset": self.chance.choice([0, 0, 1, 3, 1_000]),
            "isolation": self.chance.randrange(2),
            "version": self.chance.randrange(4, 19),
        }

    def _offsets(self) -> tuple[str, dict[str, Any]]:
        return "offsets", {"group": self.group, "stable": self.chance.random() < 0.5}

    def _producers(self) -> tuple[str, dict[str, Any]]:
        return "producers", {"topic": self.chance.choice(self.topics), "partitions": [0, 1]}

    def _describe(self) -> tuple[str, dict[str, Any]]:
        return "describe", {"tids": self.chance.sample(self.tids, 2)}

    def _list(self) -> tuple[str, dict[str, Any]]:
        states = self.chance.choice([[], ["Ongoing"], ["Empty", "CompleteCommit"], ["Nothing"]])
        return "list", {"states": states, "version": self.chance.choice([0, 1])}
