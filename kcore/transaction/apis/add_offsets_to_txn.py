"""AddOffsetsToTxn (key 25), v0-4: adds the partition with a group's offsets to a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.runtime.api import Api
from kcore.runtime.machine import Outcome
from kcore.runtime.partitioner import partition_for
from kcore.transaction import adding

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.topics import TopicImage
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.shard import TransactionShard

FENCED_SINCE = 2
"""The first version of the API that can return PRODUCER_FENCED (KIP-588). Earlier versions return
INVALID_PRODUCER_EPOCH instead.
"""


class AddOffsetsToTxnApi(Api[AddOffsetsToTxnRequest, AddOffsetsToTxnResponse]):
    """Handler of AddOffsetsToTxn requests.

    Args:
        coordinator: the node's transaction coordinator.
        topics: the cluster's topics, from which the handler reads the number of partitions of `__consumer_offsets`.
        authorizer: decides about permissions; None allows all requests.
    """

    __slots__ = ("_authorizer", "_coordinator", "_topics")

    key: ClassVar[ApiKey] = ApiKey.ADD_OFFSETS_TO_TXN
    request_type: ClassVar[type] = AddOffsetsToTxnRequest
    response_type: ClassVar[type] = AddOffsetsToTxnResponse
    versions: ClassVar[tuple[int, int]] = (0, 4)
    small_responses: ClassVar[bool] = True

    def __init__(
        self, coordinator: TransactionCoordinator, topics: TopicImage, authorizer: Authorizer | None = None
    ) -> None:
        self._coordinator = coordinator
        self._topics = topics
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: AddOffsetsToTxnRequest) -> Any:
        """Authorizes the client, and runs the request in the shard of the transactional id."""
        authorizer = self._authorizer
        transactional_id = request.transactional_id
        if authorizer is not None:
            if not authorizer.allowed(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
                return self.error(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            if not authorizer.allowed(context, Operation.READ, ResourceType.GROUP, request.group_id):
                return self.error(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not transactional_id:
            return self.error(context, request, ErrorCode.INVALID_REQUEST)
        return self._coordinator.run(self, context, transactional_id, request)

    def decide(self, machine: TransactionShard, context: RequestContext, request: AddOffsetsToTxnRequest) -> Any:
        """Adds the partition of `__consumer_offsets` to which the group belongs. Accepts any text as a group id."""
        groups = self._topics.by_name(CONSUMER_OFFSETS)
        if groups is None:
            return self.error(context, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group_partition = (CONSUMER_OFFSETS, partition_for(request.group_id, groups.partitions))
        transactional_id = request.transactional_id
        result = adding.add(
            machine.transactions.get(transactional_id),
            request.producer_id,
            request.producer_epoch,
            (group_partition,),
            0,
            machine.now.wall_ms,
        )
        if isinstance(result, ErrorCode):
            return self.error(context, request, result)
        return Outcome(machine.block(transactional_id, result), AddOffsetsToTxnResponse())

    def error(
        self, context: RequestContext, request: AddOffsetsToTxnRequest, code: ErrorCode, message: str | None = None
    ) -> AddOffsetsToTxnResponse:
        """Returns a response with the code."""
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(error_code=code)
