"""DescribeShareGroupOffsets (API key 90), v0-1: start offsets of share groups (KIP-932).

v1 adds the lag (KIP-1226): the records from the start offset on that are not complete yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from kcore.group.apis.base import GroupApi
from kcore.group.share.chain import chain
from kcore.group.share.group import ShareGroup
from kcore.group.share.offsets import MAX_NAMES, TOO_MANY
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kcore.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryData,
)
from kcore.runtime.pending import gather

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.group.share.services import ShareGroupServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards
    from kcore.runtime.topics import TopicImage

UNKNOWN: Final = -1
"""The start offset, lag or leader epoch that is not known."""

MAX_LAG: Final = 2**63 - 1
"""The bound of a lag and of its negative, which int64 can hold; requests may set any start offset."""


class RequestedTopic(NamedTuple):
    """The partitions of one topic whose offsets are described.

    Attributes:
        name: the topic's name.
        topic_id: its id.
        partitions: the partitions.
        missing: requested partitions that the topic does not have.
    """

    name: str
    topic_id: bytes
    partitions: tuple[int, ...]
    missing: tuple[int, ...] = ()


class InitializedTopics(NamedTuple):
    """The request for the initialized topics of a group, which its shard decides.

    Attributes:
        group_id: the group.
    """

    group_id: str


class DescribeShareGroupOffsetsApi(GroupApi[DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse]):
    """Serves DescribeShareGroupOffsets to clients with DESCRIBE on the group and on the topics.

    Args:
        shards: the group shards.
        services: the switch of share groups, the persister, and the ends of partitions.
        topics: the cluster's topics.
        authorizer: checks permissions; None allows all.
    """

    key = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
    request_type = DescribeShareGroupOffsetsRequest
    response_type = DescribeShareGroupOffsetsResponse
    versions = (0, 1)
    differs: ClassVar[str] = (
        f"{TOO_MANY[0].upper()}{TOO_MANY[1:]}; longer requests are INVALID_REQUEST. "
        "A partition that does not exist is answered at once."
    )

    __slots__ = ("_services", "_topics")

    def __init__(
        self,
        shards: Shards[GroupShard],
        services: ShareGroupServices,
        topics: TopicImage,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(shards, authorizer)
        self._services = services
        self._topics = topics

    def handle(self, context: RequestContext, request: DescribeShareGroupOffsetsRequest) -> Any:
        """Describes each group, with its own error."""
        named = sum(len(topic.partitions) + 1 for group in request.groups for topic in group.topics or ())
        if len(request.groups) + named > MAX_NAMES:
            return self.error(context, request, ErrorCode.INVALID_REQUEST, TOO_MANY)
        parts = [self._describe(context, group) for group in request.groups]
        return gather(self, context, request, parts, _merged)

    def _describe(self, context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup) -> Any:
        part = DescribeShareGroupOffsetsRequest(groups=[group])
        if not self._services.enabled:
            return self.error(context, part, ErrorCode.UNSUPPORTED_VERSION)
        if not self.allowed(context, Operation.DESCRIBE, group.group_id):
            return self.error(context, part, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if group.topics is not None:
            return self._describe_named(context, part, group)
        asked = InitializedTopics(group.group_id)
        return chain(
            self,
            context,
            part,
            self.ask(context, group.group_id, asked, ErrorCode.NONE),  # type: ignore[arg-type]
            lambda topics: self._summarize(context, part, self._visible(context, topics), []),
        )

    def _describe_named(
        self,
        context: RequestContext,
        part: DescribeShareGroupOffsetsRequest,
        group: DescribeShareGroupOffsetsRequestGroup,
    ) -> Any:
        wanted, decided = [], []
        for requested in group.topics or ():
            topic = self._topics.by_name(requested.topic_name)
            code = ErrorCode.NONE
            if not self._may_describe(context, requested.topic_name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            indexes = dict.fromkeys(requested.partitions)  # a repeated partition is described once
            if topic is not None and not code:
                existing = tuple(index for index in indexes if 0 <= index < topic.partitions)
                missing = tuple(index for index in indexes if not 0 <= index < topic.partitions)
                wanted.append(RequestedTopic(topic.name, topic.topic_id, existing, missing))
                continue
            decided.append(
                DescribeShareGroupOffsetsResponseTopic(
                    topic_name=requested.topic_name, partitions=[_without_offset(index, code) for index in indexes]
                )
            )
        return self._summarize(context, part, wanted, decided)

    def _may_describe(self, context: RequestContext, name: str) -> bool:
        authorizer = self._authorizer
        return authorizer is None or authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name)

    def _visible(self, context: RequestContext, topics: Iterable[RequestedTopic]) -> list[RequestedTopic]:
        return [topic for topic in topics if self._may_describe(context, topic.name)]

    def _summarize(
        self,
        context: RequestContext,
        part: DescribeShareGroupOffsetsRequest,
        wanted: list[RequestedTopic],
        decided: list[DescribeShareGroupOffsetsResponseTopic],
    ) -> Any:
        """Reads the summaries of the states from the share coordinator, and adds the lag."""
        (group,) = part.groups
        if not wanted:
            return _response(group.group_id, decided)
        persister = self._services.persister
        assert persister is not None, "a served node has a persister"
        request = ReadShareGroupStateSummaryRequest(
            group_id=group.group_id,
            topics=[
                ReadStateSummaryData(
                    topic_id=topic.topic_id,
                    partitions=[PartitionData(partition=index, leader_epoch=UNKNOWN) for index in topic.partitions],
                )
                for topic in wanted
            ],
        )

        def build(parts: list[ReadShareGroupStateSummaryResponse]) -> DescribeShareGroupOffsetsResponse:
            return _response(group.group_id, [*decided, *self._topics_of(parts[0], wanted)])

        return gather(self, context, part, [persister.read_summary(request)], build)

    def _topics_of(
        self, summary: ReadShareGroupStateSummaryResponse, wanted: list[RequestedTopic]
    ) -> list[DescribeShareGroupOffsetsResponseTopic]:
        states = {(topic.topic_id, state.partition): state for topic in summary.results for state in topic.partitions}
        return [
            DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    *(
                        self._partition(topic.name, index, states.get((topic.topic_id, index)))
                        for index in topic.partitions
                    ),
                    *(_without_offset(index, ErrorCode.NONE) for index in topic.missing),
                ],
            )
            for topic in wanted
        ]

    def _partition(self, name: str, index: int, state: Any) -> DescribeShareGroupOffsetsResponsePartition:
        """Returns the offsets of one partition; the share coordinator's errors become an unknown offset.

        Args:
            name: the topic.
            index: the partition.
            state: its summary; None if the share coordinator did not look it up, because the group id is empty.
        """
        if state is None or state.error_code:
            return _without_offset(index, ErrorCode.NONE)
        lag = UNKNOWN
        if UNKNOWN not in (state.start_offset, state.delivery_complete_count):
            end_offset = self._services.end_offset(name, state.partition)
            if end_offset is None:
                return _without_offset(state.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            lag = end_offset - state.start_offset - state.delivery_complete_count
            lag = max(-MAX_LAG, min(lag, MAX_LAG))
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=state.partition,
            start_offset=state.start_offset,
            leader_epoch=state.leader_epoch,
            lag=lag,
        )

    def decide(  # type: ignore[override]
        self, machine: GroupShard, context: RequestContext, request: InitializedTopics
    ) -> tuple[RequestedTopic, ...]:
        """Returns the initialized topics of the group; none for a group that does not exist or has another type."""
        group = machine.groups.get(request.group_id)
        if not isinstance(group, ShareGroup):
            return ()
        return tuple(
            RequestedTopic(topic.name, topic_id, tuple(sorted(topic.partitions)))
            for topic_id, topic in group.state_partitions.initialized.items()
        )

    def error(
        self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None
    ) -> DescribeShareGroupOffsetsResponse:
        """Returns a response with the code for every group, without topics."""
        groups = [request.group_id] if isinstance(request, InitializedTopics) else [g.group_id for g in request.groups]
        return DescribeShareGroupOffsetsResponse(
            groups=[
                DescribeShareGroupOffsetsResponseGroup(
                    group_id=group_id, error_code=code, error_message=message or code.message
                )
                for group_id in groups
            ]
        )


def _without_offset(index: int, code: ErrorCode) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=UNKNOWN, error_code=code, error_message=code.message if code else None
    )


def _response(group_id: str, topics: list[DescribeShareGroupOffsetsResponseTopic]) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=topics)]
    )


def _merged(parts: list[DescribeShareGroupOffsetsResponse]) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[group for part in parts for group in part.groups])
