"""Transactions inside the engine, without a socket: transactions per second, memory per id, and recovery of ids.

A transaction of version 2 consists of a Produce and an EndTxn and, with offsets, a TxnOffsetCommit. A transaction of
version 1 also has an AddPartitionsToTxn. Producers run in parallel: a round is one step of each producer, and one
commit. The baseline of a transaction is the same Produce without a transaction.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kcore.clock import ManualClock, SystemClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.log import LmdbLogEngine, MemoryLogEngine
from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.end_txn import EndTxnRequest
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kcore.runtime import Pending, RequestContext
from kcore_ext.batch import BatchBuilder

TOPIC = "orders"
WALL_MS = 1_700_000_000_000
CONTEXTS = [RequestContext(version, "bench") for version in range(14)]
VALUE = b"x" * 100


class Node:
    """An engine and its producers.

    Args:
        log: the log that stores the engine's records.
        partitions: the partition count of the topic.
    """

    def __init__(self, log: Any, partitions: int) -> None:
        config = Config.of({"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"})
        clock = ManualClock(wall_ms=WALL_MS) if isinstance(log, MemoryLogEngine) else SystemClock()
        self.engine = Engine(log, config, clock)
        self.partitions = partitions
        self.round(
            [
                (
                    CreateTopicsRequest(
                        topics=[CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1)],
                        timeout_ms=1,
                    ),
                    7,
                )
            ]
        )
        self.round([(FindCoordinatorRequest(key_type=1, coordinator_keys=["p"]), 6)])
        self.engine.turn()

    def round(self, requests: list[tuple[Any, int]]) -> list[Any]:
        """Processes one request of each producer, then commits. Returns the responses."""
        engine = self.engine
        engine.now.update()
        responses = [engine.submit(CONTEXTS[version], request) for request, version in requests]
        engine.commit()
        return [response.response if isinstance(response, Pending) else response for response in responses]

    def init(self, ids: list[str]) -> list[tuple[str, int, int]]:
        responses = self.round(
            [(InitProducerIdRequest(transactional_id=tid, transaction_timeout_ms=900_000), 4) for tid in ids]
        )
        assert not any(response.error_code for response in responses)
        return [
            (tid, response.producer_id, response.producer_epoch) for tid, response in zip(ids, responses, strict=True)
        ]

    def produce(self, who: tuple[str, int, int], sequence: int, transactional: bool = True) -> ProduceRequest:
        """Makes a Produce request with a batch for each partition."""
        tid, producer_id, epoch = who
        data = []
        wall_ms = self.engine.now.wall_ms
        for index in range(self.partitions):
            batch = BatchBuilder(
                1 << 16,
                base_timestamp_ms=wall_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
            batch.append(wall_ms, None, VALUE)
            data.append(PartitionProduceData(index=index, records=batch.build()))
        return ProduceRequest(
            transactional_id=tid if transactional else None,
            acks=-1,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
        )

    def offsets(self, who: tuple[str, int, int]) -> TxnOffsetCommitRequest:
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        return TxnOffsetCommitRequest(
            transactional_id=who[0],
            group_id="group",
            producer_id=who[1],
            producer_epoch=who[2],
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        )

    def add(self, who: tuple[str, int, int]) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=who[0],
            v3_and_below_producer_id=who[1],
            v3_and_below_producer_epoch=who[2],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(range(self.partitions)))],
        )

    def end(self, who: tuple[str, int, int]) -> EndTxnRequest:
        return EndTxnRequest(transactional_id=who[0], producer_id=who[1], producer_epoch=who[2], committed=True)


def opened(durability: str, folder: Path) -> Any:
    return MemoryLogEngine() if durability == "memory" else LmdbLogEngine(str(folder / "data"), durability)


def measure(benchmark: BenchmarkFixture, run: Callable[[Any], None], prepare: Callable[[], Any], count: int) -> None:
    """Measures rounds of prepared requests, with `count` transactions each."""

    def setup() -> tuple[tuple[Any], dict[str, Any]]:
        return (prepare(),), {}

    benchmark.pedantic(run, setup=setup, rounds=15, warmup_rounds=2)
    benchmark.extra_info["transactions_per_second"] = round(count / benchmark.stats.stats.median)


TRANSACTIONS = 100

CASES = [  # version, producers, partitions, with offsets, durability
    (2, 1, 1, False, "memory"),
    (2, 50, 1, False, "memory"),
    (1, 50, 1, False, "memory"),
    (2, 50, 10, False, "memory"),
    (2, 50, 1, True, "memory"),
    (2, 1, 1, False, "os"),
    (2, 50, 1, False, "os"),
    (2, 50, 10, False, "os"),
    (2, 1, 1, False, "fsync"),
    (2, 50, 1, False, "fsync"),
    (2, 50, 1, True, "fsync"),
    (2, 50, 10, False, "fsync"),
]


@pytest.mark.parametrize(("version", "producers", "partitions", "offsets", "durability"), CASES)
@pytest.mark.benchmark(group="transactions")
def test_transactions(
    benchmark: BenchmarkFixture,
    tmp_path: Path,
    version: int,
    producers: int,
    partitions: int,
    offsets: bool,
    durability: str,
) -> None:
    node = Node(opened(durability, tmp_path), partitions)
    identities = node.init([f"producer-{number}" for number in range(producers)])
    turns = max(1, TRANSACTIONS // producers)
    sequence = 0

    def prepare() -> list[list[tuple[Any, int]]]:
        """Returns the prepared requests of all rounds.

        In version 2, each end of a transaction increases the producer epoch, so later requests can be prepared.
        """
        nonlocal identities, sequence
        rounds = []
        for _ in range(turns):
            if version == 2:
                steps = [[(node.produce(who, 0), 12) for who in identities]]
            else:
                steps = [
                    [(node.add(who), 3) for who in identities],
                    [(node.produce(who, sequence), 11) for who in identities],
                ]
            if offsets:
                steps.append([(node.offsets(who), 5) for who in identities])
            steps.append([(node.end(who), 5 if version == 2 else 4) for who in identities])
            rounds += steps
            if version == 2:
                identities = [(tid, producer_id, epoch + 1) for tid, producer_id, epoch in identities]
            sequence += 1
        return rounds

    def run(rounds: list[list[tuple[Any, int]]]) -> None:
        for requests in rounds:
            last = node.round(requests)
        assert not any(response.error_code for response in last)

    measure(benchmark, run, prepare, turns * producers)
    node.engine.close()


@pytest.mark.parametrize("durability", ["memory", "fsync"])
@pytest.mark.benchmark(group="transactions")
def test_the_same_batches_without_transactions(benchmark: BenchmarkFixture, tmp_path: Path, durability: str) -> None:
    """Measures the baseline: 50 idempotent producers with a batch each."""
    node = Node(opened(durability, tmp_path), 1)
    identities = node.init([f"producer-{number}" for number in range(50)])
    sequence = 0

    def prepare() -> list[list[tuple[Any, int]]]:
        nonlocal sequence
        rounds = []
        for _ in range(TRANSACTIONS // 50):
            rounds.append([(node.produce(who, sequence, False), 12) for who in identities])
            sequence += 1
        return rounds

    def run(rounds: list[list[tuple[Any, int]]]) -> None:
        for requests in rounds:
            last = node.round(requests)
        assert not any(part.error_code for part in last[0].responses[0].partition_responses)

    measure(benchmark, run, prepare, TRANSACTIONS)
    node.engine.close()


IDS = 100_000


@pytest.mark.benchmark(group="transactional ids")
def test_recovery_of_100_000_ids(benchmark: BenchmarkFixture) -> None:
    """Measures loading a log until the shard is active, and the memory of an id."""
    log = MemoryLogEngine()
    node = Node(log, 1)
    for first in range(0, IDS, 1000):
        node.init([f"application-{number}" for number in range(first, first + 1000)])
    config = node.engine.config

    def recover() -> Engine:
        engine = Engine(log, config, ManualClock(wall_ms=WALL_MS))
        engine.turn()
        return engine

    engine = benchmark.pedantic(recover, rounds=3, warmup_rounds=0)
    shards = engine.transactions.shards
    assert shards is not None
    (shard,) = shards
    assert len(shard.machine.transactions) == IDS
    benchmark.extra_info["ids_per_second"] = round(IDS / benchmark.stats.stats.median)
    del engine, shard, shards, node
    gc.collect()
    tracemalloc.start()
    again = recover()
    gc.collect()
    benchmark.extra_info["bytes_per_id"] = round(tracemalloc.get_traced_memory()[0] / IDS)
    tracemalloc.stop()
    again.close()
