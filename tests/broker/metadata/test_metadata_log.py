"""The metadata log: records, notifications of listeners, and the state after restarts and failed commits."""

from __future__ import annotations

from kcore.broker.apis.control import ControlApi
from kcore.broker.metadata.features import FEATURES
from kcore.broker.metadata.image import ConfigType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kcore.protocol.messages.describe_acls import DescribeAclsRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kcore.runtime import Pending, RequestContext, ShardState, TopicInfo
from tests.broker.context import NODE_ID, BrokerContext

TOPIC = ConfigType.TOPIC


def partition_record(topic_id: bytes, index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[NODE_ID],
        isr=[NODE_ID],
        leader=NODE_ID,
        leader_epoch=0,
        partition_epoch=0,
    )


def grow(node: BrokerContext, name: str, count: int) -> int:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])
    return int(node.call(request).results[0].error_code)


def test_a_new_log_begins_with_the_features() -> None:
    """A new log begins with the level of each feature, metadata.version first, and with the cluster's
    min.insync.replicas. A restart adds no records.
    """
    node = BrokerContext()
    expected = [
        *(FeatureLevelRecord(name=name, feature_level=f.initial) for name, f in FEATURES.items()),
        ConfigRecord(resource_type=ConfigType.BROKER, resource_name="", name="min.insync.replicas", value="1"),
    ]
    assert node.records() == expected
    assert expected[0].name == "metadata.version"
    node.restart()
    assert node.records() == []
    assert node.topics.image.features == {name: f.initial for name, f in FEATURES.items()}


def test_a_topic_is_written_as_kraft_writes_it() -> None:
    """Compares the records of a creation, a new setting, two new partitions and a deletion."""
    node = BrokerContext()
    node.records()
    topic_id = node.create("t", 2, configs={"retention.ms": "5"}).topic_id
    assert node.records() == [
        TopicRecord(name="t", topic_id=topic_id),
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value="5"),
        partition_record(topic_id, 0),
        partition_record(topic_id, 1),
    ]
    node.alter(TOPIC, "t", ("flush.ms", 0, "7"), ("retention.ms", 1, None))
    assert node.records() == [
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="flush.ms", value="7"),
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value=None),
    ]
    assert grow(node, "t", 4) == 0
    assert node.records() == [partition_record(topic_id, 2), partition_record(topic_id, 3)]
    node.call(DeleteTopicsRequest(topic_names=["t"]), 5)
    assert node.records() == [RemoveTopicRecord(topic_id=topic_id)]


def test_listeners_see_whole_decisions() -> None:
    """Listeners get one notification of a new topic, with its partitions and effective settings."""
    node = BrokerContext()
    node.listener.take()
    node.create("t", 3, configs={"retention.ms": "5"})
    assert node.listener.take() == [("created", "t", 3)]
    partition = node.partitions.get("t", 2)
    assert partition is not None
    assert partition.config.retention_ms == 5
    grow(node, "t", 5)
    assert node.listener.take() == [("added", "t", 3, 5)]
    node.alter(TOPIC, "t", ("retention.ms", 0, "6"), ("flush.ms", 0, "7"))
    assert node.listener.take() == [("config", TOPIC, "t")]
    assert partition.config.retention_ms == 6
    node.call(DeleteTopicsRequest(topic_names=["t"]), 5)
    assert node.listener.take() == [("deleted", "t", 5)]
    assert node.partitions.get("t", 0) is None


def test_a_late_listener_gets_the_present_state() -> None:
    """A late listener gets the settings of brokers and groups first, then the features, then the topics."""
    node = BrokerContext()
    node.create("t", 2, configs={"retention.ms": "5"})
    node.alter(ConfigType.GROUP, "g", ("consumer.heartbeat.interval.ms", 0, "6000"))
    node.restart()
    features = [("feature", name, feature.initial) for name, feature in FEATURES.items()]
    configs = [("config", ConfigType.BROKER, ""), ("config", ConfigType.GROUP, "g")]
    everything = [*configs, *features, ("created", "t", 2)]
    assert node.listener.take() == everything
    late = type(node.listener)()
    node.topics.listen(late)
    assert late.take() == everything


def test_a_restart_shows_exactly_what_was_committed() -> None:
    """Topics, ids, settings, features and producer ids are the same; uncommitted changes are lost."""
    node = BrokerContext({"auto.create.topics.enable": "true"})
    node.create("a", 3)
    node.create("b", 1, configs={"cleanup.policy": "compact"})
    node.call(DeleteTopicsRequest(topic_names=["a"]), 5)
    node.create("a", 2)
    node.alter(ConfigType.GROUP, "g", ("share.isolation.level", 0, "read_committed"))
    before = node.durable_state()
    node.restart()
    assert node.durable_state() == before
    node.auto_commit = False
    node.send(CreateTopicsRequest(topics=[CreatableTopic(name="c", num_partitions=1, replication_factor=1)]))
    assert node.topics.by_name("c") is not None
    node.auto_commit = True
    node.restart()
    assert node.durable_state() == before


def test_a_failed_commit_is_rolled_back_with_notifications() -> None:
    """The creation gets NOT_CONTROLLER. Listeners get the reverse change, and the state is as before the request."""
    node = BrokerContext()
    node.create("kept", 2)
    before = node.durable_state()
    node.listener.take()
    node.auto_commit = False
    created = node.send(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)]))
    grown = node.send(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="kept", count=5, assignments=None)]))
    deleted = node.send(DeleteTopicsRequest(topic_names=["t"]), 5)
    node.send(CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)]))
    assert not created.done
    assert not grown.done
    node.fail_next_commit()
    assert node.commit() is False
    assert created.response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert grown.response.results[0].error_code == ErrorCode.NOT_CONTROLLER
    assert deleted.response.responses[0].error_code == ErrorCode.NOT_CONTROLLER
    assert node.listener.take() == [
        ("created", "t", 2),
        ("added", "kept", 2, 5),
        ("deleted", "t", 2),
        ("created", "u", 1),
        ("deleted", "u", 1),
        ("removed", "kept", 2),
    ]
    assert node.durable_state() == before
    assert node.partitions.get("kept", 1) is not None
    assert node.partitions.get("kept", 2) is None, "partitions whose creation was rolled back are not served"
    node.auto_commit = True
    assert node.create("t", 2).error_code == 0


def test_a_deletion_that_fails_leaves_the_topic() -> None:
    """The partitions of the topic are served again and still have their records."""
    node = BrokerContext()
    node.create("t", 2)
    node.listener.take()
    node.auto_commit = False
    node.send(DeleteTopicsRequest(topic_names=["t"]), 5)
    node.fail_next_commit()
    assert node.commit() is False
    assert node.listener.take() == [("deleted", "t", 2), ("created", "t", 2)]
    assert node.partitions.get("t", 1) is not None


def test_reads_wait_for_the_commit_of_their_state() -> None:
    """A Metadata response that includes a topic waits until the creation of the topic is committed."""
    node = BrokerContext()
    node.auto_commit = False
    node.send(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]))
    response = node.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    assert isinstance(response, Pending)
    assert not response.done
    node.commit()
    assert response.response.topics[0].error_code == 0
    assert not isinstance(node.send(MetadataRequest(topics=[])), Pending)


def test_each_api_has_its_own_error_code_while_the_log_is_loaded() -> None:
    """The codes are NOT_CONTROLLER, LEADER_NOT_AVAILABLE and COORDINATOR_LOAD_IN_PROGRESS."""
    node = BrokerContext()
    node.shard.failed(AssertionError("the log refused"))  # type: ignore[arg-type]
    assert node.shard.state is ShardState.LOADING
    for key, api in node.apis.items():
        if not isinstance(api, ControlApi):
            continue
        request = api.request_type()
        if isinstance(request, DescribeAclsRequest):  # the API cannot read a request of zeroes
            request = DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1)
        version = api.versions[1]
        response = api.handle(RequestContext(version), request)
        assert type(response).decode(response.encode(version), version) == response, key
    created = node.send(CreateTopicsRequest(topics=[CreatableTopic(name="t")]))
    assert [(t.name, t.error_code) for t in created.topics] == [("t", ErrorCode.NOT_CONTROLLER)]
    requested = node.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    assert [(t.name, t.error_code) for t in requested.topics] == [("t", ErrorCode.LEADER_NOT_AVAILABLE)]
    node.slices.finish()
    assert node.shard.state is ShardState.ACTIVE


def test_a_name_can_be_used_again_under_another_id() -> None:
    """The new topic has a new id and none of the old topic's settings. The old id is unknown."""
    node = BrokerContext()
    old = node.create("t", 3, configs={"retention.ms": "5"}).topic_id
    node.call(DeleteTopicsRequest(topic_names=["t"]), 5)
    new = node.create("t", 1).topic_id
    assert new != old
    assert node.topics.by_id(old) is None
    assert node.topics.by_name("t") == TopicInfo("t", new, 1)
    assert node.value(TOPIC, "t", "retention.ms") == ("604800000", 5)


def test_ids_are_never_zero_reserved_or_like_an_option() -> None:
    """Random ids that are zero or reserved, or begin like a command-line option, are discarded."""
    node = BrokerContext()
    drawn = [bytes(16), bytes(15) + b"\x01", b"\xf8" + bytes(15), b"\x01" * 16]
    node.control.creation._new_id = lambda: drawn.pop(0)
    assert node.create("t").topic_id == b"\x01" * 16
    assert drawn == []
