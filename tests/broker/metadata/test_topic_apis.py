"""DeleteTopics, CreatePartitions, Metadata, DescribeTopicPartitions, DescribeCluster, DescribeLogDirs, ElectLeaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kcore.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from kcore.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kcore.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kcore.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from kcore.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from kcore.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kcore.runtime.cluster import Broker, Leader, SingleNodeCluster
from tests.broker.context import CLUSTER_ID, DATA_DIR, HOST, NODE_ID, PORT, VOLUME, BrokerContext
from tests.broker.metadata.test_create_topics import Only

NOT_REQUESTED = -2147483648


# ---------------------------------------------------------------- DeleteTopics
def test_deletion_can_be_disabled() -> None:
    """With delete.topic.enable=false, requests get TOPIC_DELETION_DISABLED, or INVALID_REQUEST before version 3."""
    node = BrokerContext({"delete.topic.enable": "false"})
    node.create("t")
    for version, code in ((1, 42), (2, 42), (3, 73), (5, 73)):
        (result,) = node.call(DeleteTopicsRequest(topic_names=["t", "t"]), version).responses
        assert result.error_code == code
    assert node.topics.by_name("t") is not None


def test_hidden_topic_names_are_not_in_responses() -> None:
    """The response to a deletion by id has the name only if the client may describe the topic."""
    node = BrokerContext()
    ids = {name: node.create(name).topic_id for name in ("hidden", "seen")}
    node.apis[20].authorizer = Only((Operation.DESCRIBE, ResourceType.TOPIC, "seen"))
    states = [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids.values()]
    states += [DeleteTopicState(name="hidden"), DeleteTopicState(name="nope")]
    message = ErrorCode.TOPIC_AUTHORIZATION_FAILED.message
    responses = node.call(DeleteTopicsRequest(topics=states)).responses
    assert list(responses) == [
        DeletableTopicResult(name=None, topic_id=ids["hidden"], error_code=29, error_message=message),
        DeletableTopicResult(name="seen", topic_id=ids["seen"], error_code=29, error_message=message),
        DeletableTopicResult(name="hidden", error_code=29, error_message=message),
        DeletableTopicResult(name="nope", error_code=29, error_message=message),
    ]


def test_internal_topics_stay_as_they_are() -> None:
    """Coordinators keep their state in internal topics, so these cannot be deleted or extended."""
    node = BrokerContext({"offsets.topic.num.partitions": 2})
    node.control.internal_topics.ensure("__consumer_offsets")
    node.finish()
    before = node.durable_state()
    topic_id = node.topics.by_name("__consumer_offsets").topic_id  # type: ignore[union-attr]
    by_name = node.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="__consumer_offsets")])).responses
    by_id = node.call(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)])).responses
    grown = CreatePartitionsTopic(name="__consumer_offsets", count=5, assignments=None)
    (result,) = node.call(CreatePartitionsRequest(topics=[grown])).results
    assert [by_name[0].error_code, by_id[0].error_code, result.error_code] == [17, 17, 37]
    assert node.durable_state() == before


# ---------------------------------------------------------------- CreatePartitions
def grow(node: BrokerContext, count: int, assignments: Sequence[Sequence[int]] | None, **more: Any) -> Any:
    wanted = None if assignments is None else [CreatePartitionsAssignment(broker_ids=b) for b in assignments]
    topic = CreatePartitionsTopic(name="t", count=count, assignments=wanted)
    return node.call(CreatePartitionsRequest(topics=[topic], **more)).results


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (3, [[NODE_ID], [NODE_ID]], 0),
        (3, None, 0),
        (3, [[NODE_ID]], 39),
        (3, [], 39),
        (2, [[]], 39),
        (2, [[9]], 39),
        (2, [[NODE_ID, NODE_ID]], 39),
        (1, [], 37),
        (10_002, None, 44),
    ],
)
def test_invalid_assignments_of_new_partitions_are_refused(
    count: int, assignments: Sequence[Sequence[int]] | None, code: int
) -> None:
    """Each new partition needs a list of nodes. The number of partitions is checked first."""
    node = BrokerContext()
    node.create("t", 1)
    (result,) = grow(node, count, assignments)
    assert (result.error_code, result.error_message is None) == (code, code == 0)
    topic = node.topics.by_name("t")
    assert topic is not None
    assert topic.partitions == (count if code == 0 else 1)


def test_an_unknown_topic_has_no_text_and_a_duplicate_has_one_result() -> None:
    """The unknown topic gets UNKNOWN_TOPIC_OR_PARTITION without a message. The duplicate gets INVALID_REQUEST once."""
    node = BrokerContext()
    node.create("t", 1)
    topics = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in ("nope", "t", "t")]
    results = node.call(CreatePartitionsRequest(topics=topics)).results
    assert results[0] == CreatePartitionsTopicResult(name="nope", error_code=3, error_message=None)
    assert [(r.name, r.error_code) for r in results[1:]] == [("t", 42)]


# ---------------------------------------------------------------- Metadata
def partitions(count: int) -> list[MetadataResponsePartition]:
    return [
        MetadataResponsePartition(
            partition_index=i, leader_id=NODE_ID, leader_epoch=0, replica_nodes=[NODE_ID], isr_nodes=[NODE_ID]
        )
        for i in range(count)
    ]


def test_a_metadata_response_has_nodes_cluster_and_topic() -> None:
    """The response has the nodes with the addresses of the client's listener, the cluster and the topic."""
    node = BrokerContext()
    topic_id = node.create("t", 2).topic_id
    requested = MetadataRequest(topics=[MetadataRequestTopic(name="t")], include_topic_authorized_operations=True)
    shown = MetadataResponseTopic(
        name="t", topic_id=topic_id, partitions=partitions(2), topic_authorized_operations=3576
    )
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=NODE_ID, host=HOST, port=PORT)],
        cluster_id=CLUSTER_ID,
        controller_id=NODE_ID,
        topics=[shown],
    )
    assert node.call(requested, 13) == response
    response.brokers = []
    assert node.call(requested, 13, listener="OTHER") == response


def test_cluster_operations_are_in_versions_8_to_10() -> None:
    """Without access control, cluster_authorized_operations is 8096."""
    node = BrokerContext()
    for version in (8, 9, 10):
        requested = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
        assert node.call(requested, version).cluster_authorized_operations == 8096
        assert node.call(MetadataRequest(topics=[]), version).cluster_authorized_operations == NOT_REQUESTED
    cluster = ResourceType.CLUSTER, "kafka-cluster"
    for allowed, bits in ((Operation.ALTER_CONFIGS, 0), (Operation.DESCRIBE, 1 << 8)):
        node.apis[3].authorizer = Only((allowed, *cluster))
        assert node.call(requested, 8).cluster_authorized_operations == bits, "0 without DESCRIBE"


def test_the_leader_epoch_grows_with_every_start() -> None:
    """Clients can thus recognize metadata that is older than the restart."""
    node = BrokerContext()
    node.create("t")
    requested = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    epochs = []
    for _ in range(3):
        epochs.append(node.call(requested).topics[0].partitions[0].leader_epoch)
        partition = node.partitions.get("t", 0)
        assert partition is not None
        assert partition.leader_epoch == epochs[-1]
        node.restart()
    assert epochs == [0, 1, 2]


def test_topics_are_created_on_demand_once_with_the_defaults() -> None:
    """As in Kafka, the first response reports the topics as unknown, and later responses show them with num.partitions
    partitions. A colliding name stays unknown. A client without the right to create topics gets an error.
    """
    node = BrokerContext({"num.partitions": 3})
    requested = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("a.b", "a.b", "c")])
    unknown = [MetadataResponseTopic(error_code=3, name=name) for name in ("a.b", "c")]
    assert list(node.call(requested).topics) == unknown
    second = node.call(requested)
    assert [(t.name, t.error_code, len(t.partitions)) for t in second.topics] == [("a.b", 0, 3), ("c", 0, 3)]
    assert node.call(requested) == second
    collides = node.call(MetadataRequest(topics=[MetadataRequestTopic(name="a_b")]))
    assert [(t.name, t.error_code) for t in collides.topics] == [("a_b", 3)]
    node.apis[3].authorizer = Only((Operation.DESCRIBE, ResourceType.TOPIC, "d"))
    refused = node.call(MetadataRequest(topics=[MetadataRequestTopic(name="d"), MetadataRequestTopic(name="e")]))
    assert [(t.name, t.error_code) for t in refused.topics] == [("d", 29), ("e", 29)]


def test_topics_that_the_client_may_not_describe_are_refused_or_left_out() -> None:
    """A list of all topics omits them. Requests by name or id get TOPIC_AUTHORIZATION_FAILED (29); the response to a
    request by id has no name.
    """
    node = BrokerContext()
    topic_id = node.create("t").topic_id
    node.apis[3].authorizer = Only()
    assert list(node.call(MetadataRequest(topics=None)).topics) == []
    by_name = node.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")])).topics
    by_id = node.call(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])).topics
    assert list(by_name) == [MetadataResponseTopic(error_code=29, name="t")]
    assert list(by_id) == [MetadataResponseTopic(error_code=29, name=None, topic_id=topic_id)]


def test_internal_topics_have_kafkas_own_settings() -> None:
    """Topics for offsets and transactions are compacted, and the share state is deleted by age. Each topic is created
    once.
    """
    node = BrokerContext({"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 4})
    for name in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
        assert node.control.internal_topics.ensure(name)
        assert node.control.internal_topics.ensure(name)
    node.finish()
    assert {t.name: t.partitions for t in node.topics.all()} == {
        "__consumer_offsets": 2,
        "__transaction_state": 4,
        "__share_group_state": 50,
    }
    own = {name: dict(node.topics.settings_of(2, name)) for name in ("__consumer_offsets", "__transaction_state")}
    assert own == {
        "__consumer_offsets": {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        },
        "__transaction_state": {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
        },
    }
    before = node.durable_state()
    node.restart()
    assert node.durable_state() == before
    assert not node.control.internal_topics.ensure("two words")


# ---------------------------------------------------------------- DescribeTopicPartitions
def page(node: BrokerContext, limit: int, cursor: tuple[str, int] | None = None, topics: Sequence[str] = ()) -> Any:
    response: DescribeTopicPartitionsResponse = node.call(
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in topics],
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
    )
    shown = [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in response.topics]
    rest = response.next_cursor
    return shown, None if rest is None else (rest.topic_name, rest.partition_index)


@pytest.fixture
def three() -> BrokerContext:
    node = BrokerContext()
    for name, count in (("c", 2), ("a", 3), ("b", 1)):
        node.create(name, count)
    return node


@pytest.mark.parametrize(
    ("limit", "cursor", "topics", "expected"),
    [
        (2000, None, (), ([("a", 0, [0, 1, 2]), ("b", 0, [0]), ("c", 0, [0, 1])], None)),
        (2, None, (), ([("a", 0, [0, 1])], ("a", 2))),
        (2, ("a", 2), (), ([("a", 0, [2]), ("b", 0, [0])], ("c", 0))),
        (3, None, (), ([("a", 0, [0, 1, 2])], ("b", 0))),
        (0, None, (), ([("a", 0, [0])], ("a", 1))),
        (-5, ("b", 0), (), ([("b", 0, [0])], ("c", 0))),
        (9, ("c", 7), (), ([("c", 0, [])], None)),
        (9, ("bb", 1), (), ([("c", 0, [0, 1])], None)),
        (9, None, ("c", "a", "c"), ([("a", 0, [0, 1, 2]), ("c", 0, [0, 1])], None)),
        (9, ("c", 1), ("c", "a"), ([("c", 0, [1])], None)),
        (9, None, ("nope", "two words", "a"), ([("a", 0, [0, 1, 2]), ("nope", 3, []), ("two words", 17, [])], None)),
        (3, None, ("a", "nope"), ([("a", 0, [0, 1, 2])], ("nope", 0))),
        (9, ("a", -1), ("a", "b"), ([("a", 42, []), ("b", 42, [])], None)),
        (9, ("b", 0), ("a", "c"), ([("a", 42, []), ("c", 42, [])], None)),
        (9, None, ("", "a"), ([("", -1, []), ("a", -1, [])], None)),
        (9, ("b", 0), ("", "a"), ([("", 42, []), ("a", 42, [])], None)),
        (9, ("a", 0), ("", "a"), ([("a", 0, [0, 1, 2])], None)),
    ],
)
def test_a_page_has_a_limited_number_of_partitions_and_a_cursor(
    three: BrokerContext, limit: int, cursor: Any, topics: Sequence[str], expected: Any
) -> None:
    """The topics of a page are sorted by name. Reading a page creates no topics."""
    assert page(three, limit, cursor, topics) == expected
    assert len(list(three.topics.all())) == 3


def test_pages_join_to_the_whole() -> None:
    """With any limit in the request, the pages together list every partition once. No page exceeds the limit of the
    request or the limit of the server.
    """
    node = BrokerContext({"max.request.partition.size.limit": 4})
    for name, count in (("a", 5), ("b", 1), ("c", 7)):
        node.create(name, count)
    for limit in (1, 2, 3, 4, 2000):
        seen, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            shown, cursor = page(node, limit, cursor)
            assert sum(len(indexes) for _, _, indexes in shown) <= min(limit, 4)
            seen += [(name, index) for name, _, indexes in shown for index in indexes]
            pages += 1
        assert seen == [(name, i) for name, count in (("a", 5), ("b", 1), ("c", 7)) for i in range(count)]


def test_the_description_of_a_partition_is_complete() -> None:
    """The partition has no eligible leaders besides the leader. Authorized operations are always included."""
    node = BrokerContext()
    node.create("__consumer_offsets", 1)
    (topic,) = node.call(DescribeTopicPartitionsRequest()).topics
    (partition,) = topic.partitions
    assert (topic.is_internal, topic.topic_authorized_operations) == (True, 3576)
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes) == (NODE_ID, 0, (NODE_ID,))
    assert (partition.eligible_leader_replicas, partition.last_known_elr, partition.offline_replicas) == ((), (), ())


# ---------------------------------------------------------------- cluster, folders, elections
def test_describe_cluster_lists_the_nodes() -> None:
    """The response lists the nodes; a request for controllers is refused."""
    node = BrokerContext()
    response = DescribeClusterResponse(
        cluster_id=CLUSTER_ID,
        controller_id=NODE_ID,
        brokers=[DescribeClusterBroker(broker_id=NODE_ID, host=HOST, port=PORT)],
        cluster_authorized_operations=8096,
    )
    assert node.call(DescribeClusterRequest(include_cluster_authorized_operations=True)) == response
    assert node.call(DescribeClusterRequest(endpoint_type=2)) == DescribeClusterResponse(
        error_code=114, error_message=ErrorCode.MISMATCHED_ENDPOINT_TYPE.message
    )


def test_a_single_node_leads_every_partition() -> None:
    """The cluster consists of its own node, with the last advertised address of each listener. Other nodes and
    listeners are unknown.
    """
    cluster = SingleNodeCluster(7, "id", leader_epoch=3, rack="r")
    assert cluster.brokers("L") == ()
    cluster.advertise("L", "h", 1)
    cluster.advertise("L", "h", 2)
    assert cluster.brokers("L") == (Broker(7, "h", 2, "r"),)
    assert cluster.broker(7, "L") == Broker(7, "h", 2, "r")
    assert (cluster.broker(8, "L"), cluster.broker(7, "M")) == (None, None)
    assert (cluster.leader("t", 9), cluster.controller_id, tuple(cluster.nodes)) == (Leader(7, 3), 7, (7,))


def test_log_dirs_have_sizes_of_existing_partitions() -> None:
    """null requests all partitions, [] none. Missing partitions are omitted. Version 4 adds the size of the volume."""
    node = BrokerContext()
    node.create("t", 2)

    def described(topics: Any, version: int = 5) -> DescribeLogDirsResponse:
        response: DescribeLogDirsResponse = node.call(DescribeLogDirsRequest(topics=topics), version)
        return response

    total, usable = VOLUME
    sizes = [DescribeLogDirsPartition(partition_index=i, partition_size=0) for i in range(2)]

    def whole(*topics: DescribeLogDirsTopic) -> DescribeLogDirsResponse:
        result = DescribeLogDirsResult(log_dir=DATA_DIR, topics=topics, total_bytes=total, usable_bytes=usable)
        return DescribeLogDirsResponse(results=[result])

    assert described(None) == whole(DescribeLogDirsTopic(name="t", partitions=sizes))
    assert described([]) == whole()
    some = [
        DescribableLogDirTopic(topic="t", partitions=[1, 9]),
        DescribableLogDirTopic(topic="nope", partitions=[0]),
    ]
    assert described(some) == whole(DescribeLogDirsTopic(name="t", partitions=sizes[1:]))
    assert described(None, 3).results[0].total_bytes == -1
    node.apis[35].authorizer = Only()
    assert described(None) == DescribeLogDirsResponse(error_code=31)


def test_elections_are_never_needed() -> None:
    """Partitions with a leader get ELECTION_NOT_NEEDED, and missing partitions UNKNOWN_TOPIC_OR_PARTITION. A response
    about all partitions omits those that need no election.
    """
    node = BrokerContext()
    node.create("t", 2)

    def elected(version: int, kind: int = 0, **topics: Sequence[int]) -> ElectLeadersResponse:
        wanted = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()]
        request = ElectLeadersRequest(topic_partitions=wanted or None, election_type=kind)
        response: ElectLeadersResponse = node.call(request, version)
        return response

    def result(topic: str, *codes: tuple[int, int]) -> ReplicaElectionResult:
        return ReplicaElectionResult(
            topic=topic,
            partition_result=[
                PartitionResult(partition_id=i, error_code=c, error_message=ErrorCode(c).message) for i, c in codes
            ],
        )

    expected = [result("t", (0, 84), (9, 3)), result("nope", (0, 3))]
    assert elected(2, t=[0, 9], nope=[0]) == ElectLeadersResponse(replica_election_results=expected)
    assert elected(2) == ElectLeadersResponse(replica_election_results=[result("t")])
    assert elected(1, 2, t=[0]) == ElectLeadersResponse(error_code=42, replica_election_results=[result("t", (0, 42))])


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_an_election_whose_deadline_has_passed_times_out(timeout_ms: int) -> None:
    """Every partition gets REQUEST_TIMED_OUT without a message. A request without partitions does not reach the
    controller, so it cannot time out.
    """
    node = BrokerContext()
    node.create("t", 2)

    def elected(topics: list[TopicPartitions] | None, version: int, kind: int = 0) -> ElectLeadersResponse:
        request = ElectLeadersRequest(topic_partitions=topics, election_type=kind, timeout_ms=timeout_ms)
        response: ElectLeadersResponse = node.call(request, version)
        return response

    requested = [TopicPartitions(topic="t", partitions=[0, 7]), TopicPartitions(topic="nope", partitions=[])]
    results = [
        ReplicaElectionResult(
            topic="t",
            partition_result=[PartitionResult(partition_id=i, error_code=7, error_message=None) for i in (0, 7)],
        ),
        ReplicaElectionResult(topic="nope"),
    ]
    assert elected(requested, 0) == ElectLeadersResponse(replica_election_results=results)
    assert elected(requested, 2, 5) == ElectLeadersResponse(error_code=7, replica_election_results=results)
    assert elected(None, 1) == ElectLeadersResponse(error_code=7)
    assert elected([], 2, 5) == ElectLeadersResponse()
