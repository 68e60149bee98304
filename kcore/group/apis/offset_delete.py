"""OffsetDelete (API key 47), v0: deletes offsets of a group on behalf of an administrator (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.group.offsets.records import tombstone
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kcore.runtime.api import Api
from kcore.runtime.machine import Outcome, Record
from kcore.runtime.pending import gather

if TYPE_CHECKING:
    from kcore.group.group import Group
    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards
    from kcore.runtime.sliced import Work
    from kcore.runtime.topics import TopicImage

FEW_PARTITIONS = 200
"""Maximum number of partitions in one decision."""
PARTITION_COST_US = 15
"""The cost of deleting the offset of one partition, in microseconds."""


class DeletePlan(NamedTuple):
    """An OffsetDelete request with the results of the checks that precede the group's shard.

    Attributes:
        request: the OffsetDelete request.
        refusals: for each topic of the request, the error of all its partitions; NONE if `decide` must check them.
        partition_counts: number of partitions of each topic.
    """

    request: OffsetDeleteRequest
    refusals: list[ErrorCode]
    partition_counts: list[int]


def _joined(
    request: OffsetDeleteRequest, numbers: list[int], parts: list[OffsetDeleteResponse]
) -> OffsetDeleteResponse:
    """Merges the responses to the parts of a request.

    Each part is about one topic; `numbers` has the index of this topic for each part. If the group refuses a part as a
    whole, the response to this part becomes the response to the request.
    """
    results: dict[int, list[OffsetDeleteResponsePartition]] = {}
    for number, part in zip(numbers, parts, strict=True):
        if part.error_code:
            return part
        for topic in part.topics:
            results.setdefault(number, []).extend(topic.partitions)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(name=request.topics[number].name, partitions=partitions)
            for number, partitions in results.items()
        ]
    )


class OffsetDeleteApi(Api[OffsetDeleteRequest, OffsetDeleteResponse]):
    """Handler of OffsetDelete requests.

    Args:
        shards: the group shards.
        topics: the cluster's topics; offsets of unknown topics are refused.
        authorizer: checks DELETE on groups and READ on topics; None allows all.
    """

    key = ApiKey.OFFSET_DELETE
    request_type = OffsetDeleteRequest
    response_type = OffsetDeleteResponse
    versions = (0, 0)

    __slots__ = ("_authorizer", "_shards", "_topics")

    def __init__(self, shards: Shards[GroupShard], topics: TopicImage, authorizer: Authorizer | None = None) -> None:
        self._shards = shards
        self._topics = topics
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: OffsetDeleteRequest) -> Any:
        """Authorizes the client, and runs the request in the group's shard.

        A long request runs in parts, each with its own commit. The request reaches the shard even if all of its topics
        are refused, because the group may refuse the whole request.
        """
        authorizer = self._authorizer
        group_id = request.group_id
        if authorizer is not None and not authorizer.allowed(context, Operation.DELETE, ResourceType.GROUP, group_id):
            return self.error(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not group_id:
            return self.error(context, request, ErrorCode.INVALID_GROUP_ID)
        slices = self._shards.slices
        if slices is None or sum(len(topic.partitions) for topic in request.topics) <= FEW_PARTITIONS:
            return self._run(context, request)

        def join(numbered: list[tuple[int, Any]]) -> Any:
            numbers = [number for number, _ in numbered]

            def build(parts: list[OffsetDeleteResponse]) -> OffsetDeleteResponse:
                return _joined(request, numbers, parts)

            return gather(self, context, request, [part for _, part in numbered], build)

        return slices.requests.run(self, context, request, self._parts(context, request), join)

    def _parts(self, context: RequestContext, request: OffsetDeleteRequest) -> Work:
        """Decides a long request in parts. Returns a pair for each part: the index of its topic, and its response."""
        parts: list[tuple[int, Any]] = []
        for number, topic in enumerate(request.topics):
            for first in range(0, max(len(topic.partitions), 1), FEW_PARTITIONS):
                some = OffsetDeleteRequestTopic(
                    name=topic.name, partitions=topic.partitions[first : first + FEW_PARTITIONS]
                )
                parts.append(
                    (number, self._run(context, OffsetDeleteRequest(group_id=request.group_id, topics=[some])))
                )
                yield PARTITION_COST_US * len(some.partitions)
        return parts

    def _run(self, context: RequestContext, request: OffsetDeleteRequest) -> Any:
        """Checks the topics, and runs the request in the shard of its group."""
        authorizer = self._authorizer
        group_id = request.group_id
        plan = DeletePlan(request, [], [])
        for requested_topic in request.topics:
            topic = self._topics.by_name(requested_topic.name)
            refusal = ErrorCode.NONE
            if authorizer is not None and not authorizer.allowed(
                context, Operation.READ, ResourceType.TOPIC, requested_topic.name
            ):
                refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None:
                refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            plan.refusals.append(refusal)
            plan.partition_counts.append(0 if topic is None else topic.partitions)
        return self._shards.of(group_id).run(self, context, plan)

    def decide(self, machine: GroupShard, context: RequestContext, request: Any) -> Any:
        """Writes a tombstone for each partition that has an offset and passes the checks.

        The offset may be committed, or pending in an open transaction.
        """
        plan: DeletePlan = request
        request = plan.request
        group = machine.groups.get(request.group_id)
        if group is None:
            return self.error(context, request, ErrorCode.GROUP_ID_NOT_FOUND)
        refusal = group.validate_offset_delete()
        if refusal:
            return self.error(context, request, refusal)
        records: list[Record] = []
        topics = []
        for requested_topic, refused, partition_count in zip(
            request.topics, plan.refusals, plan.partition_counts, strict=True
        ):
            partitions = []
            for requested in requested_topic.partitions:
                partition = requested.partition_index
                code = refused
                if code is ErrorCode.NONE:
                    code = self._delete(machine, group, requested_topic.name, partition, partition_count, records)
                partitions.append(OffsetDeleteResponsePartition(partition_index=partition, error_code=code))
            if partitions or refused is not ErrorCode.NONE:  # as Kafka: of the topics without partitions, the refused
                topics.append(OffsetDeleteResponseTopic(name=requested_topic.name, partitions=partitions))
        machine.offsets.deletions += len(records)
        return Outcome(records, OffsetDeleteResponse(topics=topics))

    @staticmethod
    def _delete(
        machine: GroupShard, group: Group, topic: str, partition: int, partition_count: int, records: list[Record]
    ) -> ErrorCode:
        """Returns the code of one partition. If the partition has an offset, adds a tombstone to `records`.

        If a partition occurs twice in the request, this method adds two tombstones.
        """
        if not 0 <= partition < partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if group.is_subscribed_to(topic):
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        offsets, group_id = machine.offsets, group.group_id
        if offsets.get(group_id, topic, partition) is not None or offsets.has_pending(group_id, topic, partition):
            records.append(tombstone(group_id, topic, partition))
        return ErrorCode.NONE

    def error(
        self,
        context: RequestContext,
        request: OffsetDeleteRequest | DeletePlan,
        code: ErrorCode,
        message: str | None = None,
    ) -> OffsetDeleteResponse:
        """Returns a response with the code, without topics."""
        return OffsetDeleteResponse(error_code=code)
