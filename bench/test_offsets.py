"""Measures committed offsets: commits, fetches, loading a shard, and bytes per offset.

Each round of a benchmark of commits handles COMMITS requests. Divide its time by COMMITS for the time of one request.
`test_commit` also measures the one commit of the log that follows the requests. The benchmarks `test_handle_commit` and
`test_handle_commit_generic` measure only the handling of the requests, without the log. KCORE_BENCH_LARGE=1 loads a
million offsets.
"""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcore.clock import ManualClock, Now
from kcore.config.node import Config
from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.group.apis.offset_fetch import OffsetFetchApi
from kcore.group.offsets.store import OffsetStore
from kcore.group.shard import TOPIC_NAME, GroupShard
from kcore.log import LmdbLogEngine, LogEngine, MemoryLogEngine, PartitionKey
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.runtime import CommitPipeline, RequestContext, Shard, Shards, Slices, TopicInfo
from kcore.runtime.shard_services import ShardServices
from kcore_ext.batch import BatchBuilder
from kcore_ext.group.offsets import OffsetAndMetadata
from kcore_ext.runtime.timer_wheel import TimerWheel
from tests.kit import serve

COMMITS = 100
TOPIC = TopicInfo("topic", bytes(range(16)), 1_000)
LOAD_SIZES = [100_000, 1_000_000] if os.environ.get("KCORE_BENCH_LARGE") else [100_000]
CONTEXT = RequestContext(9, "client")


class Topics:
    """A topic look-up that knows only the single topic of the benchmarks."""

    def by_name(self, name: str) -> TopicInfo | None:
        return TOPIC if name == TOPIC.name else None

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return TOPIC if topic_id == TOPIC.topic_id else None

    def all(self) -> list[TopicInfo]:
        return [TOPIC]


class Node:
    """One group shard on a log engine."""

    def __init__(self, engine: LogEngine) -> None:
        self.engine = engine
        self.log = engine.open(PartitionKey(bytes(16), 0))
        self.pipeline = CommitPipeline(engine)
        self.slices = Slices()
        self.now = Now(ManualClock())
        self.wheel = TimerWheel(0)
        self.shards: Shards[GroupShard] = Shards(TOPIC_NAME, 1, self._make, self.pipeline)

    def _make(self, index: int) -> Shard[GroupShard]:
        return Shard(
            TOPIC_NAME,
            index,
            self.log,
            lambda context: GroupShard(context, Config(), Topics(), str),
            ShardServices(self.pipeline, self.wheel, self.slices, self.now),
        )

    def load(self) -> Shard[GroupShard]:
        self.shards.load(0, 1)
        self.slices.finish()
        shard = self.shards.get(0)
        assert shard is not None
        return shard


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yields a folder on the disk of the working directory, because /tmp may be in memory."""
    path = Path(f".bench-offsets-{os.getpid()}")
    path.mkdir()
    yield path / "data"
    for file in sorted(path.glob("**/*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    path.rmdir()


def commit_request(partitions: int, group: str = "group") -> OffsetCommitRequest:
    entries = [
        OffsetCommitRequestPartition(partition_index=p, committed_offset=1_000_000 + p) for p in range(partitions)
    ]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="topic", partitions=entries)])


def fetch_request(partitions: int) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name="topic", partition_indexes=tuple(range(partitions)))]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=topics)])


@pytest.mark.parametrize("durability", ["memory", "os", "fsync"])
@pytest.mark.parametrize("partitions", [1, 10])
def test_commit(benchmark: Any, folder: Path, partitions: int, durability: str) -> None:
    benchmark.group = f"offsets: {COMMITS} commits of {partitions} partitions"
    node = Node(MemoryLogEngine() if durability == "memory" else LmdbLogEngine(folder, durability))
    node.load()
    api = OffsetCommitApi(node.shards, Topics())
    requests = [commit_request(partitions, f"group {i}") for i in range(COMMITS)]

    def commits() -> None:
        for request in requests:
            serve(api, CONTEXT, request)
        assert node.pipeline.commit()

    benchmark.extra_info["operations"] = COMMITS
    benchmark(commits)
    node.engine.close()


@pytest.mark.parametrize("partitions", [1, 10])
def test_handle_commit(benchmark: Any, partitions: int) -> None:
    handle_commit(benchmark, partitions, generic=False)


@pytest.mark.parametrize("partitions", [1, 10])
def test_handle_commit_generic(benchmark: Any, partitions: int) -> None:
    handle_commit(benchmark, partitions, generic=True)


def handle_commit(benchmark: Any, partitions: int, generic: bool) -> None:
    """Runs an OffsetCommit from the decoded request until its records are in the shard's open batch and its response is
    in the pipeline.
    """
    benchmark.group = f"offsets: handle {COMMITS} commits of {partitions} partitions"
    node = Node(MemoryLogEngine())
    node.load()
    api = OffsetCommitApi(node.shards, Topics())
    handle = api.handle if generic else api.fast
    assert handle is not None
    requests = [commit_request(partitions, f"group {i}") for i in range(COMMITS)]

    def commits() -> None:
        for request in requests:
            handle(CONTEXT, request)

    def write() -> None:
        assert node.pipeline.commit()

    benchmark.extra_info["operations"] = COMMITS
    benchmark.pedantic(commits, setup=write, rounds=300, warmup_rounds=5)


@pytest.mark.parametrize("partitions", [1, 10])
def test_fetch(benchmark: Any, partitions: int) -> None:
    benchmark.group = f"offsets: {COMMITS} fetches of {partitions} partitions"
    node = Node(MemoryLogEngine())
    node.load()
    OffsetCommitApi(node.shards, Topics()).handle(CONTEXT, commit_request(10))
    node.pipeline.commit()
    api = OffsetFetchApi(node.shards, Topics())
    request = fetch_request(partitions)

    def fetches() -> None:
        for _ in range(COMMITS):
            response = serve(api, CONTEXT, request)
        assert len(response.groups[0].topics[0].partitions) == partitions

    benchmark.extra_info["operations"] = COMMITS
    benchmark(fetches)


def test_fetch_anew(benchmark: Any) -> None:
    """Measures fetches that differ from the last fetch of their group, so that no cached response applies."""
    benchmark.group = f"offsets: {COMMITS} fetches of 10 partitions"
    node = Node(MemoryLogEngine())
    node.load()
    OffsetCommitApi(node.shards, Topics()).handle(CONTEXT, commit_request(10))
    node.pipeline.commit()
    api = OffsetFetchApi(node.shards, Topics())
    forward, backward = fetch_request(10), fetch_request(10)
    backward.groups[0].topics[0].partition_indexes = tuple(reversed(range(10)))

    def fetches() -> None:
        for _ in range(COMMITS // 2):
            serve(api, CONTEXT, forward)
            serve(api, CONTEXT, backward)

    benchmark.extra_info["operations"] = COMMITS
    benchmark(fetches)
    assert api.fast_path.reused == 0


def fill(node: Node, count: int, per_group: int) -> None:
    """Fills a log with `count` offsets in batches of 1,000. Each group has `per_group` partitions."""
    batch = None
    for i in range(count):
        if batch is None:
            batch = BatchBuilder(1 << 20, base_timestamp_ms=1_700_000_000_000)
        key = OffsetCommitKey(group=f"group {i // per_group}", topic="topic", partition=i % per_group)
        value = OffsetCommitValue(offset=i, commit_timestamp=1_700_000_000_000, topic_id=TOPIC.topic_id)
        assert batch.append(1_700_000_000_000, key.encode_key(), value.encode_value(4))
        if batch.count == 1_000 or i == count - 1:
            node.log.append(bytearray(batch.build()), 0)
            batch = None
    node.engine.commit()


@pytest.mark.parametrize("count", LOAD_SIZES)
def test_load(benchmark: Any, count: int) -> None:
    benchmark.group = f"offsets: load {count}"
    engine = MemoryLogEngine()
    fill(Node(engine), count, 100)

    def load() -> None:
        assert Node(engine).load().machine.offsets.offset_count == count

    benchmark.pedantic(load, rounds=3 if count <= 100_000 else 1)


@pytest.mark.parametrize("per_group", [10, 100])
def test_memory_of_an_offset(benchmark: Any, per_group: int) -> None:
    """Records the bytes per offset in `extra_info`: the object, its dictionary entries, and its share of the memory of
    names and groups.
    """
    benchmark.group = "offsets: bytes per offset"
    count = 20_000

    def fill_store() -> OffsetStore:
        store = OffsetStore()
        for i in range(count):
            group, topic = f"group {i // per_group}", "".join(("to", "pic"))
            store.put(-1, group, topic, i % per_group, OffsetAndMetadata(i, i, -1, "", i, -1, TOPIC.topic_id))
        return store

    benchmark.pedantic(fill_store, rounds=3)
    gc.collect()
    tracemalloc.start()
    store = fill_store()
    gc.collect()
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert store.offset_count == count
    benchmark.extra_info["bytes_per_offset"] = round(size_bytes / count, 1)
