"""A killed node with many committed offsets: the other nodes serve all its groups, with the acknowledged offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.failover import LIMIT_S, postgresql_cluster, process_cluster
from tests.kit import wait_until

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.crash, pytest.mark.timeout(300)]

OFFSETS = 100_000


@pytest.mark.parametrize("cluster_of", [postgresql_cluster, process_cluster])
def test_all_groups_of_a_killed_node_are_served(cluster_of: object, tmp_path: Path) -> None:
    """`bench.failover` measures the time. This test checks only the limit of a minute."""
    with cluster_of(tmp_path) as cluster:  # type: ignore[operator]
        groups = cluster.fill(OFFSETS)
        _, count = cluster.kill(2, groups)
        assert count > 0, "the killed node had groups"
        # Groups of the remaining nodes may still move between these nodes, to balance the leaders.
        wait_until(lambda: cluster.fetched([1, 3], groups) == set(groups), "the nodes serve all groups", LIMIT_S)
