"""Requests between nodes: forwarded changes of the metadata, producer ids, and topics that are created on demand."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kcore.broker.cluster.forwarding import RETRY_FOR_MS, RETRY_MS, seal, unseal
from kcore.broker.cluster.node_access import NodeAccess, NodeSecrets
from kcore.broker.metadata.image import ConfigType
from kcore.cluster.memory_store import MemoryClusterStore
from kcore.errors import CloseConnectionError, KafkaError
from kcore.process_logging import LINES_BURST
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kcore.protocol.messages.alter_partition import AlterPartitionRequest
from kcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kcore.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kcore.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kcore.protocol.messages.fetch import FetchRequest
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.runtime import Pending, RequestContext
from kcore.server.dispatch import Dispatch
from kcore_ext.codec.frames import encode_request
from tests.cluster.world import TIMING, Call, Client, ClusterWorld, Node, check, from_node
from tests.kit import create, make_topic

CONTEXT = RequestContext(7, "admin", "/10.1.2.3", "PUBLIC", "User:alice", 9)
ELEMENTS = 1_000


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld()
    world.start()
    yield world
    world.close()


def test_an_envelope_keeps_the_client_and_its_request() -> None:
    request = create("t", partitions=3)
    context, inner = unseal(seal(CONTEXT, request), "INTERNAL", ELEMENTS)
    assert inner == request
    assert context == CONTEXT._replace(listener="INTERNAL", connection_id=0, forwarded=True)


@pytest.mark.parametrize("size", [32_767, 32_768, 98_301])
def test_an_envelope_shortens_a_client_id_whose_replacements_are_too_long(size: int) -> None:
    """A client id may have up to 32,767 bytes that are not UTF-8. The decoder replaces each byte by a character of
    three bytes.
    """
    client_id = "x" * (size % 3) + "\ufffd" * (size // 3)
    context, _ = unseal(seal(CONTEXT._replace(client_id=client_id), create("t")), "INTERNAL", ELEMENTS)
    assert client_id.startswith(context.client_id)
    assert len(context.client_id.encode()) in range(32_765, 32_768)


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (EnvelopeRequest(), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (EnvelopeRequest(request_principal=None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (EnvelopeRequest(request_principal=b"\0\0\x01"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (EnvelopeRequest(request_principal=b"\0\0\x01\x01\0\0"), ErrorCode.INVALID_REQUEST),
        (EnvelopeRequest(request_principal=b"\0\0\x01\x01\0\0", request_data=bytes(40)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_unreadable_envelope_is_refused(envelope: EnvelopeRequest, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        unseal(envelope, "INTERNAL", ELEMENTS)
    assert refused.value.code == code


def test_a_truncated_envelope_is_refused() -> None:
    sealed = seal(CONTEXT, create("t"))
    for size in range(len(sealed.request_data)):
        with pytest.raises(KafkaError):
            unseal(
                EnvelopeRequest(
                    request_data=sealed.request_data[:size],
                    request_principal=sealed.request_principal,
                    client_host_address=sealed.client_host_address,
                ),
                "INTERNAL",
                ELEMENTS,
            )


def test_an_envelope_with_too_many_elements_is_refused() -> None:
    """A client's request in an envelope has the same limit as any request: `kcore.max.request.elements`."""
    topics = [DeleteTopicState(name=f"t{number}") for number in range(50)]
    sealed = seal(CONTEXT._replace(api_version=6), DeleteTopicsRequest(topics=topics))
    assert len(unseal(sealed, "INTERNAL", 50).request.topics) == 50
    with pytest.raises(KafkaError) as refused:
        unseal(sealed, "INTERNAL", 49)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_an_envelope_has_room_for_the_largest_request(world: ClusterWorld) -> None:
    """The largest request of a client, with the longest names, makes an envelope within the controller's limit.

    If an envelope were too long, the controller would close the node's connection. Requests of other clients on this
    connection would fail, too.
    """
    assert world.controller.engine is not None
    dispatch = Dispatch(world.controller.engine)
    inner, outer = dispatch.route(ApiKey.DELETE_TOPICS), dispatch.route(ApiKey.ENVELOPE)
    assert inner is not None
    assert outer is not None
    most = 32_767
    context = CONTEXT._replace(api_version=6, client_id="c" * most, principal="User:" + "u" * most)
    topics = [DeleteTopicState(name="t" * 390)] * ((inner.max_request_bytes - most - 100) // 409)
    request = DeleteTopicsRequest(topics=topics)
    size = len(encode_request(request, context.api_version, 1, context.client_id))
    assert inner.max_request_bytes - 1_000 < size <= inner.max_request_bytes
    envelope = encode_request(seal(context, request), 0, 1, "kcore-node/" + "s" * 32)
    assert inner.max_request_bytes < len(envelope) <= outer.max_request_bytes


def test_requests_of_nodes_are_refused_on_the_listeners_of_clients() -> None:
    """If a client could send these requests, it could make the controller move all partitions of a node."""
    world = ClusterWorld(settings={"inter.broker.listener.name": "PLAINTEXT"})
    world.start()
    engine = world.controller.engine
    assert engine is not None
    node_id, epoch = engine.config.node_id, engine.membership.lease.epoch
    requests = [
        BrokerHeartbeatRequest(broker_id=node_id, broker_epoch=epoch, want_shut_down=True),
        AlterPartitionRequest(broker_id=node_id, broker_epoch=epoch),
        AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=epoch),
        seal(CONTEXT, create("t")),
    ]
    for request in requests:
        version = engine.newest_version(request)
        response = engine.submit(RequestContext(version, "c", listener="PUBLIC"), request)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request
    stale = BrokerHeartbeatRequest(broker_id=node_id, broker_epoch=epoch + 1, want_shut_down=True)
    response = engine.submit(from_node(node_id), stale)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    own = BrokerHeartbeatRequest(broker_id=node_id, broker_epoch=epoch)
    response = engine.submit(from_node(node_id), own)
    assert response.error_code == ErrorCode.NONE
    world.close()


@pytest.mark.parametrize("secret", ["", "secret-9", "secret"])
def test_requests_of_nodes_are_refused_without_the_secret_of_a_node(world: ClusterWorld, secret: str) -> None:
    """The controller refuses a request without the right secret from the shared store.

    The secret identifies a node if the cluster has neither an authorizer nor a separate listener for nodes.
    """
    engine = world.controller.engine
    assert engine is not None
    node_id, epoch = engine.config.node_id, engine.membership.lease.epoch
    for request in (
        BrokerHeartbeatRequest(broker_id=node_id, broker_epoch=epoch, want_shut_down=True),
        AlterPartitionRequest(broker_id=node_id, broker_epoch=epoch),
        AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=epoch),
        seal(CONTEXT, create("t")),
    ):
        version = engine.newest_version(request)
        response = engine.submit(RequestContext(version, "kcore-node", node_secret=secret), request)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request
        response = engine.submit(from_node(1 if node_id != 1 else 2, version), request)
        assert isinstance(response, Pending) or response.error_code == ErrorCode.NONE, request


@pytest.mark.parametrize(
    ("settings", "context", "reason"),
    [
        ({}, RequestContext(0, node_secret="guessed"), "lacks the secret of a live node"),
        ({}, RequestContext(0), "lacks the secret of a live node"),
        (
            {"inter.broker.listener.name": "PLAINTEXT"},
            from_node(1)._replace(listener="PUBLIC"),
            "requests of nodes are only served at the listener of inter.broker.listener.name",
        ),
        (
            {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:node",
            },
            RequestContext(0, principal="User:alice"),
            "principal 'User:alice' is not allowed to act as a node",
        ),
    ],
    ids=["wrong secret", "no secret", "wrong listener", "no permission"],
)
def test_a_refused_request_of_a_node_is_logged(
    caplog: pytest.LogCaptureFixture, settings: dict[str, str], context: RequestContext, reason: str
) -> None:
    """The log line has the refused client and the reason. A client that repeats the request does not fill the disk with
    such lines.
    """
    world = ClusterWorld(settings=settings)
    world.start()
    engine = world.controller.engine
    assert engine is not None
    caplog.clear()
    context = context._replace(client_host="/10.1.2.3")
    requests = {
        "Envelope": seal(CONTEXT, create("t")),
        "BrokerHeartbeat": BrokerHeartbeatRequest(),
        "AlterPartition": AlterPartitionRequest(),
        "AllocateProducerIds": AllocateProducerIdsRequest(),
    }
    for request in requests.values():
        version = engine.newest_version(request)
        assert engine.submit(context._replace(api_version=version), request).error_code
    # The authorizer logs a denial as well, unless it has logged many in the last seconds.
    records = [record for record in caplog.records if not record.getMessage().startswith("authorizer: denied")]
    assert len(records) == len(requests)
    for name, record in zip(requests, records, strict=True):
        assert record.getMessage().startswith(f"cluster: {name} from /10.1.2.3 at listener ")
        assert reason in record.getMessage()
        assert record.levelno == logging.WARNING
    assert "guessed" not in caplog.text
    for _ in range(10 * LINES_BURST):
        engine.submit(context, requests["Envelope"])
    assert len(caplog.messages) < 2 * LINES_BURST
    world.close()


def test_an_unusable_envelope_is_logged(world: ClusterWorld, caplog: pytest.LogCaptureFixture) -> None:
    engine = world.controller.engine
    assert engine is not None
    caplog.clear()
    other = 1 if engine.config.node_id != 1 else 2
    envelopes = [seal(CONTEXT, FetchRequest()), seal(CONTEXT, FetchRequest()), seal(CONTEXT, create("t"))]
    envelopes[0].request_principal = b"\0\0\x01"
    envelopes[2].request_principal = None
    codes = [engine.submit(from_node(other), envelope).error_code for envelope in envelopes]
    assert codes == [
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert "requests of API key 1 cannot be forwarded" in caplog.messages[1]
    assert "an envelope without a principal may only create internal topics" in caplog.messages[2]


def test_the_refusal_of_an_envelope_is_logged_by_its_sender(
    world: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    controller, sender = world.controller, next(node for node in world.up if node is not world.controller)
    assert controller.engine is not None
    controller.engine.node_secrets.update([])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeSecrets, "update", lambda self, nodes: None)  # no poll updates the node's secrets
        response = sender.send(create("t"), wait_ms=2 * RETRY_FOR_MS)
        assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    number = controller.engine.config.node_id
    text = f"forwarded CreateTopics of a client to the controller, node {number}, which refused the request"
    assert any(f"{text} with CLUSTER_AUTHORIZATION_FAILED" in line for line in caplog.messages)
    assert sender.send(create("t")).topics[0].error_code == ErrorCode.NONE


def test_before_the_first_poll_of_the_cluster_no_client_is_a_node() -> None:
    access = NodeAccess("", None, NodeSecrets())
    assert not access.allowed(RequestContext(0, "c"), ApiKey.ENVELOPE)
    assert not access.allowed(RequestContext(0, "kcore-node", node_secret="guessed"), ApiKey.ENVELOPE)


def test_a_node_of_an_older_version_has_no_secret_and_none_is_needed(world: ClusterWorld) -> None:
    """While a live node of an older version has no secret, requests between nodes need none.

    Once this node is fenced, every such request needs the secret.
    """
    engine = world.controller.engine
    assert engine is not None
    nodes = engine.store.nodes()
    secrets = NodeSecrets()
    access = NodeAccess("", None, secrets)
    stranger = RequestContext(0, "c")
    old = nodes[0]._replace(description=nodes[0].description._replace(secret=""))
    secrets.update([*nodes[1:], old])
    assert access.allowed(stranger, ApiKey.ENVELOPE)
    secrets.update([*nodes[1:], old._replace(fenced=True)])
    assert not access.allowed(stranger, ApiKey.ENVELOPE)
    secrets.update([])
    assert not access.allowed(stranger, ApiKey.ENVELOPE)


def test_any_node_creates_topics(world: ClusterWorld) -> None:
    for number, node in world.nodes.items():
        make_topic(node, f"topic-{number}", 3)
    world.advance(500)
    check(world)
    for node in world.up:
        assert node.engine is not None
        assert {"topic-1", "topic-2", "topic-3"} <= set(node.engine.topics.image.names)
    assert world.network.carried.count("EnvelopeRequest") == 2


def test_the_controllers_error_reaches_the_client(world: ClusterWorld) -> None:
    make_topic(world.nodes[3], "t")
    (result,) = world.nodes[2].send(create("t")).topics
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_without_a_controller_changes_are_refused_with_a_retriable_error(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(MemoryClusterStore, "take_controller", lambda *_: None)
        world.controller.kill()
        (result,) = world.nodes[2].send(create("t"), wait_ms=2 * RETRY_FOR_MS).topics
        assert result.error_code == ErrorCode.NOT_CONTROLLER
    Client(world).create("t")
    check(world)


def test_a_client_of_another_node_sees_no_error_when_the_controller_dies(world: ClusterWorld) -> None:
    """A node repeats a client's request until the next controller decides it. The client sees no error.

    The lease of the controller is shorter than that of a node, so the next controller starts soon.
    """
    killed_ms = world.clock.monotonic_ms()
    dead = world.controller
    dead.kill()
    for number, node in enumerate(world.up):
        response = node.send(create(f"t{number}"), wait_ms=RETRY_FOR_MS)
        assert response.topics[0].error_code == ErrorCode.NONE
    most_ms = TIMING.controller_ttl_ms + 2 * RETRY_MS + TIMING.poll_ms
    assert most_ms < RETRY_FOR_MS
    assert world.clock.monotonic_ms() - killed_ms <= most_ms
    leaders = [leader.leader for leader in world.open_store().leaders()]
    assert dead.node_id in leaders, "the partitions of the dead node move once its own lease has ended"
    world.advance(TIMING.ttl_ms)
    check(world)


def test_a_controller_that_was_paused_decides_nothing_after_its_lease(world: ClusterWorld) -> None:
    """A paused node loses the controller's lease, but keeps its lease as a node. It then has old metadata.

    The node forwards a client's request to the new controller, and refuses a request that another node forwards to it.
    """
    make_topic(world.nodes[2], "t")
    world.advance(500)
    zombie = world.controller
    assert zombie.engine is not None
    zombie.paused = True
    world.advance(TIMING.controller_ttl_ms + 500)
    successor = next(node for node in world.up if node is not zombie)
    deleted = successor.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=100), 5, wait_ms=RETRY_FOR_MS)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    assert zombie.engine.membership.is_serving()
    pending = zombie.engine.submit(RequestContext(7), create("t"))
    assert isinstance(pending, Pending), (
        "the node sends the request to the present controller, so the result is not TOPIC_ALREADY_EXISTS"
    )
    envelope = zombie.engine.submit(from_node(successor.node_id), seal(CONTEXT, create("t")))
    assert envelope.error_code == ErrorCode.NOT_CONTROLLER
    zombie.paused = False
    world.advance(RETRY_FOR_MS)
    assert pending.response.topics[0].error_code == ErrorCode.NONE
    assert world.controller is not zombie
    check(world)


def test_a_client_sees_no_error_while_the_controller_moves(world: ClusterWorld) -> None:
    """As in Kafka, the node sends the request again to the next controller, because some clients do not retry."""
    controller = world.controller
    left: list[bool] = []
    assert controller.engine is not None
    controller.engine.hand_over(lambda: left.append(True))
    while not left:
        world.advance(50)
    controller.stop()
    for number, node in enumerate(world.up):
        assert node.send(create(f"t{number}")).topics[0].error_code == ErrorCode.NONE
    assert world.controller is not controller
    check(world)


def test_a_request_that_does_not_reach_the_controller_is_sent_again(world: ClusterWorld) -> None:
    lost: list[Call] = []

    def lose(call: Call) -> bool:
        if isinstance(call.request, EnvelopeRequest) and not call.is_response and len(lost) < 3:
            lost.append(call)
            return True
        return False

    world.network.lose = lose
    assert world.nodes[2].send(create("t")).topics[0].error_code == ErrorCode.NONE
    assert len(lost) == 3


def test_a_request_that_cannot_be_sent_again_gets_a_response(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer that sends the request again raises an exception. Even then, the client gets a response."""
    world.network.lose = lambda call: isinstance(call.request, EnvelopeRequest) and not call.is_response
    engine = world.nodes[2].engine
    assert engine is not None
    pending = engine.submit(RequestContext(7), create("t"))

    def broken(*arguments: object) -> None:
        raise ValueError

    with monkeypatch.context() as patch:
        patch.setattr(world.nodes[2].peers, "send", broken)
        world.advance(500)
    assert pending.response.topics[0].error_code == ErrorCode.NOT_CONTROLLER


def test_requests_are_authorized_for_their_client(world: ClusterWorld) -> None:
    world.network.carried.clear()  # moves of leaders
    response = world.nodes[2].send(CreateAclsRequest(creations=[]))
    assert list(response.results) == []
    assert world.network.carried == ["EnvelopeRequest"]


def test_a_missing_topic_is_created_by_the_controller(world: ClusterWorld) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
    first = world.nodes[2].send(request, 12).topics[0]
    assert first.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.advance(500)
    described = world.nodes[2].send(request, 12).topics[0]
    assert described.error_code == ErrorCode.NONE
    assert len(described.partitions) == 1
    without = MetadataRequest(topics=[MetadataRequestTopic(name="other")], allow_auto_topic_creation=False)
    world.nodes[2].send(without, 12)
    world.advance(500)
    for node in world.up:
        assert node.engine is not None
        assert node.engine.topics.by_name("other") is None


def test_producer_ids_are_unique_over_nodes_and_restarts(world: ClusterWorld) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    taken: list[int] = []

    def take(number: int, count: int) -> None:
        missing = 0
        while count:
            response = world.nodes[number].send(request)
            if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                missing += 1
                assert missing < 10, "the controller allocates blocks"
                world.advance(200)
                continue
            assert response.error_code == 0
            taken.append(response.producer_id)
            count -= 1

    for _ in range(3):
        for number in world.nodes:
            take(number, 450)
    world.nodes[1].kill()
    world.advance(8_000)
    take(2, 450)
    take(3, 450)
    assert len(set(taken)) == len(taken)


def test_a_stale_incarnation_gets_no_producer_ids(world: ClusterWorld) -> None:
    from kcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

    controller = world.controller
    stale = controller.send(AllocateProducerIdsRequest(broker_id=2, broker_epoch=77))
    unknown = controller.send(AllocateProducerIdsRequest(broker_id=9, broker_epoch=1))
    follower = world.nodes[2].send(AllocateProducerIdsRequest(broker_id=2, broker_epoch=1))
    assert [response.error_code for response in (stale, unknown, follower)] == [
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.NOT_CONTROLLER,
    ]


def altered(world: ClusterWorld, at: Node, config_type: int, name: str, setting: str, value: str) -> int:
    """Sets one setting with a request to a node; returns the error code of the resource."""
    config = AlterableConfig(name=setting, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=config_type, resource_name=name, configs=[config])
    return int(at.send(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code)


def setting_of(node: Node, name: str) -> object:
    assert node.engine is not None
    return node.engine.control.broker_config.config.get(name)


def test_each_node_changes_its_own_settings(world: ClusterWorld) -> None:
    """Each node accepts a change of its own settings. A node that is not the controller forwards the change to the
    controller.

    A change for a node that does not exist is refused.
    """
    for number, node in enumerate(world.up, 1):
        name = str(node.node_id)
        assert altered(world, node, ConfigType.BROKER, name, "message.max.bytes", str(100_000 + number)) == 0
    world.advance(1_000)
    assert [setting_of(node, "message.max.bytes") for node in world.up] == [100_001, 100_002, 100_003]
    assert altered(world, world.up[0], ConfigType.BROKER, "99", "message.max.bytes", "1") == ErrorCode.INVALID_REQUEST
    check(world)


def test_each_node_changes_its_own_loggers(world: ClusterWorld) -> None:
    before = logging.getLogger("kcore.broker.cluster").level
    try:
        for node in world.up:
            args = (ConfigType.BROKER_LOGGER, str(node.node_id), "kcore.broker.cluster", "ERROR")
            assert altered(world, node, *args) == ErrorCode.NONE
            other = next(one for one in world.up if one is not node)
            args = (ConfigType.BROKER_LOGGER, str(other.node_id), "kcore.broker.cluster", "ERROR")
            assert altered(world, node, *args) == ErrorCode.INVALID_REQUEST
        assert logging.getLogger("kcore.broker.cluster").level == logging.ERROR
    finally:
        logging.getLogger("kcore.broker.cluster").setLevel(before)


UNKNOWN_ENUMS = [
    CreateAclsRequest(creations=[AclCreation(resource_type=0, operation=3, permission_type=3, principal="User:a")]),
    CreateAclsRequest(creations=[AclCreation(resource_type=2, operation=0, permission_type=3, principal="User:a")]),
    DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=2, operation=3, permission_type=0)]),
    DeleteAclsRequest(filters=[DeleteAclsFilter(pattern_type_filter=0, operation=3, permission_type=3)]),
]


@pytest.mark.parametrize("request_", UNKNOWN_ENUMS)
def test_a_node_does_not_forward_a_request_that_kafka_cannot_parse(world: ClusterWorld, request_: Any) -> None:
    """If the node forwarded such a request, the controller would close its connection to this node. All other requests
    on the connection would fail.
    """
    world.network.carried.clear()
    for node_id in (1, 2):
        with pytest.raises(CloseConnectionError, match="unknown type, operation or permission"):
            world.nodes[node_id].send(request_)
    assert world.network.carried == []


@pytest.mark.parametrize("request_", UNKNOWN_ENUMS)
def test_the_controller_refuses_an_envelope_that_kafka_cannot_parse(world: ClusterWorld, request_: Any) -> None:
    context = RequestContext(3, "admin", "/10.1.2.3", "PUBLIC", "User:alice", 9)
    response = world.nodes[1].send(seal(context, request_), 0)
    assert response == EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
