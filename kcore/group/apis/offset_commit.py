"""OffsetCommit (API key 8), v2-10: a group remembers how far it has read.

v2-4 may ask for a retention time of their own (KIP-211 took it away), v6 brings leader epochs (KIP-320), v7 static
members (KIP-345), v9 member epochs (KIP-848), v10 topic ids. There are only errors per partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.errors import KafkaError
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.states import EMPTY, STABLE
from kcore.group.offsets.commit import NONE, Answers, accept, plan_commit, refuse
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kcore.runtime.api import Api
from kcore.runtime.machine import Outcome, Record
from kcore_ext.offset_commit import OffsetCommitCore

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards
    from kcore.runtime.topics import TopicImage
    from kcore_ext.offset_block import CommitPlan

TOPIC_IDS_SINCE = 10
ABSENT_GROUP_SINCE = 9


ANSWERS = Answers(OffsetCommitResponseTopic, True, OffsetCommitResponsePartition, OffsetCommitResponse, {})


class OffsetCommitApi(OffsetCommitCore, Api[OffsetCommitRequest, OffsetCommitResponse]):
    """Serves OffsetCommit.

    What it does is said here in full, in `handle_any` and `decide_any`. `handle` and `decide` are compiled, and do the
    same for a commit in which nothing is refused: see `OffsetCommitCore`.

    Args:
        shards: the group shards.
        topics: the cluster's topics; offsets of others are refused.
        authorizer: who may read groups and topics; None allows all.
    """

    key = ApiKey.OFFSET_COMMIT
    request_type = OffsetCommitRequest
    response_type = OffsetCommitResponse
    versions = (2, 10)
    brief = True
    shares = True

    __slots__ = ()

    def __init__(self, shards: Shards[GroupShard], topics: TopicImage, authorizer: Authorizer | None = None) -> None:
        classic = (ClassicGroup, EMPTY, STABLE)
        super().__init__(shards, topics, authorizer, OffsetCommitRequest, OffsetCommitRequestTopic, Record, classic)

    def handle_any(self, context: RequestContext, request: OffsetCommitRequest) -> Any:
        """Checks topics and partitions; what is left of them goes to the group's shard."""
        authorizer = self._authorizer
        group_id = request.group_id
        if authorizer is not None and not authorizer.allowed(context, Operation.READ, ResourceType.GROUP, group_id):
            return self.error(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        plan = plan_commit(context, request, self._topics, authorizer, context.api_version >= TOPIC_IDS_SINCE)
        if plan.empty:
            return refuse(ANSWERS, plan, NONE)
        if authorizer is not None:
            self.recall(context, plan)
        return self.routed(context, group_id, plan)

    def routed(self, context: RequestContext, group_id: str, plan: CommitPlan) -> Any:
        """Has the group's shard decide."""
        try:
            shard = self._shards.of(group_id)
        except KafkaError as error:
            return self.error(context, plan, error.code)
        return shard.run(self, context, plan)

    def decide_any(self, machine: GroupShard, context: RequestContext, plan: CommitPlan) -> Any:
        """Asks the group; one record for each accepted entry, in the request's order, so that the last one wins."""
        asked: OffsetCommitRequest = plan.request
        group_id = asked.group_id
        member_id = asked.member_id
        generation_id = asked.generation_id_or_member_epoch
        group = machine.groups.get(group_id)
        if group is not None:
            code = group.validate_offset_commit(
                member_id, asked.group_instance_id, generation_id, context.api_version, False, plan
            )
            if code:
                return self.error(context, plan, code)
            group.offset_commit_accepted(member_id)
        elif generation_id >= 0:
            absent = context.api_version >= ABSENT_GROUP_SINCE
            return self.error(context, plan, ErrorCode.GROUP_ID_NOT_FOUND if absent else ErrorCode.ILLEGAL_GENERATION)
        return self.take_any(machine, plan)

    def take_any(self, machine: GroupShard, plan: CommitPlan) -> Outcome:
        """The records and the answer of a commit that its group takes."""
        retention_time_ms = plan.request.retention_time_ms
        records, response = accept(ANSWERS, machine, plan, with_topic_ids=True, retention_time_ms=retention_time_ms)
        return Outcome(records, response)

    def error(
        self,
        context: RequestContext,
        request: OffsetCommitRequest | CommitPlan,
        code: ErrorCode,
        message: str | None = None,
    ) -> OffsetCommitResponse:
        """`code` for every partition that reached the group; without a plan for all."""
        response: OffsetCommitResponse = refuse(ANSWERS, request, code)
        return response
