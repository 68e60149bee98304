"""Requests about many objects are decided in slices, and get the same responses as in one decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.group.apis import offset_fetch
from kcore.log import MemoryLogEngine
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kcore.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kcore.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kcore.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kcore.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kcore.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kcore.protocol.messages.describe_topic_partitions import TopicRequest as PageTopic
from kcore.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kcore.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from kcore.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kcore.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kcore.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kcore.runtime import Pending, RequestContext, sliced
from tests.kit import commit, create

COUNT = 400
NAMES = [f"t{number}" for number in range(COUNT)]
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced, "SLICE_COST_US", 1_000)


class Node:
    """An engine that processes each request in slices, or in one step."""

    def __init__(self, sliced: bool) -> None:
        self.engine = Engine(MemoryLogEngine(), Config.of(SETTINGS), ManualClock(1_700_000_000_000))
        self.send(create(*NAMES))
        self.send(create("wide", partitions=3))
        for name in NAMES[: COUNT // 2]:
            self.send(commit(name, {("t0", 0): 1}), 8)
        self.send(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))  # creates `__transaction_state`
        self.send(_acls(*NAMES[:50]))
        self.engine.slices.requests.enabled = sliced

    def send(self, request: Any, version: int = -1) -> tuple[Any, int]:
        """Returns the response as a client decodes it, and the number of slices after the first."""
        engine = self.engine
        version = engine.newest_version(request) if version < 0 else version
        response = engine.submit(RequestContext(version, "c"), request)
        slices = 0
        while engine.slices or engine.pipeline.dirty:
            slices += bool(engine.slices)
            engine.slices.step()
            engine.commit()
        response = response.response if isinstance(response, Pending) else response
        return type(response).decode(response.encode(version), version), slices


def _topics(*names: str) -> CreateTopicsRequest:
    made = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=made, timeout_ms=1_000)


def _deleted(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=1_000)


def _grown(*names: str) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names], timeout_ms=1_000
    )


def _altered(*names: str) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name="retention.ms", value="7")]
    resources = [AlterConfigsResource(resource_type=2, resource_name=name, configs=configs) for name in names]
    return IncrementalAlterConfigsRequest(resources=resources)


def _described(*names: str) -> DescribeConfigsRequest:
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None) for name in names
    ]
    return DescribeConfigsRequest(resources=resources)


def _users(*names: str) -> AlterUserScramCredentialsRequest:
    upsertions = [
        ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
        for name in names
    ]
    gone = [ScramCredentialDeletion(name=names[0], mechanism=1), ScramCredentialDeletion(name="absent", mechanism=1)]
    return AlterUserScramCredentialsRequest(deletions=gone, upsertions=upsertions)


def _acls(*names: str) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=2,
                resource_name=name,
                resource_pattern_type=3,
                principal="User:u",
                host="*",
                operation=3,
                permission_type=3,
            )
            for name in names
        ]
    )


def _wide(topic: type, partition: type, name: str) -> Any:
    """Makes a request for many partitions. The topic does not have most of them."""
    field = "partition" if name == "topic" else "partition_index"
    return topic(**{name: "wide"}, partitions=[partition(**{field: index % 8_000}) for index in range(8_100)])


NEW = [f"n{number}" for number in range(COUNT)]
REQUESTS: dict[str, Callable[[], Any]] = {
    "create": lambda: _topics(*NEW, "t5", "n7", "bad/name"),
    "delete": lambda: _deleted(*NAMES[:300], "absent", "t7", "__consumer_offsets"),
    "grow": lambda: _grown(*NAMES, "absent", "t7"),
    "alter": lambda: _altered(*NAMES, "absent", "t7"),
    "settings": lambda: _described(*NAMES, "absent", "t7", "bad/name"),
    "users": lambda: _users(*NAMES, "t9", ""),
    "acls": lambda: _acls(*NAMES, "t9", ""),
    "find": lambda: FindCoordinatorRequest(coordinator_keys=[*NAMES, *NEW, "t9", ""]),
    "groups": lambda: DescribeGroupsRequest(groups=[*NAMES, *NEW, "t9", ""]),
    "consumer groups": lambda: ConsumerGroupDescribeRequest(group_ids=[*NAMES, *NEW, "t9", ""]),
    "delete groups": lambda: DeleteGroupsRequest(groups_names=[*NAMES, "t9", ""]),
    "transactions": lambda: DescribeTransactionsRequest(transactional_ids=[*NAMES, *NEW, ""]),
    "all topics": lambda: MetadataRequest(topics=None),
    "topics": lambda: MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in [*NAMES, *NEW, "t9", ""]]),
    "offsets by time": lambda: ListOffsetsRequest(topics=[_wide(ListOffsetsTopic, ListOffsetsPartition, "name")]),
    "epochs": lambda: OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[_wide(OffsetForLeaderTopic, OffsetForLeaderPartition, "topic")]
    ),
    "delete records": lambda: DeleteRecordsRequest(
        topics=[_wide(DeleteRecordsTopic, DeleteRecordsPartition, "name")] * 2
    ),
    "log dirs": lambda: DescribeLogDirsRequest(topics=None),
    "some log dirs": lambda: DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=name, partitions=[0, 0, 7]) for name in [*NAMES, "absent", "t7"]]
    ),
    "elections": lambda: ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic="wide", partitions=list(range(900)))] * 2
    ),
    "all elections": lambda: ElectLeadersRequest(topic_partitions=None),
    "pages": lambda: DescribeTopicPartitionsRequest(
        topics=[PageTopic(name=name) for name in [*NAMES, *NEW, "bad/name"]], response_partition_limit=2_000
    ),
    "scram users": lambda: DescribeUserScramCredentialsRequest(
        users=[UserName(name=name) for name in [*NAMES, *NEW, "t9"]]
    ),
    "delete acls": lambda: DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=kind,
                resource_name_filter=name,
                pattern_type_filter=1,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            for kind in (1, 99)
            for name in [*NAMES, None, None, "absent"]
        ]
    ),
    "delete offsets": lambda: OffsetDeleteRequest(
        group_id="t0",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in range(700)]
            )
            for name in ("t0", "absent")
        ],
    ),
    "markers": lambda: WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=number,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=list(range(700))) for name in ("wide", "absent")
                ],
            )
            for number in (1, 2)
        ]
    ),
    "missing topics": lambda: MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in [*NEW, "bad/name"]], allow_auto_topic_creation=True
    ),
    "producers of many topics": lambda: DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=[0]) for name in NAMES]
    ),
    "producers": lambda: DescribeProducersRequest(
        topics=[TopicRequest(name="wide", partition_indexes=[*range(9_000), *range(9_000)])]
    ),
    "offsets": lambda: OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in [*NAMES, *NEW, "t9"] * 3]
    ),
    "list groups": lambda: ListGroupsRequest(),  # noqa: PLW0108
}
VERSIONS = {"offsets": 8}  # a version without topic ids
AT_ONCE = {"list groups"}
"""Names of the requests in `REQUESTS` that the node decides in one slice."""


@pytest.mark.parametrize("name", REQUESTS)
def test_a_long_request_has_the_same_response_in_slices_as_at_once(name: str) -> None:
    """Responses and resulting states are equal, except for the generated ids."""
    version = VERSIONS.get(name, -1)
    (expected, none), (response, slices) = (Node(parked).send(REQUESTS[name](), version) for parked in (False, True))
    for message in (expected, response):
        for topic in getattr(message, "topics", ()):
            if hasattr(topic, "topic_id"):
                topic.topic_id = bytes(16)
        for result in getattr(message, "responses", ()):
            if hasattr(result, "topic_id"):
                result.topic_id = bytes(16)
    assert sorted(map(repr, _results(response))) == sorted(map(repr, _results(expected)))
    assert none == 0 or name not in ("find", "groups", "settings")
    assert slices > 0 or name in AT_ONCE


def _results(response: Any) -> list[Any]:
    found = [getattr(response, spec.name) for spec in type(response).FIELDS if spec.item]
    return [result for results in found for result in results]


def test_topics_of_a_long_request_appear_one_by_one() -> None:
    """Other requests see only complete, durable topics. A duplicate name is refused once."""
    node = Node(True)
    response, _ = node.send(_topics(*NEW, "n7"))
    codes = {result.name: result.error_code for result in response.topics}
    assert codes == dict.fromkeys(NEW, ErrorCode.NONE) | {"n7": ErrorCode.INVALID_REQUEST}
    assert len(response.topics) == COUNT
    there = {topic.name for topic in node.engine.topics.all()}
    assert set(NEW) - {"n7"} <= there
    assert "n7" not in there


def test_one_request_still_makes_ten_thousand_partitions_at_most() -> None:
    node = Node(True)
    many = [CreatableTopic(name=name, num_partitions=26, replication_factor=1) for name in NEW]
    response, _ = node.send(CreateTopicsRequest(topics=many, timeout_ms=1_000))
    assert {result.error_code for result in response.topics} == {ErrorCode.POLICY_VIOLATION}
    grown = [CreatePartitionsTopic(name=name, count=27, assignments=None) for name in NAMES]
    response, _ = node.send(CreatePartitionsRequest(topics=grown, timeout_ms=1_000))
    codes = [result.error_code for result in response.results]
    assert (codes.count(0), codes.count(ErrorCode.POLICY_VIOLATION)) == (384, 16)


def test_offsets_of_several_groups_are_bounded_before_they_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group name of a few bytes can select thousands of offsets. If all groups of a request together have too many
    offsets, each of them gets POLICY_VIOLATION.
    """
    monkeypatch.setattr(offset_fetch, "MAX_OFFSETS", 5)
    node = Node(True)
    for times, expected in ((5, (0, 1)), (6, (ErrorCode.POLICY_VIOLATION, 0))):
        again = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="t0", topics=None)] * times)
        response, _ = node.send(again, 8)
        assert [(group.error_code, len(group.topics)) for group in response.groups] == [expected] * times
    others = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES[:6]]
    response, _ = node.send(OffsetFetchRequest(groups=others), 8)
    assert [(group.error_code, len(group.topics)) for group in response.groups] == [(ErrorCode.POLICY_VIOLATION, 0)] * 6
    response, _ = node.send(OffsetFetchRequest(groups=others[:5]), 8)
    assert [(group.error_code, len(group.topics)) for group in response.groups] == [(0, 1)] * 5


def test_topics_with_many_partitions_are_deleted_one_in_a_slice() -> None:
    """In one decision, eight topics with 10,000 partitions each would take 186 ms."""
    node = Node(True)
    for number in range(3):
        node.send(create(f"large-{number}", partitions=4_000))
    response, slices = node.send(_deleted("large-0", "t0", "large-1", "large-2"))
    assert sorted((result.name, result.error_code) for result in response.responses) == [
        ("large-0", 0),
        ("large-1", 0),
        ("large-2", 0),
        ("t0", 0),
    ]
    assert slices >= 2
    assert not any(topic.name.startswith("large") for topic in node.engine.topics.all())
