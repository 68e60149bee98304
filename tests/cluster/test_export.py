"""The export of a cluster's logs from its store, while its nodes run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kcore.cli import main
from kcore.cluster import memory_store
from kcore.log.errors import FencedWriteError
from kcore.log.write_set import WriteSet
from kcore.spark.events.event import EventRow
from kcore.spark.events.sources import Source, open_source
from kcore.spark.export.exporter import verify
from tests.cluster.world import Client, ClusterWorld

URL = "memory://export"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterWorld]:
    world = ClusterWorld()
    monkeypatch.setitem(memory_store._CLUSTERS, "export", world.store)
    world.start()
    yield world
    world.close()


@pytest.fixture
def client(world: ClusterWorld) -> Client:
    client = Client(world)
    client.create("t", 3)
    for number in range(30):
        client.produce("t", number % 3, b"%d" % number)
        client.commit(f"group-{number % 7}", number)
    return client


def everything(source: Source) -> dict[tuple[str, int], list[EventRow]]:
    return {part[:2]: list(source.rows(part)) for part in source.parts()}


def stored(world: ClusterWorld) -> dict[tuple[str, int], int]:
    """Returns the high watermark of every partition, read on its leader."""
    ends = {}
    for node in world.up:
        assert node.engine is not None
        for key, (topic, _) in node.engine.leadership.led.items():
            ends[topic, key.partition] = node.engine.log.open(key).high_watermark
    return ends


def test_the_source_has_every_row_of_every_node(world: ClusterWorld, client: Client) -> None:
    with open_source(URL) as source:
        rows = everything(source)
        ends = {part[:2]: part.end for part in source.parts()}
    metadata = ends.pop(("__cluster_metadata", 0))
    assert metadata is not None
    assert metadata > 0
    assert ends == stored(world)
    for partition in range(3):
        values = [row.value for row in rows["t", partition]]
        assert values == [b"%d" % number for number in range(30) if number % 3 == partition]
    assert all([row.offset for row in of] == sorted({row.offset for row in of}) for of in rows.values())
    assert sum(len(of) for (topic, _), of in rows.items() if topic == "__consumer_offsets") >= 30


def test_batches_and_rows_are_the_same(world: ClusterWorld, client: Client) -> None:
    from kcore.spark.events.arrow import from_batch

    with open_source(URL) as source:
        for part in source.parts():
            rows = [row for batch in source.batches(part) for row in from_batch(batch)]
            assert rows == list(source.rows(part))


def test_the_command_exports_and_continues(
    world: ClusterWorld, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "events")
    assert main(["export", "--cluster", URL, "--topic", "t", "--out", out]) == 0
    assert capsys.readouterr().out == "30 rows in 3 files\n"
    client.produce("t", 0, b"later")
    assert main(["export", "--cluster", URL, "--topic", "t", "--out", out]) == 0
    assert capsys.readouterr().out == "1 row in 1 file\n"
    assert verify(out) == []
    with open_source(out) as exported, open_source(URL) as source:
        assert everything(exported) == {key: rows for key, rows in everything(source).items() if key[0] == "t"}


def test_bad_arguments_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--cluster", "mysql://x", "--out", str(tmp_path)]) == 1
    assert "must begin with postgresql://" in capsys.readouterr().err
    assert main(["export", str(tmp_path), "--cluster", URL, "--out", str(tmp_path)]) == 1
    assert "name one source" in capsys.readouterr().err


def test_a_new_store_has_no_rows_yet(tmp_path: Path) -> None:
    with open_source("memory://nothing-in-it") as source:
        assert everything(source) == {("__cluster_metadata", 0): []}


def test_a_deleted_topic_is_left_out(world: ClusterWorld, client: Client) -> None:
    from kcore.protocol.messages.delete_topics import DeleteTopicsRequest

    with open_source(URL) as source:
        client.any_node().send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
        world.advance(500)
        topics = {part.topic for part in source.parts()}
    assert topics == {"__cluster_metadata", "__consumer_offsets"}


def test_compaction_during_the_read_repeats_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcore.log.partition.SLICE_BATCHES", 1)
    world = ClusterWorld(settings={"kcore.snapshot.min.bytes": "1000", "offsets.topic.num.partitions": "1"})
    monkeypatch.setitem(memory_store._CLUSTERS, "export", world.store)
    world.start()
    client = Client(world)
    client.create("t")
    for number in range(7):
        client.commit(f"group-{number}", number)
    with open_source(URL) as source:
        [part] = [part for part in source.parts() if part.topic == "__consumer_offsets"]
        before = [row.offset for row in source.rows(part)]
        rows = source.rows(part)
        seen = [next(rows).offset]
        for number in range(100):
            client.commit(f"group-{number % 5}", number)
        world.advance(60_000)
        seen += [row.offset for row in rows]
    with open_source(URL) as source:
        [compacted] = [part for part in source.parts() if part.topic == "__consumer_offsets"]
    assert compacted.cleaned_to or compacted.start, "the log was compacted"
    assert seen == sorted(set(seen))
    assert set(seen) <= set(before)
    world.close()


def test_a_reader_writes_nothing(world: ClusterWorld, client: Client) -> None:
    reader = world.open_store().reader()
    with pytest.raises(FencedWriteError):
        reader.write(WriteSet([], {}, [], 0))
