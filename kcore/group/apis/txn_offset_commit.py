"""TxnOffsetCommit (API key 28), v0-5: stores offsets that take effect when a transaction commits (KIP-98).

v2 adds leader epochs (KIP-320). v3 adds the member, so that the group fences zombies (KIP-447). v4 adds the error
TRANSACTION_ABORTABLE. From v5 on, the request also adds the group's partition to the transaction (KIP-890).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kcore.errors import KafkaError
from kcore.group.apis.base import READ_GROUP_AND_TOPICS, GroupApi
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.states import EMPTY
from kcore.group.offsets.commit import NONE, ResponseTypes, accept, plan_commit, refuse, with_permissions
from kcore.group.offsets.verifier import Continued
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kcore.runtime.machine import Outcome, Record
from kcore.runtime.pending import Pending
from kcore_ext.group.offset_commit import TxnOffsetCommitFastPath

if TYPE_CHECKING:
    from kcore.group.offsets.verifier import GroupVerifier
    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard
    from kcore.runtime.shards import Shards
    from kcore.runtime.topic_permissions import TopicPermissions
    from kcore.runtime.topics import TopicImage
    from kcore_ext.group.offset_block import CommitPlan

ABORTABLE_SINCE = 4
ADDS_PARTITION_SINCE = 5
LOADING_SINCE = 2


RESPONSE_TYPES = ResponseTypes(
    TxnOffsetCommitResponseTopic, False, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponse, {}
)


def transaction_error(code: ErrorCode, api_version: int) -> ErrorCode:
    """Converts an error of the transaction coordinator to the error code of the TxnOffsetCommit response."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code


class TxnOffsetCommitApi(GroupApi[TxnOffsetCommitRequest, TxnOffsetCommitResponse]):
    """Handler of TxnOffsetCommit requests.

    The fast path serves a commit without refused partitions if the verifier returns its result at once.

    Args:
        shards: the group shards.
        topics: the cluster's topics; offsets of unknown topics are refused.
        verifier: verifies transactions with their coordinator.
        authorizer: checks the permission to WRITE transactions, and READ groups and topics; None allows all.
    """

    key = ApiKey.TXN_OFFSET_COMMIT
    request_type = TxnOffsetCommitRequest
    response_type = TxnOffsetCommitResponse
    versions = (0, 5)
    small_responses = True
    caches_responses = True

    __slots__ = ("_topics", "_verifier", "fast", "fast_path")

    def __init__(
        self,
        shards: Shards[GroupShard],
        topics: TopicImage,
        verifier: GroupVerifier,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(shards, authorizer)
        self._topics = topics
        self._verifier = verifier
        self.fast_path = TxnOffsetCommitFastPath(
            self,
            shards,
            topics,
            authorizer,
            verifier=verifier,
            verified=NO_ERROR,
            request=TxnOffsetCommitRequest,
            topic=TxnOffsetCommitRequestTopic,
            record=Record,
            permissions=READ_GROUP_AND_TOPICS,
            write_permission=(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
            classic=(ClassicGroup, EMPTY),
        )
        self.fast = self.fast_path.serve

    def handle(self, context: RequestContext, request: TxnOffsetCommitRequest) -> Any:
        """Authorizes the client, validates topics and partitions, verifies the transaction, and commits in the group's
        shard.

        If the group refuses a v5 commit, the group's partition stays in the transaction, as in Kafka.
        """
        authorizer = self._authorizer
        if authorizer is None:
            return self._commit(context, request, None)
        if not authorizer.allowed(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return self.error(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not authorizer.allowed(context, Operation.READ, ResourceType.GROUP, request.group_id):
            return self.error(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        commit = partial(self._commit, context, request)
        return with_permissions(self, context, request, self._topics, authorizer, False, self._shards.slices, commit)

    def _commit(
        self, context: RequestContext, request: TxnOffsetCommitRequest, readable: TopicPermissions | None
    ) -> Any:
        """Validates topics and partitions with the client's permissions, then verifies the transaction."""
        group_id = request.group_id
        plan = plan_commit(request, self._topics, readable, by_id=False)
        if plan.empty:
            return refuse(RESPONSE_TYPES, plan, NONE)
        if not group_id:
            return self.error(context, plan, ErrorCode.INVALID_GROUP_ID)
        try:
            shard = self._shards.of(group_id)
        except KafkaError as error:
            return self.error(context, plan, error.code)
        result = self._verifier.verify_group(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            shard.topic,
            shard.index,
            context.api_version >= ADDS_PARTITION_SINCE,
        )
        return self.after_verification(shard, context, plan, result)

    def after_verification(
        self, shard: Shard[GroupShard], context: RequestContext, plan: CommitPlan, result: ErrorCode | Pending
    ) -> Any:
        """Runs the commit in the group's shard once its transaction is verified.

        Args:
            shard: the group's shard.
            context: the request's context.
            plan: the request after the checks of its topics and partitions.
            result: the verifier's error code, or a `Pending` for it.
        """
        if isinstance(result, Pending):
            return Continued(
                self, context, plan, result, lambda code: self.after_verification(shard, context, plan, code)
            )
        if result is not NO_ERROR:
            return self.error(context, plan, transaction_error(result, context.api_version))
        return shard.run(self, context, plan)

    def decide(  # type: ignore[override]
        self, machine: GroupShard, context: RequestContext, plan: CommitPlan
    ) -> TxnOffsetCommitResponse | Outcome:
        """Validates the member, and writes the offsets as records of a transactional batch.

        The offsets are pending until the transaction ends.
        """
        request: TxnOffsetCommitRequest = plan.request
        group = machine.groups.get(request.group_id)
        if group is not None:
            code = group.validate_offset_commit(
                request.member_id, request.group_instance_id, request.generation_id, context.api_version, True, plan
            )
            if code == ErrorCode.STALE_MEMBER_EPOCH:
                code = ErrorCode.ILLEGAL_GENERATION  # this API has no error for member epochs
            if code:
                return self.error(context, plan, code)
        elif request.generation_id >= 0:
            return self.error(context, plan, ErrorCode.ILLEGAL_GENERATION)
        # Kafka writes no topic ids here although it knows them: requests of this API have topic names.
        records, response = accept(RESPONSE_TYPES, machine, plan, with_topic_ids=False)
        return Outcome(records, response, request.producer_id, request.producer_epoch)

    def error(
        self,
        context: RequestContext,
        request: TxnOffsetCommitRequest | CommitPlan,
        code: ErrorCode,
        message: str | None = None,
    ) -> TxnOffsetCommitResponse:
        """Returns a response with `code` for every partition.

        If `request` is a `CommitPlan`, the partitions that the plan refuses keep their own codes. Before v2,
        COORDINATOR_NOT_AVAILABLE replaces COORDINATOR_LOAD_IN_PROGRESS.
        """
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.api_version < LOADING_SINCE:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        response: TxnOffsetCommitResponse = refuse(RESPONSE_TYPES, request, code)
        return response
