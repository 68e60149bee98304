"""The cluster as one of its nodes sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcore.broker.cluster.view import SharedClusterView
from kcore.broker.metadata.brokers import BrokerRegistration
from kcore.broker.metadata.topic_creation import TopicCreation
from kcore.broker.metadata.topics import Topics
from kcore.config.node import Config
from kcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.cluster.world import ClusterWorld


def view(racks: dict[int, str | None], fenced: int = -1, draining: frozenset[int] = frozenset()) -> SharedClusterView:
    topics = Topics()
    for node_id, rack in racks.items():
        topics.image.brokers[node_id] = BrokerRegistration(
            node_id, 1, (), rack, fenced=node_id == fenced, draining=node_id in draining
        )
    return SharedClusterView(1, "memory-cluster-id-AAAA", topics)


@pytest.mark.parametrize(
    ("racks", "order"),
    [
        ({1: None, 2: None, 3: None}, [1, 2, 3]),
        ({1: "a", 2: "a", 3: "b", 4: "b"}, [1, 3, 2, 4]),
        ({1: "b", 2: "a", 3: "a", 4: "a"}, [2, 1, 3, 4]),
        ({}, []),
    ],
)
def test_neighbours_are_in_different_racks(racks: dict[int, str | None], order: list[int]) -> None:
    assert view(racks).placement_order(1) == order


def test_replicas_are_spread_over_racks() -> None:
    creation = TopicCreation(Config(), view({1: "a", 2: "a", 3: "b", 4: "b"}), lambda: bytes(16))
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    placed = creation.placed(0, 8, 2)
    assert placed[:4] == [(1, 3), (3, 2), (2, 4), (4, 1)]
    assert all(racks[one] != racks[two] for one, two in placed)


def test_fenced_nodes_get_no_replicas() -> None:
    assert view({1: "a", 2: "a", 3: "b"}, fenced=3).placement_order(1) == [1, 2]


@pytest.mark.parametrize(("replicas", "order"), [(1, [1, 3]), (2, [1, 3]), (3, [1, 3, 2])])
def test_draining_nodes_get_replicas_only_if_the_others_do_not_suffice(replicas: int, order: list[int]) -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b"}
    assert view(racks, draining=frozenset({2})).placement_order(replicas) == order


def test_a_cluster_whose_nodes_all_drain_still_has_a_placement_order() -> None:
    assert view({1: None, 2: None}, draining=frozenset({1, 2})).placement_order(1) == [1, 2]


def test_a_node_describes_its_folder_or_the_database(tmp_path: Path) -> None:
    """The description contains the path by which operators and AlterReplicaLogDirs refer to the data folder."""
    for settings, path in [({"kcore.data.dir": str(tmp_path)}, str(tmp_path)), ({}, "database")]:
        world = ClusterWorld(settings=settings)
        world.start()
        for node in world.up:
            (folder,) = node.send(DescribeLogDirsRequest(topics=None)).results
            assert folder.log_dir == path
            assert (folder.total_bytes > 0) == bool(settings)
            assert folder.topics
        world.close()
