"""What OffsetCommit and TxnOffsetCommit have in common: the checks in front of the group, and the offsets themselves.

Both answer one error code per partition and nothing else. The front refuses topics and partitions that nobody may
commit or that do not exist; what is left goes to the group, whose refusal every partition that reached it is answered
with. The response keeps the request's order, and answers twice what is asked for twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.group.offsets.records import NO_EXPIRY, expire_timestamp
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.schema import ZERO_UUID
from kcore.runtime.machine import Record
from kcore.runtime.topics import TopicInfo
from kcore_ext.group.offset_block import CommitPlan, OffsetBlock, plan_topics

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.topics import TopicImage

NONE = int(ErrorCode.NONE)
UNKNOWN_TOPIC_OR_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN_TOPIC_ID = int(ErrorCode.UNKNOWN_TOPIC_ID)
TOPIC_AUTHORIZATION_FAILED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


NO_TOPIC = TopicInfo("", ZERO_UUID, 0)


PlannedTopic = tuple[Any, TopicInfo, list[int] | None]
"""A topic of a commit after the checks in front: as it stands in the request; what is known of it, `NO_TOPIC` if all
that is asked of it is refused; a code for each of its partitions, None if none of them is refused."""


def plan_commit(
    context: RequestContext, request: Any, topics: TopicImage, authorizer: Authorizer | None, by_id: bool
) -> CommitPlan:
    """Checks what needs no group: topic ids, the right to read a topic, whether topics and partitions exist.

    Args:
        context: who asks.
        request: OffsetCommit or TxnOffsetCommit.
        topics: the cluster's topics.
        authorizer: who may read topics; None allows all.
        by_id: whether the request names topics by id (OffsetCommit v10).
    """
    refusal = None
    if authorizer is not None:

        def refusal(name: str) -> int:
            allowed = authorizer.allowed(context, Operation.READ, ResourceType.TOPIC, name)
            return NONE if allowed else TOPIC_AUTHORIZATION_FAILED

    find: Any = topics.by_id if by_id else topics.by_name
    unknown = UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION
    return plan_topics(request, find, by_id, refusal, unknown, UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC)


class Answers(NamedTuple):
    """How a commit API says one code per partition.

    Attributes:
        topic: the class of a topic of the response.
        by_id: whether it has a topic id.
        partition: the class of a partition of the response.
        response: the class of the response.
        accepted: answers without an error by partition. Responses share them: they are not to be changed.
    """

    topic: type[Any]
    by_id: bool
    partition: type[Any]
    response: type[Any]
    accepted: dict[int, Any]

    def answer_topic(self, asked: Any, codes: list[int]) -> Any:
        """A topic of the response: a code for each of its partitions as asked."""
        partitions = [
            self.partition(partition_index=p.partition_index, error_code=code)
            for p, code in zip(asked.partitions, codes, strict=True)
        ]
        if self.by_id:
            return self.topic(name=asked.name, topic_id=asked.topic_id, partitions=partitions)
        return self.topic(name=asked.name, partitions=partitions)


def refuse(answers: Answers, commit: Any, code: int) -> Any:
    """The response in which everything that reached the group, or all of a request, is answered with `code`.

    Args:
        answers: the API's classes.
        commit: the plan, whose own refusals stay, or a request that was not planned yet.
        code: for all the others.
    """
    if not isinstance(commit, CommitPlan):
        topics = [answers.answer_topic(asked, [code] * len(asked.partitions)) for asked in commit.topics]
        return answers.response(topics=topics)
    topics = []
    for asked, _, codes in commit.topics:
        found = [code] * len(asked.partitions) if codes is None else [refused or code for refused in codes]
        topics.append(answers.answer_topic(asked, found))
    return answers.response(topics=topics)


def accept(
    answers: Answers, machine: GroupShard, plan: CommitPlan, *, with_topic_ids: bool, retention_time_ms: int = NO_EXPIRY
) -> tuple[OffsetBlock[Record], Any]:
    """The records and the response of a commit that its group takes.

    One record for each accepted entry in the request's order, so that the last of a partition wins. Metadata that is
    too long refuses its own partition alone.

    Args:
        answers: the API's classes.
        machine: the shard's state, for the time and the settings.
        plan: the commit.
        with_topic_ids: whether the topics' ids are kept with the offsets.
        retention_time_ms: how long the offsets are kept; -1: as long as the group's others (KIP-211).
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
    kind, by_id, partition, response, accepted = answers
    topics = block.answer(plan.topics, with_topic_ids, kind, by_id, partition, accepted)
    count = len(block)
    machine.offsets.commits += count
    if not count and group_id not in machine.groups:
        # Nothing but refused metadata: the simple group is there all the same, until the shard is loaded again.
        machine.get_or_create_group(group_id)
    return block, response(topics=topics)
