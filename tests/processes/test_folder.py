"""A data folder that a single process and several processes serve alternately."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcore.broker.cluster.folder_epochs import raise_leader_epochs
from kcore.cli.serve_processes import make_ready
from kcore.clock import ManualClock, Now
from kcore.cluster.local import LocalClusterStore
from kcore.cluster.store import METADATA, ClusterStore
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.errors import ConfigError
from kcore.log import LmdbLogEngine, verify_folder
from kcore.log.interface import LogEngine, PartitionKey
from kcore.runtime import RequestContext
from tests.cluster.world import SETTINGS, Client, ClusterWorld, check
from tests.kit import COMMIT_VERSION, PRODUCE_VERSION, batch, commit, committed, create, produce, read_all


def settings(path: Path) -> dict[str, str]:
    return {**SETTINGS, "kcore.data.dir": str(path), "kcore.durability": "os"}


class Alone:
    """A single process that serves a folder."""

    def __init__(self, path: Path) -> None:
        self.engine = Engine.open(Config.of(settings(path)), clock=ManualClock())

    def send(self, request: object, version: int | None = None) -> object:
        served = self.engine.newest_version(request) if version is None else version
        response = self.engine.submit(RequestContext(served, "test"), request)
        self.engine.commit()
        self.engine.slices.finish()
        self.engine.commit()
        return getattr(response, "response", response)


class FolderWorld(ClusterWorld):
    """Nodes over a data folder. `make_ready` prepares the folder for several nodes."""

    def __init__(self, path: Path, nodes: int) -> None:
        super().__init__(nodes)
        self.path = path
        self._opened: list[ClusterStore] = []
        self.folder = make_ready(Config.of(settings(path)))

    def open_store(self) -> ClusterStore:
        store = LocalClusterStore(str(self.path), "os", self.clock.monotonic_ms)
        self._opened.append(store)
        return store

    def close(self) -> None:
        super().close()
        for store in self._opened:
            store.close()
        self.folder.release()


def serve_alone(path: Path, offset: int) -> None:
    """Opens the folder in one process, checks it, and writes a record and an offset commit."""
    node = Alone(path)
    if offset == 0:
        node.send(create("t", partitions=2))
    assert [value for _, value in read_all(node, "t", 1)] == [b"%d" % number for number in range(offset)]
    assert committed(node, "g") == ({("t", 0): offset - 1} if offset else {})
    node.send(produce("t", batch([b"%d" % offset]), 1), PRODUCE_VERSION)
    node.send(commit("g", {("t", 0): offset}), COMMIT_VERSION)
    node.engine.close()


def serve_together(path: Path, offset: int, nodes: int) -> None:
    """Opens the folder in several nodes, checks it, writes a record and an offset commit, and kills all nodes."""
    world = FolderWorld(path, nodes)
    world.start()
    check(world)
    client = Client(world)
    assert client.read("t", 1) == [b"%d" % number for number in range(offset)]
    assert client.committed("g") == offset - 1
    assert client.produce("t", 1, b"%d" % offset) == offset
    client.commit("g", offset)
    world.close()


def test_one_process_and_several_serve_a_folder_in_turns(tmp_path: Path) -> None:
    path = tmp_path / "data"
    for offset in range(3):  # more openings than elections: the epochs of the metadata are behind
        serve_alone(path, offset)
    serve_together(path, 3, 2)
    serve_together(path, 4, 3)
    serve_alone(path, 5)
    serve_together(path, 6, 1)
    serve_alone(path, 7)
    assert verify_folder(path) == []


def epochs(log: LogEngine) -> dict[PartitionKey, int]:
    found = {}
    for key in log.partitions():
        partition = log.get(key)
        assert partition is not None
        if key != METADATA:
            found[key] = partition.leader_epoch
    return found


def test_epochs_of_the_metadata_are_raised_once(tmp_path: Path) -> None:
    path = tmp_path / "data"
    for offset in range(3):
        serve_alone(path, offset)
    now = Now(ManualClock())
    log = LmdbLogEngine(path, "os")
    metadata = log.open(METADATA)
    leaders = raise_leader_epochs(log, now)
    assert leaders.keys() == epochs(log).keys()
    assert all(leaders[key].epoch >= epoch for key, epoch in epochs(log).items())
    end = metadata.end_offset
    assert metadata.log_start_offset > 0  # the image has replaced the log
    assert raise_leader_epochs(log, now) == leaders
    assert metadata.end_offset == end
    log.close()
    serve_alone(path, 3)


def test_a_new_folder_needs_no_change(tmp_path: Path) -> None:
    log = LmdbLogEngine(tmp_path / "data", "os")
    assert raise_leader_epochs(log, Now(ManualClock())) == {}
    assert log.open(METADATA).end_offset == 0
    log.close()


def test_another_cluster_id_is_refused(tmp_path: Path) -> None:
    serve_alone(tmp_path / "data", 0)
    with pytest.raises(ConfigError, match="belongs to cluster"):
        make_ready(Config.of({**settings(tmp_path / "data"), "cluster.id": "A" * 22}))
    serve_alone(tmp_path / "data", 1)
