"""AddPartitionsToTxn (key 24), v0-5: partitions that a transaction will write to.

v0-3 come from clients, for one transaction; v4-5 from brokers, for many at a time, to add or only to verify (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kcore.runtime.api import Api
from kcore.runtime.machine import Outcome
from kcore.runtime.pending import gather
from kcore.transaction import adding
from kcore.transaction.ending import EPOCH_BUMPS_SINCE
from kcore.transaction.markers import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.topics import TopicImage
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.shard import TransactionShard

BATCHED_SINCE = 4
FENCED_SINCE = 2
"""PRODUCER_FENCED is new in v2 (KIP-588); before it says INVALID_PRODUCER_EPOCH."""

NONE = ErrorCode.NONE


class AddPartitionsToTxnApi(Api[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse]):
    """Serves AddPartitionsToTxn.

    Args:
        coordinator: the node's transactions.
        topics: the cluster's topics.
        internal_topics: topics that clients must not write to, in a transaction or not.
        authorizer: who may do what; None allows all.
    """

    __slots__ = ("_authorizer", "_coordinator", "_internal_topics", "_topics")

    key: ClassVar[ApiKey] = ApiKey.ADD_PARTITIONS_TO_TXN
    request_type: ClassVar[type] = AddPartitionsToTxnRequest
    response_type: ClassVar[type] = AddPartitionsToTxnResponse
    versions: ClassVar[tuple[int, int]] = (0, 5)
    small_responses: ClassVar[bool] = True

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        topics: TopicImage,
        internal_topics: Collection[str],
        authorizer: Authorizer | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._topics = topics
        self._internal_topics = internal_topics
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: AddPartitionsToTxnRequest) -> Any:
        """Each transaction by itself; the response has all of them."""
        if context.api_version < BATCHED_SINCE:
            only = AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
            return gather(self, context, request, [self._one(context, only)], _single)
        authorizer = self._authorizer
        if authorizer is not None and not authorizer.allowed(
            context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        parts = [self._one(context, transaction) for transaction in request.transactions]
        return gather(self, context, request, parts, _several)

    def _one(self, context: RequestContext, transaction: AddPartitionsToTxnTransaction) -> Any:
        """One transaction: its partitions first, whoever the producer is; a fault of one keeps all out."""
        faults = self._faults(context, transaction)
        if faults is not None:
            return _answer(transaction, faults)
        if not transaction.transactional_id:
            return self.error(context, transaction, ErrorCode.INVALID_REQUEST)
        return self._coordinator.run(self, context, transaction.transactional_id, transaction)

    def _faults(
        self, context: RequestContext, transaction: AddPartitionsToTxnTransaction
    ) -> dict[TopicPartition, ErrorCode] | None:
        """The code of each partition if any of them cannot be added."""
        by_client = context.api_version < BATCHED_SINCE
        authorizer = self._authorizer if by_client else None
        if authorizer is not None and not authorizer.allowed(
            context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
        ):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return {(topic.name, index): code for topic in transaction.topics for index in topic.partitions}
        codes: dict[TopicPartition, ErrorCode] = {}
        failed = False
        for topic in transaction.topics:
            name = topic.name
            info = self._topics.by_name(name)
            refused = by_client and (
                name in self._internal_topics
                or (
                    authorizer is not None
                    and not authorizer.allowed(context, Operation.WRITE, ResourceType.TOPIC, name)
                )
            )
            for index in topic.partitions:
                code = ErrorCode.OPERATION_NOT_ATTEMPTED
                if refused:
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif info is None or not 0 <= index < info.partitions:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                failed = failed or code is not ErrorCode.OPERATION_NOT_ATTEMPTED
                codes[name, index] = code
        return codes if failed else None

    def decide(
        self,
        machine: TransactionShard,
        context: RequestContext,
        request: AddPartitionsToTxnTransaction,  # type: ignore[override]
    ) -> Any:
        """Adds, or verifies, in the id's shard."""
        transactional_id = request.transactional_id
        transaction = machine.transactions.get(transactional_id)
        if request.verify_only:
            code = adding.verify(transaction, request.producer_id, request.producer_epoch)
            if code is not NONE or transaction is None:
                return self.error(context, request, code)
            codes = {
                (topic.name, index): adding.verify_partition(transaction, topic.name, index)
                for topic in request.topics
                for index in topic.partitions
            }
            return _answer(request, codes)
        result = adding.add(
            transaction,
            request.producer_id,
            request.producer_epoch,
            [(topic.name, index) for topic in request.topics for index in topic.partitions],
            EPOCH_BUMPS_SINCE if context.api_version >= BATCHED_SINCE else 0,
            machine.now.wall_ms,
        )
        if isinstance(result, ErrorCode):
            return self.error(context, request, result)
        return Outcome(machine.block(transactional_id, result), self.error(context, request, NONE))

    def error(
        self,
        context: RequestContext,
        request: AddPartitionsToTxnRequest | AddPartitionsToTxnTransaction,
        code: ErrorCode,
        message: str | None = None,
    ) -> Any:
        """`code` for every partition of a transaction; of a batch: at the top."""
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        if isinstance(request, AddPartitionsToTxnTransaction):
            return _answer(request, code)
        if context.api_version >= BATCHED_SINCE:
            return AddPartitionsToTxnResponse(error_code=code)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(request.v3_and_below_topics, code))


Codes = Mapping[TopicPartition, ErrorCode] | ErrorCode
"""The code of each partition, or one for all."""


def _answer(transaction: AddPartitionsToTxnTransaction, codes: Codes) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id, topic_results=_results(transaction.topics, codes)
    )


def _results(topics: Iterable[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    results = []
    for topic in topics:
        name = topic.name
        parts = [
            AddPartitionsToTxnPartitionResult(
                partition_index=index,
                partition_error_code=codes if isinstance(codes, ErrorCode) else codes[name, index],
            )
            for index in topic.partitions
        ]
        results.append(AddPartitionsToTxnTopicResult(name=name, results_by_partition=parts))
    return results


def _single(parts: list[Any]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=parts[0].topic_results)


def _several(parts: list[Any]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_transaction=parts)
