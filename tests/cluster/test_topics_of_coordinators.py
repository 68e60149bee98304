"""Topics that coordinators create while another node is the controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kcore.broker.acl.entries import PatternType, Permission
from kcore.broker.cluster.forwarding import own_request
from kcore.config.security import STANDARD_AUTHORIZER
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kcore.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.runtime.partitioner import partition_for
from tests.cluster.world import Call, ClusterWorld, Node, secret_of
from tests.group.streams.members import internal, owned_tasks, subtopology, topology
from tests.kit import create

AUTHORIZED = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:node;User:admin",
    "group.streams.initial.rebalance.delay.ms": "0",
}
RIGHTS = [
    (ResourceType.GROUP, "app", Operation.READ),
    (ResourceType.TOPIC, "app", Operation.CREATE),
    (ResourceType.TOPIC, "app", Operation.DESCRIBE),
    (ResourceType.TOPIC, "in", Operation.DESCRIBE),
]
MISSING = 3
"""Status code of a group whose internal topics do not exist."""


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld(settings=AUTHORIZED)
    world.start()
    created = world.controller.send(create("in", partitions=2), principal="User:admin")
    assert created.topics[0].error_code == 0
    allowed = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=resource,
                resource_name=name,
                resource_pattern_type=PatternType.PREFIXED,
                principal="User:app",
                host="*",
                operation=operation,
                permission_type=Permission.ALLOW,
            )
            for resource, name, operation in RIGHTS
        ]
    )
    results = world.controller.send(allowed, principal="User:admin").results
    assert [result.error_code for result in results] == [0] * len(RIGHTS)
    world.advance(500)
    yield world
    world.close()


def application(world: ClusterWorld) -> tuple[str, Node]:
    """Returns a group whose coordinator is not on the controller, and the node of this coordinator."""
    for number in range(100):
        group = f"app{number}"
        node = world.leader(CONSUMER_OFFSETS, partition_for(group, 6))
        if node is not world.controller:
            return group, node
    raise AssertionError("the controller coordinates all groups")


def joined(group: str, node: Node) -> Any:
    """Joins the group with a stateful topology."""
    log = internal(f"{group}.changelog")
    return node.send(
        StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            topology=topology(subtopology("0", ["in"], [log])),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
        ),
        principal="User:app",
    )


def beat(group: str, node: Node, epoch: int) -> Any:
    request = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    return node.send(request, principal="User:app")


def details(response: Any) -> list[str]:
    return [status.status_detail for status in response.status or () if status.status_code == MISSING]


def test_any_coordinator_creates_the_internal_topics_of_a_streams_group(world: ClusterWorld) -> None:
    group, node = application(world)
    first = joined(group, node)
    assert (first.error_code, details(first)) == (0, [f"the internal topics {group}.changelog are missing"])
    world.advance(1_000)
    assert node.engine is not None
    made = node.engine.topics.by_name(f"{group}.changelog")
    assert made is not None
    assert made.partitions == 2
    response = beat(group, node, first.member_epoch)
    assert (details(response), owned_tasks(response.active_tasks)) == ([], {"0": [0, 1]})
    assert node.engine.control.application_topics.failures([f"{group}.changelog"]) == {}


def test_a_failure_of_the_controller_is_reported_and_the_request_repeated(world: ClusterWorld) -> None:
    group, node = application(world)
    name = f"{group}.changelog"
    losing = [True]

    def lose(call: Call) -> bool:
        return losing[0] and not call.is_response and isinstance(call.request, EnvelopeRequest)

    world.network.lose = lose
    first = joined(group, node)
    world.advance(500)
    losing[0] = False
    second = beat(group, node, first.member_epoch)
    assert details(second) == [
        f"the internal topics {name} are missing; their creation failed: {name} (the controller cannot be reached)"
    ]
    world.advance(1_000)
    third = beat(group, node, second.member_epoch)
    assert (details(third), owned_tasks(third.active_tasks)) == ([], {"0": [0, 1]})


def test_the_reason_for_which_the_controller_refuses_a_topic_is_reported(world: ClusterWorld) -> None:
    group, node = application(world)
    name = f"{group}.changelog"
    similar = create(f"{group}_changelog", partitions=2)
    assert world.controller.send(similar, principal="User:admin").topics[0].error_code == 0
    first = joined(group, node)
    world.advance(1_000)
    second = beat(group, node, first.member_epoch)
    reason = f"{name} differs from an existing topic only in dots and underscores"
    assert details(second) == [f"the internal topics {name} are missing; their creation failed: {name} ({reason})"]
    assert not second.active_tasks


def test_an_interrupt_while_the_request_is_made_leaves_nothing_queued(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, node = application(world)
    assert node.engine is not None

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(node.peers, "send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            joined(group, node)
    first = joined(group, node)
    world.advance(1_000)
    response = beat(group, node, first.member_epoch)
    assert owned_tasks(response.active_tasks) == {"0": [0, 1]}


@pytest.mark.parametrize(("key_type", "topic"), [(1, TRANSACTION_STATE), (2, SHARE_GROUP_STATE)])
def test_any_node_has_the_topics_of_coordinators_created_despite_acls(
    world: ClusterWorld, key_type: int, topic: str
) -> None:
    node = next(node for node in world.up if node is not world.controller)
    key = "share:" + "A" * 22 + ":0" if key_type == 2 else "transaction"
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    node.send(request, 6, principal="User:admin")
    world.advance(1_000)
    assert node.engine is not None
    assert node.engine.topics.by_name(topic) is not None
    (found,) = node.send(request, 6, principal="User:admin").coordinators
    assert found.error_code == 0


def test_only_nodes_may_have_the_topics_of_coordinators_created(world: ClusterWorld) -> None:
    """With an authorizer, the controller refuses a user's request to create such a topic, even with the secret of a
    node.
    """
    response = world.controller.send(own_request(TRANSACTION_STATE), 0, principal="User:app")
    assert isinstance(response, EnvelopeResponse)
    assert (response.error_code, secret_of(1) != "") == (31, True)
    world.advance(500)
    assert world.controller.engine is not None
    assert world.controller.engine.topics.by_name(TRANSACTION_STATE) is None


@pytest.mark.parametrize("version", [1, 13])
def test_no_node_lets_a_client_without_permission_wait_for_a_missing_topic(world: ClusterWorld, version: int) -> None:
    """As in Kafka, a broker checks the permission CREATE before it requests the topic from the controller."""
    names = ["in2", "app-auto"]  # the client may see both, and create the second
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )
    codes = [
        {topic.name: topic.error_code for topic in node.send(request, version, "User:app").topics}
        for node in sorted(world.up, key=lambda node: node is world.controller)
    ]
    assert codes[0] == {"in2": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "app-auto": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [code["in2"] for code in codes] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(world.up)
    world.advance(500)
    for node in world.up:
        assert node.engine is not None
        assert [node.engine.topics.by_name(name) is not None for name in names] == [False, True]
