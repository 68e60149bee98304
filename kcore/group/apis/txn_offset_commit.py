"""TxnOffsetCommit (API key 28), v0-5: offsets that become a group's with the commit of a transaction (KIP-98).

v2 brings leader epochs (KIP-320), v3 the member, so that zombies are fenced by the group (KIP-447), v4 may answer
TRANSACTION_ABORTABLE, v5 adds the group's partition to the transaction by itself (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.errors import KafkaError
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.states import EMPTY
from kcore.group.offsets.commit import NONE, Answers, accept, plan_commit, refuse
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
from kcore.runtime.api import Api
from kcore.runtime.machine import Outcome, Record
from kcore.runtime.pending import Pending
from kcore_ext.txn_offset_commit import TxnOffsetCommitCore

if TYPE_CHECKING:
    from kcore.group.offsets.verifier import TransactionVerifier
    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard
    from kcore.runtime.shards import Shards
    from kcore.runtime.topics import TopicImage
    from kcore_ext.offset_block import CommitPlan

ABORTABLE_SINCE = 4
ADDS_PARTITION_SINCE = 5
LOADING_SINCE = 2


ANSWERS = Answers(TxnOffsetCommitResponseTopic, False, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponse, {})


def transaction_error(code: ErrorCode, api_version: int) -> ErrorCode:
    """How the transaction coordinator's refusal is answered to a producer that commits offsets."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code


class TxnOffsetCommitApi(TxnOffsetCommitCore, Api[TxnOffsetCommitRequest, TxnOffsetCommitResponse]):
    """Serves TxnOffsetCommit.

    What it does is said here in full, in `handle_any` and `decide_any`. `handle` and `decide` are compiled, and do the
    same for a commit in which nothing is refused: see `TxnOffsetCommitCore`.

    Args:
        shards: the group shards.
        topics: the cluster's topics; offsets of others are refused.
        verifier: asks the transaction coordinator.
        authorizer: who may write transactions, read groups and topics; None allows all.
    """

    key = ApiKey.TXN_OFFSET_COMMIT
    request_type = TxnOffsetCommitRequest
    response_type = TxnOffsetCommitResponse
    versions = (0, 5)
    brief = True
    shares = True

    __slots__ = ()

    def __init__(
        self,
        shards: Shards[GroupShard],
        topics: TopicImage,
        verifier: TransactionVerifier,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(
            shards,
            topics,
            verifier,
            authorizer,
            NO_ERROR,
            TxnOffsetCommitRequest,
            TxnOffsetCommitRequestTopic,
            Record,
            (ClassicGroup, EMPTY),
        )

    def handle_any(self, context: RequestContext, request: TxnOffsetCommitRequest) -> Any:
        """Checks topics and partitions, then the transaction; the group is asked last.

        So a v5 commit that the group refuses has joined, or begun, the transaction all the same.
        """
        authorizer = self._authorizer
        group_id = request.group_id
        if authorizer is not None:
            if not authorizer.allowed(
                context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
            ):
                return self.error(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            if not authorizer.allowed(context, Operation.READ, ResourceType.GROUP, group_id):
                return self.error(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        plan = plan_commit(context, request, self._topics, authorizer, False)
        if plan.empty:
            return refuse(ANSWERS, plan, NONE)
        if not group_id:
            return self.error(context, plan, ErrorCode.INVALID_GROUP_ID)
        try:
            shard = self._shards.of(group_id)
        except KafkaError as error:
            return self.error(context, plan, error.code)
        verdict = self._verifier.verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            shard.topic,
            shard.index,
            context.api_version >= ADDS_PARTITION_SINCE,
        )
        return self.go_on(shard, context, plan, verdict)

    def go_on(
        self, shard: Shard[GroupShard], context: RequestContext, plan: CommitPlan, verdict: ErrorCode | Pending
    ) -> Any:
        """What the transaction coordinator says is there, or will be; with NONE the group is asked."""
        if isinstance(verdict, Pending):
            return Continued(self, context, plan, verdict, lambda code: self.go_on(shard, context, plan, code))
        if verdict is not NO_ERROR:
            return self.error(context, plan, transaction_error(verdict, context.api_version))
        return shard.run(self, context, plan)

    def decide_any(self, machine: GroupShard, context: RequestContext, plan: CommitPlan) -> Any:
        """Asks the group; the records become a transactional batch, the offsets pending under the producer's id."""
        asked: TxnOffsetCommitRequest = plan.request
        group = machine.groups.get(asked.group_id)
        if group is not None:
            code = group.validate_offset_commit(
                asked.member_id, asked.group_instance_id, asked.generation_id, context.api_version, True, plan
            )
            if code:
                return self.refused(context, plan, code)
        elif asked.generation_id >= 0:
            return self.error(context, plan, ErrorCode.ILLEGAL_GENERATION)
        return self.taken(machine, plan)

    def refused(self, context: RequestContext, plan: CommitPlan, code: ErrorCode) -> TxnOffsetCommitResponse:
        """What is answered to a commit that its group does not take."""
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            code = ErrorCode.ILLEGAL_GENERATION  # the request has no error of its own for epochs
        return self.error(context, plan, code)

    def taken(self, machine: GroupShard, plan: CommitPlan) -> Outcome:
        """The records and the answer of a commit that its group takes."""
        asked: TxnOffsetCommitRequest = plan.request
        # Kafka writes no topic ids here, though it knows them: the request's versions carry names.
        records, response = accept(ANSWERS, machine, plan, with_topic_ids=False)
        return Outcome(records, response, asked.producer_id, asked.producer_epoch)

    def error(
        self,
        context: RequestContext,
        request: TxnOffsetCommitRequest | CommitPlan,
        code: ErrorCode,
        message: str | None = None,
    ) -> TxnOffsetCommitResponse:
        """`code` for every partition that reached the group; without a plan for all.

        Producers before v2 crash on COORDINATOR_LOAD_IN_PROGRESS.
        """
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.api_version < LOADING_SINCE:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        response: TxnOffsetCommitResponse = refuse(ANSWERS, request, code)
        return response
