"""The interface to the transaction coordinator that TxnOffsetCommit uses to verify transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from kcore.protocol.error_codes import ErrorCode
    from kcore.runtime.api import Api, RequestContext


class GroupVerifier(Protocol):
    """The interface that verifies a transaction with its coordinator before a commit writes offsets (KIP-890).

    A producer of transaction version 0 or 1 has sent AddOffsetsToTxn, which adds the partition of `__consumer_offsets`
    to the transaction. The coordinator only verifies this partition. A producer of version 2 does not send
    AddOffsetsToTxn: the coordinator adds the partition, and begins a transaction if necessary.
    """

    def verify_group(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int, add: bool
    ) -> ErrorCode | Pending:
        """Verifies that a transaction contains a partition, or adds the partition to the transaction.

        Args:
            transactional_id: the producer's transactional id.
            producer_id: the producer id in the request.
            producer_epoch: the producer epoch in the request.
            topic: the internal topic of the group's shard.
            partition: the partition of this topic, which is the number of the shard.
            add: True to add the partition to the transaction if it is missing; False to verify only.

        Returns:
            The error code that AddPartitionsToTxn returns for the partition, or a `Pending` whose response is this
            code. The code is PRODUCER_FENCED for another producer epoch, and TRANSACTION_ABORTABLE if the transaction
            does not contain the partition. A failed `Pending` also has an error code as its response.
        """
        ...


class Continued(Pending):
    """A pending response of a request that continues after another pending response.

    Args:
        first: the response to wait for.
        then: called with that response; returns the response of the whole request, or a `Pending`.
    """

    __slots__ = ("_then",)

    def __init__(
        self, api: Api[Any, Any], context: RequestContext, request: Any, first: Pending, then: Callable[[Any], Any]
    ) -> None:
        super().__init__(api, context, request, parked=first.parked)
        self._then = then
        first.on_complete(self._continue)

    def _continue(self, response: Any) -> None:
        result = self._then(response)
        if isinstance(result, Pending):
            result.on_complete(self.complete)
        else:
            self.complete(result)
