"""OffsetCommit (API key 8), v2-10: stores the offsets up to which a group has consumed.

v2-4 may set a retention time (removed by KIP-211), v6 adds leader epochs (KIP-320), v7 static members (KIP-345), v9
member epochs (KIP-848), v10 topic ids. All errors are per partition.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kcore.errors import KafkaError
from kcore.group.apis.base import READ_GROUP_AND_TOPICS, GroupApi
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.member import Member
from kcore.group.classic.states import EMPTY, STABLE
from kcore.group.offsets.commit import NONE, ResponseTypes, accept, plan_commit, refuse, with_permissions
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kcore.runtime.machine import Outcome, Record
from kcore_ext.group.offset_commit import OffsetCommitFastPath

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards
    from kcore.runtime.topic_permissions import TopicPermissions
    from kcore.runtime.topics import TopicImage
    from kcore_ext.group.offset_block import CommitPlan

TOPIC_IDS_SINCE = 10
ABSENT_GROUP_SINCE = 9


RESPONSE_TYPES = ResponseTypes(OffsetCommitResponseTopic, True, OffsetCommitResponsePartition, OffsetCommitResponse, {})


class OffsetCommitApi(GroupApi[OffsetCommitRequest, OffsetCommitResponse]):
    """Handler of OffsetCommit requests.

    The fast path serves commits without a refused partition.

    Args:
        shards: the group shards.
        topics: the cluster's topics; offsets of unknown topics are refused.
        authorizer: checks the permission to READ groups and topics; None allows all.
    """

    key = ApiKey.OFFSET_COMMIT
    request_type = OffsetCommitRequest
    response_type = OffsetCommitResponse
    versions = (2, 10)
    small_responses = True
    caches_responses = True

    __slots__ = ("_topics", "fast", "fast_path")

    def __init__(self, shards: Shards[GroupShard], topics: TopicImage, authorizer: Authorizer | None = None) -> None:
        super().__init__(shards, authorizer)
        self._topics = topics
        self.fast_path = OffsetCommitFastPath(
            self,
            shards,
            topics,
            authorizer,
            request=OffsetCommitRequest,
            topic=OffsetCommitRequestTopic,
            record=Record,
            permissions=READ_GROUP_AND_TOPICS,
            classic=(ClassicGroup, Member, EMPTY, STABLE),
        )
        self.fast = self.fast_path.serve

    def handle(self, context: RequestContext, request: OffsetCommitRequest) -> Any:
        """Authorizes the client, validates topics and partitions, and commits the valid partitions in the group's
        shard.
        """
        code = self.refusal(context, Operation.READ, request.group_id, may_be_empty=True)
        if code:
            return self.error(context, request, code)
        if self._authorizer is None:
            return self._commit(context, request, None)
        by_id, slices = context.api_version >= TOPIC_IDS_SINCE, self._shards.slices
        commit = partial(self._commit, context, request)
        return with_permissions(self, context, request, self._topics, self._authorizer, by_id, slices, commit)

    def _commit(self, context: RequestContext, request: OffsetCommitRequest, readable: TopicPermissions | None) -> Any:
        """Validates topics and partitions with the client's permissions, and commits the valid ones in the group's
        shard.
        """
        plan = plan_commit(request, self._topics, readable, by_id=context.api_version >= TOPIC_IDS_SINCE)
        if plan.empty:
            return refuse(RESPONSE_TYPES, plan, NONE)
        try:
            shard = self._shards.of(request.group_id)
        except KafkaError as error:
            return self.error(context, plan, error.code)
        return shard.run(self, context, plan)

    def decide(self, machine: GroupShard, context: RequestContext, plan: CommitPlan) -> Any:  # type: ignore[override]
        """Validates the member. Writes one record for each accepted entry, in request order.

        If a partition occurs more than once, its last entry takes effect.
        """
        request: OffsetCommitRequest = plan.request
        member_id = request.member_id
        generation_id = request.generation_id_or_member_epoch
        group = machine.groups.get(request.group_id)
        if group is not None:
            code = group.validate_offset_commit(
                member_id, request.group_instance_id, generation_id, context.api_version, False, plan
            )
            if code:
                return self.error(context, plan, code)
            group.offset_commit_accepted(member_id)
        elif generation_id >= 0:
            absent = context.api_version >= ABSENT_GROUP_SINCE
            return self.error(context, plan, ErrorCode.GROUP_ID_NOT_FOUND if absent else ErrorCode.ILLEGAL_GENERATION)
        records, response = accept(
            RESPONSE_TYPES, machine, plan, with_topic_ids=True, retention_time_ms=request.retention_time_ms
        )
        return Outcome(records, response)

    def error(
        self,
        context: RequestContext,
        request: OffsetCommitRequest | CommitPlan,
        code: ErrorCode,
        message: str | None = None,
    ) -> OffsetCommitResponse:
        """Returns a response with `code` for every partition.

        If `request` is a `CommitPlan`, the partitions that the plan refuses keep their own codes.
        """
        response: OffsetCommitResponse = refuse(RESPONSE_TYPES, request, code)
        return response
