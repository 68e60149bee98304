"""Produce requests with batches of a transaction: verification before the append (KIP-890)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcore.broker.data.transaction_verifier import (
    FIRST_VERSION_THAT_ADDS,
    VerificationRequest,
    is_rejection,
    produce_error,
)
from kcore.errors import CloseConnectionError, KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.failed_requests import log_failed_request
from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from kcore.broker.apis.produce import ProduceApi
    from kcore.broker.data.partition import Partition
    from kcore.broker.data.producer_state import VerificationGuard
    from kcore.broker.data.transaction_verifier import Results
    from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse
    from kcore.runtime.api import RequestContext
    from kcore_ext.batch import BatchHeader

logger = logging.getLogger(__name__)


class ProduceItem:
    """One partition of a produce request.

    Attributes:
        data: the request's entry.
        partition: the target partition; None if it does not exist.
        header: the header of the batch; None if there is no batch.
        error: an error found before the append, or None.
        guard: the guard of the batch's transaction; None if no verification was needed.
    """

    __slots__ = ("data", "error", "guard", "header", "partition")

    def __init__(
        self,
        data: PartitionProduceData,
        partition: Partition | None,
        header: BatchHeader | None,
        error: KafkaError | None,
    ) -> None:
        self.data = data
        self.partition = partition
        self.header = header
        self.error = error
        self.guard: VerificationGuard | None = None

    @property
    def writes_transactionally(self) -> bool:
        """True if the item's batch belongs to a producer's transaction."""
        header = self.header
        return header is not None and header.is_transactional and header.producer_id >= 0


class TransactionalProduce:
    """A request with batches of a transaction. The transaction is verified before the batches are appended.

    Args:
        api: appends the batches and makes the response.
        context: the client and the API version of the request.
        request: the Produce request.
        items: the request's partitions.
    """

    __slots__ = ("_api", "_context", "_finished", "_items", "_pending", "_request", "_result")

    def __init__(
        self, api: ProduceApi, context: RequestContext, request: ProduceRequest, items: list[ProduceItem]
    ) -> None:
        self._api = api
        self._context = context
        self._request = request
        self._items = items
        self._pending: Pending | None = None
        self._finished = False
        self._result: ProduceResponse | Pending | None = None

    def start(self) -> ProduceResponse | Pending | None:
        """Verifies the partitions in which the transaction is not open yet, then appends the batches.

        Raises:
            CloseConnectionError: an error in a request with acks=0, which has no response.
        """
        writing = [item for item in self._items if item.error is None and item.writes_transactionally]
        producers = {(item.header.producer_id, item.header.producer_epoch) for item in writing if item.header}
        if len(producers) > 1:
            message = "the request has transactional batches of more than one producer"
            for item in self._items:
                item.error = KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
            writing = []
        adds = self._context.api_version >= FIRST_VERSION_THAT_ADDS
        if not writing or not -1 <= self._request.acks <= 1 or not (adds or self._api.verify_transactions):
            return self._api.finish(self._context, self._request, self._items)
        unverified = self._guard(writing, adds)
        if not unverified:
            return self._api.finish(self._context, self._request, self._items)
        (producer_id, producer_epoch) = producers.pop()
        partitions = [(item.partition.topic, item.partition.index) for item in unverified if item.partition]
        verification = VerificationRequest(
            self._api.partition_verifier,
            self._request.transactional_id or "",
            producer_id,
            producer_epoch,
            partitions,
            adds,
            self._verified,
            self._renew_guards,
        )
        self._api.partition_verifier.verify(verification)
        if self._finished:
            return self._result
        # Idempotent batches must keep their order, so later requests of the connection wait for this one.
        self._pending = Pending(self._api, self._context, self._request, parked=True)
        return self._pending

    def _guard(self, writing: list[ProduceItem], adds: bool) -> list[ProduceItem]:
        """Gives a guard to every item that needs verification, and returns these items."""
        unverified = []
        wall_ms = self._api.wall_ms
        transactional_id = self._request.transactional_id or ""
        for item in writing:
            partition, header = item.partition, item.header
            assert partition is not None
            assert header is not None
            if partition.recovering or partition.closed:
                item.error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            producers = partition.producers
            if producers.has_open_transaction(header.producer_id, header.producer_epoch, transactional_id):
                continue
            try:
                item.guard = producers.begin_verification(
                    header.producer_id, transactional_id, header.producer_epoch, adds, wall_ms
                )
            except KafkaError as error:
                item.error = error
                continue
            unverified.append(item)
        return unverified

    def _renew_guards(self) -> None:
        """Sets the guards again, because the end of the last transaction may have removed them."""
        for item in self._items:
            guard, partition, header = item.guard, item.partition, item.header
            if guard is None or partition is None or header is None:
                continue
            try:
                item.guard = partition.producers.begin_verification(
                    header.producer_id,
                    guard.transactional_id,
                    guard.epoch,
                    guard.supports_epoch_bump,
                    self._api.wall_ms,
                )
            except KafkaError as error:
                item.guard, item.error = None, error

    def _verified(self, results: Results) -> None:
        """Settles the guards with the coordinator's results, and appends every batch that was not rejected.

        An exception becomes an error response, because no caller waits for the exception.
        """
        try:
            self._settle(results)
            self._finished = True
            result = self._api.finish(self._context, self._request, self._items)
        except Exception as error:
            if self._pending is None:
                raise
            if self._request.acks:  # with acks=0 there is no response, and the connection stays open after the wait
                self._pending.fail(ErrorCode.UNKNOWN_SERVER_ERROR)  # first: there may be no memory for the line
            else:
                self._pending.complete(None)
            if not isinstance(error, CloseConnectionError):
                log_failed_request(
                    logger,
                    error,
                    "%s failed after the transaction coordinator verified the transaction; the client gets "
                    "UNKNOWN_SERVER_ERROR%s",
                    self._api,
                    self._context,
                )
            return
        pending = self._pending
        if pending is None:
            self._result = result
        elif isinstance(result, Pending):
            result.on_complete(pending.complete)
        else:
            pending.complete(result)

    def _settle(self, results: Results) -> None:
        """Ends each verification with the coordinator's result for its partition."""
        version = self._context.api_version
        for item in self._items:
            guard, partition, header = item.guard, item.partition, item.header
            if guard is None or partition is None or header is None:
                continue
            code = results[partition.topic, partition.index]
            partition.producers.settle_verification(header.producer_id, guard, header.base_sequence, is_rejection(code))
            if code:
                item.error = KafkaError(*produce_error(code, version))
            else:
                partition.producers.owners[header.producer_id] = guard.transactional_id
