"""Client quotas for requests that one node forwards to another: the quota slows down the client, never the node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kcore.broker.metadata.quotas import CLIENT_ID
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kcore.runtime import Pending, RequestContext
from tests.cluster.world import ClusterWorld, Node, from_node
from tests.kit import create

CLIENT, CONNECTION = "greedy", 77
SECOND_NS = 1_000_000_000


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld()
    world.start()
    yield world
    world.close()


def limit(world: ClusterWorld, quota: str, value: float) -> None:
    """Sets the default quota of all client ids."""
    entity = [EntityData(entity_type=CLIENT_ID, entity_name=None)]
    request = AlterClientQuotasRequest(
        entries=[EntryData(entity=entity, ops=[OpData(key=quota, value=value, remove=False)])]
    )
    (entry,) = world.controller.send(request).entries
    assert entry.error_code == 0
    world.advance(500)


def other(world: ClusterWorld) -> Node:
    return next(node for node in world.up if node is not world.controller)


def mutes(node: Node) -> list[tuple[int, int]]:
    """Returns a list to which the node adds each connection that it mutes, with the time."""
    assert node.engine is not None
    found: list[tuple[int, int]] = []
    node.engine.client_quotas.mute = lambda connection_id, ms: found.append((connection_id, ms))
    return found


def created(world: ClusterWorld, node: Node, topic: str, version: int) -> Any:
    """Creates a topic of 40 partitions. The request reaches a node on the client's connection."""
    assert node.engine is not None
    context = RequestContext(version, CLIENT, connection_id=CONNECTION)
    response = node.engine.submit(context, create(topic, partitions=40))
    world.advance(500)
    return response.response if isinstance(response, Pending) else response


@pytest.mark.parametrize("version", [5, 7])
def test_the_node_of_a_client_mutes_it_and_the_controller_mutes_no_node(world: ClusterWorld, version: int) -> None:
    """A client exceeds its quota. The node that it is connected to mutes the client, but the controller does not mute
    the node.

    Otherwise requests of other clients of this node would wait, too.
    """
    limit(world, "controller_mutation_rate", 1.0)
    node = other(world)
    at_controller, at_node = mutes(world.controller), mutes(node)
    responses = [created(world, node, f"t{number}", version) for number in range(2)]
    times = [response.throttle_time_ms for response in responses]
    assert max(times) > 20_000
    assert at_controller == [(0, ms) for ms in times if ms]
    assert at_node == [(CONNECTION, ms) for ms in times if ms]
    codes = [response.topics[0].error_code for response in responses]
    assert codes == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED if version >= 6 else 0]


def test_the_requests_of_nodes_do_not_count(world: ClusterWorld) -> None:
    limit(world, "request_percentage", 1.0)
    controller = world.controller.engine
    assert controller is not None
    muted = mutes(world.controller)
    quotas = controller.client_quotas
    assert quotas.charge_time(from_node(2)._replace(connection_id=5), SECOND_NS) == 0
    pretended = from_node(2)._replace(connection_id=6, node_secret="guessed")
    assert quotas.charge_time(pretended, SECOND_NS) > 0
    assert quotas.charge_time(RequestContext(0, "node", connection_id=7), SECOND_NS) > 0
    assert [connection_id for connection_id, _ in muted] == [6, 7]
