"""`kcore.open(cluster=...)`: programs that are nodes of a cluster themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import kcore
from kcore.cli import main
from kcore.clock import SystemClock
from kcore.cluster import memory_store
from kcore.cluster.memory_store import MemoryCluster, MemoryClusterStore
from kcore.cluster.urls import store_of_node
from kcore.config.node import Config
from kcore.errors import ConcurrentCallError, ConfigError
from kcore.node.cluster_node import ClusteredNode
from kcore.protocol.messages.describe_cluster import DescribeClusterRequest
from tests.cluster.test_node import free_port
from tests.cluster.world import CLUSTER_ID, SETTINGS
from tests.kit import wait_until

URL = "memory://open"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    store = MemoryCluster(CLUSTER_ID, SystemClock().monotonic_ms)
    monkeypatch.setitem(memory_store._CLUSTERS, "open", store)
    return store


def settings(node_id: int) -> dict[str, str]:
    return {
        **SETTINGS,
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        "broker.session.timeout.ms": "3000",
    }


def leading(store: MemoryCluster) -> set[int]:
    """Returns the live nodes that lead partitions."""
    command = MemoryClusterStore(store)
    alive = {node.node_id for node in command.nodes() if not node.fenced and node.lease.remaining_ms}
    return {row.leader for row in command.leaders()} & alive


def committed(node: kcore.Node) -> dict[tuple[str, int], int]:
    return {(each.topic, each.partition): found.offset for each, found in node.group("g").committed().items()}


def test_two_programs_are_one_cluster(store: MemoryCluster) -> None:
    with kcore.open(cluster=URL, config=settings(1)) as one:
        with kcore.open(cluster=URL, config=settings(2)) as two:
            assert isinstance(two, ClusteredNode)
            assert one.cluster_id() == two.cluster_id() == CLUSTER_ID
            wait_until(lambda: leading(store) == {1, 2}, "both lead partitions")
            one.topics.create("t", partitions=4)
            for number in range(4):
                two.topics["t"].append(b"%d" % number, partition=number)
            two.group("g").commit({("t", number): number for number in range(4)})
            assert committed(one) == {("t", number): number for number in range(4)}
            assert two.config.node_id == 2
        assert leading(store) == {1}, "the second node has handed everything over"
        assert committed(one) == {("t", number): number for number in range(4)}
        assert one.topics["t"].end_offsets() == dict.fromkeys(range(4), 1)


def test_a_fenced_program_registers_again(store: MemoryCluster) -> None:
    with kcore.open(cluster=URL, config=settings(1)) as one, kcore.open(cluster=URL, config=settings(2)) as two:
        two.topics.create("t", partitions=4)
        wait_until(lambda: leading(store) == {1, 2}, "both lead partitions")
        command = MemoryClusterStore(store)
        [_, node] = command.nodes()
        assert command.fence(node.lease, None, force=True)
        wait_until(lambda: command.nodes()[1].lease.epoch > node.lease.epoch + 1, "a new incarnation", 30)
        wait_until(lambda: leading(store) == {1, 2}, "both lead partitions again", 30)
        two.group("g").commit({("t", 0): 7})
        assert committed(one) == {("t", 0): 7}


def test_an_asynchronous_program_is_a_node(store: MemoryCluster) -> None:
    async def main() -> dict[tuple[str, int], int]:
        async with kcore.open_async(cluster=URL, config=settings(1)) as node:
            assert node.config.node_id == 1
            await node.topics.create("t", partitions=2)
            await node.group("g").commit({("t", 1): 5})
            offsets = await node.group("g").committed()
            return {(place.topic, place.partition): found.offset for place, found in offsets.items()}

    assert asyncio.run(main()) == {("t", 1): 5}
    assert leading(store) == set()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_asynchronous_node_is_closed_only_by_its_loop_or_after_its_end(store: MemoryCluster) -> None:
    async def begin() -> tuple[kcore.AsyncNode, BaseException | None]:
        node = await kcore.open_async(cluster=URL, config=settings(1))
        await node.topics.create("t", partitions=2)
        foreign = await asyncio.to_thread(lambda: asyncio.run(outcome(node)))
        await node.topics["t"].append("a")
        return node, foreign

    async def outcome(node: kcore.AsyncNode) -> BaseException | None:
        return (await asyncio.gather(node.close(), return_exceptions=True))[0]

    loop = asyncio.new_event_loop()
    node, foreign = loop.run_until_complete(begin())
    assert isinstance(foreign, ConcurrentCallError)
    for _ in range(2):
        assert asyncio.run(asyncio.wait_for(outcome(node), 60)) is None
    loop.close()


def test_arguments_of_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no data folder"):
        kcore.open(tmp_path, cluster=URL)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="no data folder"):
        kcore.open(cluster=URL, config={"kcore.data.dir": str(tmp_path)})
    with pytest.raises(ConfigError, match="fixed port"):
        kcore.open(cluster=URL, config={"listeners": "PLAINTEXT://127.0.0.1:0"})
    with pytest.raises(ConfigError, match="must begin with one of"):
        kcore.open(cluster="mysql://x", config=settings(1))


def test_a_busy_port_ends_the_attempt(store: MemoryCluster) -> None:
    with kcore.open(cluster=URL, config=settings(1)) as one:
        busy = {**settings(2), "listeners": ",".join(one.config.listeners)}
        with pytest.raises(OSError, match="in use"):
            kcore.open(cluster=URL, config=busy)
        one.topics.create("t")


def test_commands_move_and_spread_the_leaders(store: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    by_hand = {"auto.leader.rebalance.enable": "false"}
    with kcore.open(cluster=URL, config={**settings(1), **by_hand}) as one:
        one.topics.create("t", partitions=4)
        with kcore.open(cluster=URL, config={**settings(2), **by_hand}):
            command = MemoryClusterStore(store)
            wait_until(lambda: len(one.send(DescribeClusterRequest()).brokers) == 2, "both nodes are registered")
            assert leading(store) == {1}
            assert main(["cluster", "move", URL, "t-3", "2"]) == 0
            assert capsys.readouterr().out == "t-3: node 2 leads it\n"
            moved = [row for row in command.leaders() if row.leader == 2]
            assert [row.key.partition for row in moved] == [3]
            assert main(["cluster", "rebalance", URL]) == 0
            assert capsys.readouterr().out == "the leaders are spread evenly\n"
            assert main(["cluster", "move", URL, "t-9", "2"]) == 1
            assert "has no partition 9" in capsys.readouterr().err
            assert main(["cluster", "move", URL, "t-0", "7"]) == 1
            assert main(["cluster", "move", URL, "t", "2"]) == 1
            assert "TOPIC-NUMBER" in capsys.readouterr().err
            assert main(["cluster", "drain", URL, "2"]) == 0
            capsys.readouterr()
            assert main(["cluster", "move", URL, "t-0", "2"]) == 1
            assert capsys.readouterr().err == (
                "kcore: node 2 is draining, so that the controller would move the partition away again: first run "
                "`kcore cluster drain --stop URL 2`\n"
            )


def test_a_node_of_a_cluster_has_no_data_folder() -> None:
    with pytest.raises(ConfigError, match="a node of a cluster has no data folder"):
        store_of_node("memory://name", Config.of({"kcore.data.dir": "data"}))
