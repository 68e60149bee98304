"""What a TxnOffsetCommit needs of the transaction coordinator: is this producer's transaction open here?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from kcore.protocol.error_codes import ErrorCode
    from kcore.runtime.api import Api, RequestContext


class TransactionVerifier(Protocol):
    """Asks the transaction coordinator before offsets are written in a transaction (KIP-890).

    A producer before version 2 of transactions has announced the group's partition with AddOffsetsToTxn; then it is
    enough to verify that. One of version 2 has not: the partition is added to its transaction, which may begin it.
    """

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int, add: bool
    ) -> ErrorCode | Pending:
        """Checks that a transaction holds a partition, or makes it so.

        Args:
            transactional_id: the producer's name.
            producer_id: its id.
            producer_epoch: its epoch.
            topic: the internal topic of the group's shard.
            partition: the shard.
            add: whether to add the partition to the transaction; False: verify only.

        Returns:
            As AddPartitionsToTxn answers the partition: NONE, or what is wrong (PRODUCER_FENCED for another epoch,
            TRANSACTION_ABORTABLE where the partition is not in the transaction); a `Pending` whose response, also
            when it fails, is that code if it comes later.
        """
        ...


class Continued(Pending):
    """The answer of a request that goes on once another answer is there.

    Args:
        first: what is waited for.
        then: called with its response; returns the answer of the whole request, or a `Pending`.
    """

    __slots__ = ("_then",)

    def __init__(
        self, api: Api[Any, Any], context: RequestContext, request: Any, first: Pending, then: Callable[[Any], Any]
    ) -> None:
        super().__init__(api, context, request, parked=first.parked)
        self._then = then
        first.on_complete(self._go_on)

    def _go_on(self, response: Any) -> None:
        result = self._then(response)
        if isinstance(result, Pending):
            result.on_complete(self.complete)
        else:
            self.complete(result)
