"""A whole engine for share groups, in virtual time. The test can make its commits and its share coordinator fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

from kcore.embed import SyncEngine
from kcore.group.share.group import ShareGroup
from kcore.log import PartitionKey
from kcore.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kcore.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponseGroup,
)
from kcore.protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, decode_key, decode_value
from kcore.runtime.pending import Pending
from kcore.share.persister import when_complete
from kcore_ext.batch import iter_records, parse_header
from tests.harness import EngineHarness
from tests.kit import make_topic

GROUP = "g"


class FlakyPersister:
    """The node's persister, which sends requests to the share coordinator. A test can make these requests fail or delay
    them.

    Attributes:
        fail: the error codes of the next requests, one for each; 0 means success.
        hold: True to delay the results of requests until `release`.
        calls: (name, request) of all calls.
    """

    def __init__(self, persister: Any) -> None:
        self._persister = persister
        self.fail: deque[int] = deque()
        self.hold = False
        self.calls: list[tuple[str, Any]] = []
        self._held: list[tuple[Pending, Any]] = []

    def __getattr__(self, name: str) -> Any:
        def operation(request: Any, *options: Any) -> Any:
            self.calls.append((name, request))
            code = self.fail.popleft() if self.fail else 0
            result = getattr(self._persister, "read_summary" if code else name)(
                *((as_summary(request),) if code else (request, *options))
            )
            if code:
                result = refused(request, code)
            if not self.hold:
                return result
            pending = Pending(None, None, request)
            self._held.append((pending, result))
            return pending

        return operation

    def release(self) -> None:
        """Delivers the delayed results."""
        self.hold = False
        held, self._held = self._held, []
        for pending, result in held:
            when_complete(result, pending.complete)


def as_summary(request: Any) -> Any:
    """Returns a read-only request for the same partitions. A request that must fail is replaced by it, so that the
    share coordinator is still called.
    """
    from kcore.protocol.messages.read_share_group_state_summary import (
        PartitionData,
        ReadShareGroupStateSummaryRequest,
        ReadStateSummaryData,
    )

    return ReadShareGroupStateSummaryRequest(
        group_id=request.group_id,
        topics=[
            ReadStateSummaryData(
                topic_id=topic.topic_id,
                partitions=[PartitionData(partition=p.partition, leader_epoch=-1) for p in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def refused(request: Any, code: int) -> Any:
    """Returns the response of an operation in which every partition failed."""
    from importlib import import_module

    module = import_module(type(request).__module__)
    name = type(request).__name__
    result_of_topic = {
        "InitializeShareGroupStateRequest": "InitializeStateResult",
        "DeleteShareGroupStateRequest": "DeleteStateResult",
        "ReadShareGroupStateSummaryRequest": "ReadStateSummaryResult",
    }[name]
    topics = [
        getattr(module, result_of_topic)(
            topic_id=topic.topic_id,
            partitions=[module.PartitionResult(partition=p.partition, error_code=code) for p in topic.partitions],
        )
        for topic in request.topics
    ]
    return getattr(module, name.replace("Request", "Response"))(results=topics)


class World(EngineHarness):
    """One node with one shard of groups.

    Args:
        topics: the number of partitions by topic name.
        settings: settings of the node by their Kafka names, with _ in place of dots.
    """

    SETTINGS: ClassVar[Mapping[str, Any]] = {
        "offsets.topic.num.partitions": 1,
        "share.coordinator.state.topic.num.partitions": 2,
        "group.share.assignment.interval.ms": 0,
    }

    def __init__(self, topics: Mapping[str, int] | None = None, **settings: Any) -> None:
        self._seen = 0
        super().__init__({name.replace("_", "."): value for name, value in settings.items()})
        self.engine.control.internal_topics.ensure(SHARE_GROUP_STATE)
        self.advance(0)
        for name, partitions in (topics or {}).items():
            make_topic(self.node, name, partitions)

    def boot(self) -> None:
        super().boot()
        self.node = SyncEngine(self.engine)
        self.persister = FlakyPersister(self.engine.share_persister)
        self.engine.share_groups.persister = self.persister  # type: ignore[assignment]

    def advance(self, ms: int) -> None:
        """Advances the time. Timers fire at their own times."""
        self.node.advance(ms)

    def fail_next_commit(self) -> None:
        """Makes the next commit that writes something fail."""
        self.log.failures_left += 1

    def stop_failing(self) -> None:
        """Lets the next commits succeed."""
        self.log.failures_left = 0

    # ---- topics

    def make_topic(self, name: str, partitions: int) -> None:
        make_topic(self.node, name, partitions)

    def grow_topic(self, name: str, partitions: int) -> None:
        wanted = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        (result,) = self.node.send(CreatePartitionsRequest(topics=[wanted], timeout_ms=1_000)).results
        assert result.error_code == 0, result

    def drop_topic(self, name: str) -> None:
        (result,) = self.node.send(DeleteTopicsRequest(topic_names=[name], timeout_ms=1_000), 5).responses
        assert result.error_code == 0, result

    # ---- groups

    @property
    def group(self) -> ShareGroup:
        """Returns the group in memory."""
        group = self.engine.groups.of(GROUP).machine.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    def beat(self, member_id: str, epoch: int, names: list[str] | None = None, **fields: Any) -> Any:
        """Sends a heartbeat."""
        request = ShareGroupHeartbeatRequest(
            **{"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, "subscribed_topic_names": names}
            | fields
        )
        response = self.node.send(request)
        self.advance(0)  # runs what the heartbeat has queued
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        (group,) = self.node.send(ShareGroupDescribeRequest(group_ids=[group_id])).groups
        assert isinstance(group, DescribedGroup)
        return group

    def offsets(
        self, topics: dict[str, list[int]] | None = None, group_id: str = GROUP
    ) -> DescribeShareGroupOffsetsResponseGroup:
        named = None
        if topics is not None:
            named = [
                DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
                for name, partitions in topics.items()
            ]
        described = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=named)
        (group,) = self.node.send(DescribeShareGroupOffsetsRequest(groups=[described])).groups
        assert isinstance(group, DescribeShareGroupOffsetsResponseGroup)
        return group

    def alter(self, topics: dict[str, dict[int, int]], group_id: str = GROUP) -> AlterShareGroupOffsetsResponse:
        named = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ]
        response = self.node.send(AlterShareGroupOffsetsRequest(group_id=group_id, topics=named))
        assert isinstance(response, AlterShareGroupOffsetsResponse)
        return response

    def delete_offsets(self, *topics: str, group_id: str = GROUP) -> DeleteShareGroupOffsetsResponse:
        named = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
        response = self.node.send(DeleteShareGroupOffsetsRequest(group_id=group_id, topics=named))
        assert isinstance(response, DeleteShareGroupOffsetsResponse)
        return response

    # ---- log

    def records(self) -> list[tuple[Any, Any]]:
        """Returns the group records since the last call, as typed (key, value) pairs; the value of a tombstone is
        None.
        """
        log = self.log.open(PartitionKey(self.topic_id(CONSUMER_OFFSETS), 0))
        found = []
        for _, batch in log.batches(start=self._seen):
            if parse_header(batch).is_control:
                continue
            for record in iter_records(batch):
                if record.offset >= self._seen:
                    assert record.key is not None
                    key = decode_key(CONSUMER_OFFSETS, record.key)
                    found.append((key, None if record.value is None else decode_value(key, record.value)))
        self._seen = log.high_watermark
        return found


class Member:
    """A member that stores its epoch and its partitions, by topic id."""

    def __init__(self, world: World, member_id: str) -> None:
        self.world = world
        self.member_id = member_id
        self.epoch = 0
        self.assigned: dict[bytes, list[int]] = {}

    def beat(self, names: list[str] | None = None, **fields: Any) -> Any:
        """Sends a heartbeat, and stores the values of a successful response."""
        response = self.world.beat(self.member_id, self.epoch, names, **fields)
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = {t.topic_id: list(t.partitions) for t in response.assignment.topic_partitions}
        return response

    def join(self, *names: str) -> Member:
        """Joins, and sends a second heartbeat after the initialization."""
        self.epoch = 0
        assert self.beat(list(names)).error_code == 0
        assert self.beat().error_code == 0
        return self
