"""DescribeTransactions (key 65), v0: describes transactional ids (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kcore.runtime.api import Api
from kcore.runtime.pending import gather_each
from kcore.transaction.states import NAMES

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.shard import TransactionShard


class DescribeTransactionsApi(Api[DescribeTransactionsRequest, DescribeTransactionsResponse]):
    """Handler of DescribeTransactions requests.

    Args:
        coordinator: the node's transaction coordinator.
        authorizer: decides about permissions; None allows all requests.
    """

    __slots__ = ("_authorizer", "_coordinator")

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_TRANSACTIONS
    request_type: ClassVar[type] = DescribeTransactionsRequest
    response_type: ClassVar[type] = DescribeTransactionsResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)

    def __init__(self, coordinator: TransactionCoordinator, authorizer: Authorizer | None = None) -> None:
        self._coordinator = coordinator
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: DescribeTransactionsRequest) -> Any:
        """Describes each id in its shard, in slices if there are many."""
        ids = request.transactional_ids
        shards = self._coordinator.shards
        slices = None if shards is None else shards.slices
        return gather_each(self, context, request, ids, lambda name: self._describe(context, name), _response, slices)

    def _describe(self, context: RequestContext, transactional_id: str) -> Any:
        if self._authorizer is not None and not self._authorizer.allowed(
            context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            return _error_state(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not transactional_id:
            return _error_state(transactional_id, ErrorCode.INVALID_REQUEST)
        return self._coordinator.run(self, context, transactional_id, transactional_id)

    def decide(self, machine: TransactionShard, context: RequestContext, request: str) -> TransactionState:  # type: ignore[override]
        """Describes one id; omits topics that the client may not DESCRIBE."""
        transaction = machine.transactions.get(request)
        if transaction is None:
            return _error_state(request, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return TransactionState(
            transactional_id=request,
            transaction_state=NAMES[transaction.state],
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[
                TopicData(topic=topic, partitions=sorted(indexes))
                for topic, indexes in transaction.partitions.items()
                if self._authorizer is None
                or self._authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
            ],
        )

    def error(
        self,
        context: RequestContext,
        request: DescribeTransactionsRequest | str,
        code: ErrorCode,
        message: str | None = None,
    ) -> Any:
        """Returns `code` for one id, or a response with `code` for each id of the request."""
        if isinstance(request, str):
            return _error_state(request, code)
        return _response([_error_state(transactional_id, code) for transactional_id in request.transactional_ids])


def _error_state(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(error_code=code, transactional_id=transactional_id)


def _response(parts: list[Any]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=parts)
