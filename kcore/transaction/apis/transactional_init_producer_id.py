"""InitProducerId (key 22, v0-5) with a transactional id.

`kcore.broker.apis.init_producer_id` serves the API key. It authorizes and validates the request, and then calls this
module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kcore.runtime.api import Api
from kcore.runtime.machine import Outcome
from kcore.transaction import ending, initializing
from kcore.transaction.ending import ProducerIdsExhaustedError
from kcore.transaction.states import ONGOING
from kcore.transaction.transaction import NO_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from kcore.config.node import Config
    from kcore.runtime.api import RequestContext
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.shard import TransactionShard

FENCED_SINCE = 4
"""The first version of the API that can return PRODUCER_FENCED (KIP-588). Earlier versions return
INVALID_PRODUCER_EPOCH instead.
"""

MAX_ID_BYTES: Final = 0x7FFF
"""Largest size of a transactional id in bytes, because it is a text in the key of a record."""


class TransactionalInitProducerIdApi(Api[InitProducerIdRequest, InitProducerIdResponse]):
    """Handler of InitProducerId requests with a transactional id, which fences earlier instances of the producer.

    Args:
        coordinator: the node's transaction coordinator.
        config: the node's settings.
    """

    __slots__ = ("_config", "_coordinator")

    key: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID
    request_type: ClassVar[type] = InitProducerIdRequest
    response_type: ClassVar[type] = InitProducerIdResponse
    versions: ClassVar[tuple[int, int]] = (0, 5)
    small_responses: ClassVar[bool] = True

    def __init__(self, coordinator: TransactionCoordinator, config: Config) -> None:
        self._coordinator = coordinator
        self._config = config

    def handle(self, context: RequestContext, request: InitProducerIdRequest) -> Any:
        """Checks the timeout, and runs the request in the shard of the transactional id."""
        if not 0 < request.transaction_timeout_ms <= self._config.transaction_max_timeout_ms:
            return self.error(context, request, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transactional_id = request.transactional_id
        assert transactional_id, "the caller has checked it"
        if len(transactional_id.encode()) > MAX_ID_BYTES:  # of an embedded node: on the wire, no text is longer
            return self.error(context, request, ErrorCode.INVALID_REQUEST)
        return self._coordinator.run(self, context, transactional_id, request)

    def decide(self, machine: TransactionShard, context: RequestContext, request: InitProducerIdRequest) -> Any:
        """Increases the epoch, or takes a new producer id if the epoch is exhausted.

        Aborts an open transaction first.
        """
        transactional_id = request.transactional_id
        assert transactional_id is not None
        expected = None
        if request.producer_id != NO_PRODUCER_ID:
            expected = initializing.Identity(request.producer_id, request.producer_epoch)
        transaction = machine.transactions.get(transactional_id)
        code = initializing.check(transaction, expected)
        if code is not ErrorCode.NONE:
            return self.error(context, request, code)
        services, wall_ms = machine.services, machine.now.wall_ms
        try:
            if transaction is not None and transaction.state is ONGOING:
                fenced = ending.fence(transaction, services.level(), wall_ms, services.take_producer_id)
                reply = self.error(context, request, ErrorCode.CONCURRENT_TRANSACTIONS)
                return Outcome(machine.block(transactional_id, fenced), reply)
            result = initializing.initialize(
                transaction, expected, request.transaction_timeout_ms, wall_ms, services.take_producer_id
            )
        except ProducerIdsExhaustedError:
            return self.error(context, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if isinstance(result, ErrorCode):
            return self.error(context, request, result)
        reply = InitProducerIdResponse(producer_id=result.producer_id, producer_epoch=result.producer_epoch)
        return Outcome(machine.block(transactional_id, result), reply)

    def error(
        self, context: RequestContext, request: InitProducerIdRequest, code: ErrorCode, message: str | None = None
    ) -> InitProducerIdResponse:
        """Returns a response with the code and without a producer id."""
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
