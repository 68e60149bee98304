"""EndTxn (key 26), v0-5: commits or aborts a transaction. From v5 on, it also increases the epoch (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kcore.runtime.api import Api
from kcore.runtime.machine import Outcome
from kcore.transaction import ending
from kcore.transaction.ending import EPOCH_BUMPS_SINCE, ProducerIdsExhaustedError
from kcore_ext.transaction.end_txn import EndTxnFastPath

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.shard import TransactionShard
    from kcore.transaction.transaction import Transaction

FENCED_SINCE = 2
"""The first version of the API that can return PRODUCER_FENCED (KIP-588). Earlier versions return
INVALID_PRODUCER_EPOCH instead.
"""

BUMPS_SINCE = 5


class EndTxnApi(Api[EndTxnRequest, EndTxnResponse]):
    """Handler of EndTxn requests.

    The fast path serves producers of transaction version 2 that end their open transaction.

    The response means that the outcome is decided. If this node leads all partitions of the transaction, their markers
    are part of the same commit; otherwise the coordinator writes them afterwards.

    Args:
        coordinator: the node's transaction coordinator.
        authorizer: decides about WRITE of the transactional id; None allows all requests.
    """

    __slots__ = ("_authorizer", "_coordinator", "fast", "fast_path")

    key: ClassVar[ApiKey] = ApiKey.END_TXN
    request_type: ClassVar[type] = EndTxnRequest
    response_type: ClassVar[type] = EndTxnResponse
    versions: ClassVar[tuple[int, int]] = (0, 5)
    small_responses: ClassVar[bool] = True

    def __init__(self, coordinator: TransactionCoordinator, authorizer: Authorizer | None = None) -> None:
        self._coordinator = coordinator
        self._authorizer = authorizer
        self.fast_path = EndTxnFastPath(
            self,
            coordinator,
            authorizer,
            (Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
            request=EndTxnRequest,
            response=EndTxnResponse,
        )
        self.fast = self.fast_path.serve

    def handle(self, context: RequestContext, request: EndTxnRequest) -> Any:
        """Authorizes the client, and runs the request in the shard of the transactional id."""
        transactional_id = request.transactional_id
        if self._authorizer is not None and not self._authorizer.allowed(
            context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            return self.error(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not transactional_id:
            return self.error(context, request, ErrorCode.INVALID_REQUEST)
        return self._coordinator.run(self, context, transactional_id, request)

    def decide(self, machine: TransactionShard, context: RequestContext, request: EndTxnRequest) -> Any:
        """Prepares the end of the transaction. A repeated request gets the same response as the first request."""
        transactional_id = request.transactional_id
        transaction = machine.transactions.get(transactional_id)
        bumps = context.api_version >= BUMPS_SINCE
        check = ending.check_since_v5 if bumps else ending.check_before_v5
        code = check(transaction, request.producer_id, request.producer_epoch, request.committed)
        if code is not None and code is not NO_ERROR:
            return self.error(context, request, code)
        assert transaction is not None, "the checks return an error for an unknown id"
        if code is NO_ERROR:
            return _ended(transaction, bumps)
        try:
            prepared = ending.prepare(
                transaction,
                request.committed,
                EPOCH_BUMPS_SINCE if bumps else 0,
                machine.now.wall_ms,
                machine.services.take_producer_id,
            )
        except ProducerIdsExhaustedError:
            return self.error(context, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return Outcome(machine.block(transactional_id, prepared), _ended(prepared, bumps))

    def error(
        self, context: RequestContext, request: EndTxnRequest, code: ErrorCode, message: str | None = None
    ) -> EndTxnResponse:
        """Returns a response with the code and without a producer id."""
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return EndTxnResponse(error_code=code)


def _ended(transaction: Transaction, bumps: bool) -> EndTxnResponse:
    """Returns the response of a successful end.

    From v5 on, the response has the producer id and epoch of the next transaction.
    """
    if not bumps:
        return EndTxnResponse()
    producer_id, producer_epoch = transaction.completed_identity
    return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)
