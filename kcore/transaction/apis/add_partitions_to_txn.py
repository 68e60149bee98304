"""AddPartitionsToTxn (key 24), v0-5: adds partitions to transactions.

Clients send v0-3, for one transaction. Brokers send v4-5, for many transactions, to add partitions or only to verify
them (KIP-890).
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
from kcore.protocol.topic_partition import PartitionTuple
from kcore.runtime.api import Api
from kcore.runtime.machine import Outcome
from kcore.runtime.pending import gather
from kcore.transaction import adding
from kcore.transaction.ending import EPOCH_BUMPS_SINCE

if TYPE_CHECKING:
    from collections.abc import Collection

    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.topics import TopicImage
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.shard import TransactionShard

BATCHED_SINCE = 4
FENCED_SINCE = 2
"""The first version of the API that can return PRODUCER_FENCED (KIP-588). Earlier versions return
INVALID_PRODUCER_EPOCH instead.
"""

NONE = ErrorCode.NONE


class AddPartitionsToTxnApi(Api[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse]):
    """Handler of AddPartitionsToTxn requests.

    Args:
        coordinator: the node's transaction coordinator.
        topics: the cluster's topics.
        internal_topics: the names of topics that clients must not write to.
        authorizer: decides about permissions; None allows all requests.
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
        """Adds or verifies each transaction's partitions separately, and joins the results into one response."""
        if context.api_version < BATCHED_SINCE:
            only = AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
            return gather(self, context, request, [self._run_transaction(context, only)], _single_response)
        authorizer = self._authorizer
        if authorizer is not None and not authorizer.allowed(
            context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        parts = [self._run_transaction(context, transaction) for transaction in request.transactions]
        return gather(self, context, request, parts, _batched_response)

    def _run_transaction(self, context: RequestContext, transaction: AddPartitionsToTxnTransaction) -> Any:
        """Adds or verifies the partitions of one transaction.

        Checks the partitions before the producer. Refuses all partitions if one of them is invalid.
        """
        errors = self._partition_errors(context, transaction)
        if errors is not None:
            return _transaction_result(transaction, errors)
        if not transaction.transactional_id:
            return self.error(context, transaction, ErrorCode.INVALID_REQUEST)
        return self._coordinator.run(self, context, transaction.transactional_id, transaction)

    def _partition_errors(
        self, context: RequestContext, transaction: AddPartitionsToTxnTransaction
    ) -> dict[PartitionTuple, ErrorCode] | None:
        """Returns the code of each partition if any of them cannot be added, else None."""
        by_client = context.api_version < BATCHED_SINCE
        authorizer = self._authorizer if by_client else None
        if authorizer is not None and not authorizer.allowed(
            context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
        ):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return {(topic.name, index): code for topic in transaction.topics for index in topic.partitions}
        codes: dict[PartitionTuple, ErrorCode] = {}
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
        """Adds or verifies the partitions of one transaction."""
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
            return _transaction_result(request, codes)
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
        """Returns a response with `code` for every partition.

        From v4 on, if `request` is a whole request and not a single transaction, the response has the code only at the
        top level.
        """
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        if isinstance(request, AddPartitionsToTxnTransaction):
            return _transaction_result(request, code)
        if context.api_version >= BATCHED_SINCE:
            return AddPartitionsToTxnResponse(error_code=code)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(request.v3_and_below_topics, code))


Codes = Mapping[PartitionTuple, ErrorCode] | ErrorCode
"""The error code of each partition, or one error code for all partitions."""


def _transaction_result(transaction: AddPartitionsToTxnTransaction, codes: Codes) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id, topic_results=_results(transaction.topics, codes)
    )


def _results(topics: Iterable[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    """Returns the results by topic.

    A topic without partitions has a result only if the client is not authorized for the transactional id.
    """
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
        if parts or codes == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:  # as in Kafka
            results.append(AddPartitionsToTxnTopicResult(name=name, results_by_partition=parts))
    return results


def _single_response(parts: list[Any]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=parts[0].topic_results)


def _batched_response(parts: list[Any]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_transaction=parts)
