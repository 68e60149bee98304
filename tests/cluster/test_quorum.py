"""The controller as the quorum of a cluster, and the removal of nodes. Every node sends the same response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kcore.config.security import STANDARD_AUTHORIZER
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kcore.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from kcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kcore.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.cluster.world import TIMING, ClusterWorld, check

ADMIN = "User:admin"
FAILOVER_MS = TIMING.ttl_ms + 2_000


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld(settings={"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": f"User:node;{ADMIN}"})
    world.start()
    yield world
    world.close()


def responses_of(world: ClusterWorld, request: Any, version: int, who: str = ADMIN) -> list[Any]:
    """Returns the responses of all running nodes, without the times in them."""
    return [node.send(request, version, who) for node in world.up]


def unregistered(world: ClusterWorld, node_id: int, who: str = ADMIN) -> set[tuple[int, str | None]]:
    responses = responses_of(world, UnregisterBrokerRequest(broker_id=node_id), 0, who)
    return {(response.error_code, response.error_message) for response in responses}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_node_names_the_controller_as_the_leader_of_the_quorum(world: ClusterWorld, version: int) -> None:
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )

    def leaders() -> set[tuple[int, int, int]]:
        found = set()
        for response in responses_of(world, request, version):
            (partition,) = response.topics[0].partitions
            (voter,) = partition.current_voters
            found.add((partition.leader_id, voter.replica_id, partition.leader_epoch))
            assert [node.node_id for node in response.nodes] == ([n.node_id for n in world.up] if version == 2 else [])
        return found

    ((leader, voter, epoch),) = leaders()
    assert leader == voter == world.controller.node_id
    world.controller.kill()
    world.advance(FAILOVER_MS)
    ((leader, voter, later),) = leaders()
    assert leader == voter == world.controller.node_id
    assert later > epoch
    refused = responses_of(world, request, version, "User:alice")
    assert [response.error_code for response in refused] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2


def test_every_node_sends_the_same_response_about_voters(world: ClusterWorld) -> None:
    controller = world.controller.node_id
    for node_id in (1, 2, 3, 9):
        for request in (
            AddRaftVoterRequest(cluster_id=None, voter_id=node_id),
            RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id),
        ):
            (code,) = {response.error_code for response in responses_of(world, request, 0)}
            if isinstance(request, RemoveRaftVoterRequest):
                assert code == ErrorCode.VOTER_NOT_FOUND
            else:
                assert code == (ErrorCode.DUPLICATE_VOTER if node_id == controller else ErrorCode.REQUEST_TIMED_OUT)


def known(world: ClusterWorld) -> set[tuple[int, ...]]:
    """Returns the registered nodes, as every node describes them."""
    request = DescribeClusterRequest(include_fenced_brokers=True)
    return {tuple(broker.broker_id for broker in one.brokers) for one in responses_of(world, request, 2)}


def test_a_node_that_has_left_for_good_is_unregistered_at_any_node(world: ClusterWorld) -> None:
    left = next(node for node in world.up if node is not world.controller)
    invalid, missing = ErrorCode.INVALID_REQUEST, ErrorCode.BROKER_ID_NOT_REGISTERED
    assert unregistered(world, left.node_id) == {(invalid, f"broker {left.node_id} is alive: stop it first")}
    assert unregistered(world, 9) == {(missing, "broker 9 is not registered")}
    left.kill()
    world.advance(FAILOVER_MS)
    assert {code for code, _ in unregistered(world, left.node_id, "User:alice")} == {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    }
    follower = next(node for node in world.up if node is not world.controller)
    response = follower.send(UnregisterBrokerRequest(broker_id=left.node_id), 0, ADMIN)
    assert (response.error_code, response.error_message) == (0, None)
    world.advance(500)
    assert unregistered(world, left.node_id) == {(missing, f"broker {left.node_id} is not registered")}
    assert known(world) == {tuple(node.node_id for node in world.up)}
    check(world)
    left.start()
    world.advance(FAILOVER_MS)
    assert known(world) == {(1, 2, 3)}
    check(world)
