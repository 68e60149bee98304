"""Steps that OffsetCommit and TxnOffsetCommit share: the checks that need no group, and the offset records.

The responses of both APIs have an error code for each partition, but none for the whole request. The first checks
refuse topics and partitions that do not exist or that the client may not READ. If the group then refuses the commit,
its error applies to all remaining partitions. The response preserves request order, including duplicates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.group.offsets.records import NO_EXPIRY, expire_timestamp
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.schema import ZERO_UUID
from kcore.runtime.machine import Record
from kcore.runtime.topic_permissions import FEW_TOPICS, TopicPermissions
from kcore.runtime.topics import TopicInfo
from kcore_ext.group.offset_block import CommitPlan, OffsetBlock, plan_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import Api, RequestContext
    from kcore.runtime.slices import Slices
    from kcore.runtime.topics import TopicImage

NONE = int(ErrorCode.NONE)
UNKNOWN_TOPIC_OR_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN_TOPIC_ID = int(ErrorCode.UNKNOWN_TOPIC_ID)
TOPIC_AUTHORIZATION_FAILED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


NO_TOPIC = TopicInfo("", ZERO_UUID, 0)


PlannedTopic = tuple[Any, TopicInfo, list[int] | None]
"""A topic of a `CommitPlan`: (topic of the request, topic info, error codes).

The topic info is `NO_TOPIC` if all partitions of the topic are refused. The error codes are a list with one code for
each partition, or None if no partition is refused.
"""


def plan_commit(request: Any, topics: TopicImage, readable: TopicPermissions | None, *, by_id: bool) -> CommitPlan:
    """Checks topic ids, READ permissions, and the existence of topics and partitions.

    Returns the request with the results of these checks, which do not depend on the group.

    Args:
        request: OffsetCommit or TxnOffsetCommit.
        topics: the cluster's topics.
        readable: the permissions to READ topics; None allows all.
        by_id: True if the request names topics by id (OffsetCommit v10).
    """
    refusal = None
    if readable is not None:

        def refusal(name: str) -> int:
            return NONE if readable[name] else TOPIC_AUTHORIZATION_FAILED

    find: Any = topics.by_id if by_id else topics.by_name
    unknown = UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION
    return plan_topics(request, find, by_id, refusal, unknown, UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC)


def with_permissions(
    api: Api[Any, Any],
    context: RequestContext,
    request: Any,
    topics: TopicImage,
    authorizer: Authorizer,
    by_id: bool,
    slices: Slices | None,
    commit: Callable[[TopicPermissions], Any],
) -> Any:
    """Runs `commit` with the client's permissions to READ the topics of the request.

    If there are many topics, slices check the permissions before the commit.

    Args:
        api: the API that serves the request.
        context: the request's context.
        request: OffsetCommit or TxnOffsetCommit.
        topics: the cluster's topics.
        authorizer: checks READ on topics.
        by_id: whether the request names topics by id.
        slices: runs the slices; None: this node owns no shard.
        commit: returns the response, or a `Pending` for it.
    """
    readable = TopicPermissions(authorizer, context, Operation.READ)
    if slices is None or len(request.topics) <= FEW_TOPICS:
        return commit(readable)
    names = (topic.name for topic in request.topics)
    if by_id:
        found = (topics.by_id(topic.topic_id) for topic in request.topics)
        names = (None if topic is None else topic.name for topic in found)
    return slices.requests.run(api, context, request, readable.steps(names), lambda _: commit(readable))


class ResponseTypes(NamedTuple):
    """The response classes of a commit API.

    Attributes:
        topic: the class of a topic of the response.
        by_id: whether a topic of the response has a topic id.
        partition: the class of a partition of the response.
        response: the class of the response.
        accepted: a cache of the entries for committed partitions, by partition number. Responses share these entries,
            which must not be changed.
    """

    topic: type[Any]
    by_id: bool
    partition: type[Any]
    response: type[Any]
    accepted: dict[int, Any]

    def topic_response(self, requested_topic: Any, codes: list[int]) -> Any:
        """Returns a topic of the response with the code of each requested partition."""
        partitions = [
            self.partition(partition_index=p.partition_index, error_code=code)
            for p, code in zip(requested_topic.partitions, codes, strict=True)
        ]
        if self.by_id:
            return self.topic(name=requested_topic.name, topic_id=requested_topic.topic_id, partitions=partitions)
        return self.topic(name=requested_topic.name, partitions=partitions)


def refuse(types: ResponseTypes, commit: Any, code: int) -> Any:
    """Returns a response that refuses a commit with `code`.

    Args:
        types: the API's classes.
        commit: the plan, or the request if there is no plan yet. Partitions that the plan refuses keep their codes.
        code: the code of all other partitions.
    """
    if not isinstance(commit, CommitPlan):
        topics = [
            types.topic_response(requested_topic, [code] * len(requested_topic.partitions))
            for requested_topic in commit.topics
        ]
        return types.response(topics=topics)
    topics = []
    for requested_topic, _, codes in commit.topics:
        all_codes = (
            [code] * len(requested_topic.partitions) if codes is None else [refused or code for refused in codes]
        )
        topics.append(types.topic_response(requested_topic, all_codes))
    return types.response(topics=topics)


def accept(
    types: ResponseTypes,
    machine: GroupShard,
    plan: CommitPlan,
    *,
    with_topic_ids: bool,
    retention_time_ms: int = NO_EXPIRY,
) -> tuple[OffsetBlock[Record], Any]:
    """Returns the records and the response of a commit that its group accepts.

    Each accepted entry has one record, in request order. If a partition occurs more than once, its last entry takes
    effect. If a partition's metadata is too long, only this partition is refused.

    Args:
        types: the API's classes.
        machine: the shard's state, for the time and the settings.
        plan: the commit.
        with_topic_ids: whether the topics' ids are stored with the offsets.
        retention_time_ms: retention time of the offsets; -1 if `offsets.retention.minutes` applies (KIP-211).
    """
    group_id = plan.request.group_id
    now_ms = machine.now.wall_ms
    block = OffsetBlock(
        group_id,
        now_ms,
        expire_timestamp(retention_time_ms, now_ms),
        machine.config.offset_metadata_max_bytes,
        Record,
    )
    kind, by_id, partition, response, accepted = types
    topics = block.topic_responses(plan.topics, with_topic_ids, kind, by_id, partition, accepted)
    count = len(block)
    machine.offsets.commits += count
    if not count and group_id not in machine.groups:
        # All metadata was refused. The simple group is created anyway, until the shard is loaded again.
        machine.get_or_create_group(group_id)
    return block, response(topics=topics)
