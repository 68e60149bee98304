"""The transaction coordinator of a node: its shards, and the verification of transactional writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kcore.errors import KafkaError
from kcore.process_logging import next_step
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore.runtime.late_shards import LateShards
from kcore.runtime.peers import pending_code
from kcore.runtime.shard_state import ShardState
from kcore.transaction import adding
from kcore.transaction.shard import TOPIC_NAME, TransactionShard
from kcore_ext.transaction.coordinator import CoordinatorCore

if TYPE_CHECKING:
    from kcore.protocol.topic_partition import PartitionTuple
    from kcore.runtime.api import Api, RequestContext
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.pending import Pending
    from kcore.runtime.shard import Shard
    from kcore.runtime.shards import Shards
    from kcore.transaction.markers import Results
    from kcore.transaction.transaction import Transaction

logger = logging.getLogger(__name__)


class TransactionCoordinator(CoordinatorCore, LateShards[TransactionShard]):
    """The transaction shards of a node. The first use creates `__transaction_state`; before that, the node has no
    shards.

    `add` and `run` are compiled fast paths; `add_generic` and `run_generic` are their generic paths.

    Args:
        make: makes the shard of a partition of `__transaction_state`.
        pipeline: commits the decisions of the shards.

    Attributes:
        shards: the shards; None before `__transaction_state` exists.
    """

    __slots__ = ("_make", "_pipeline")

    TOPIC = TOPIC_NAME
    shards: Shards[TransactionShard] | None

    def __init__(self, make: Callable[[int], Shard[TransactionShard]], pipeline: CommitPipeline) -> None:
        self._make = make
        self._pipeline = pipeline
        self.shards = None
        self.taken = NO_ERROR

    # ---- shards

    def run_generic(self, api: Api[Any, Any], context: RequestContext, transactional_id: str, request: Any) -> Any:
        """Handles a request like `run`. Returns an error response if this node has no active shard for the id."""
        try:
            shard = self.of(transactional_id)
        except KafkaError as error:
            return api.error(context, request, error.code)
        result = shard.run(api, context, request)
        shard.machine.send_markers()
        return result

    def get(self, transactional_id: str) -> Transaction | None:
        """Returns the current state of a transactional id, for inspection.

        Returns None if the id is unknown, or another node coordinates it.
        """
        try:
            shard = self.of(transactional_id)
        except KafkaError:
            return None
        return shard.machine.transactions.get(transactional_id)

    # ---- verification for partitions and groups (KIP-890)

    def add_generic(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[PartitionTuple],
        client_version: int,
    ) -> ErrorCode:
        """Adds partitions like `add`. If the shard is not active, the result is an error code."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        try:
            shard = self.of(transactional_id)
        except KafkaError as error:
            return error.code
        if shard.state is not ShardState.ACTIVE:
            return shard.refusal
        try:
            code = shard.machine.add(shard, transactional_id, producer_id, producer_epoch, partitions, client_version)
        except Exception as error:
            return self.add_failed(shard, transactional_id, error)
        return NO_ERROR if code is None else self.refused(code)

    def add_failed(self, shard: Shard[TransactionShard], transactional_id: str, error: Exception) -> ErrorCode:
        """Returns the code for an addition that raised an unexpected error."""
        logger.error(
            "transaction coordinator %s-%d: adding partitions to the transaction of %r failed; the producer gets "
            "UNKNOWN_SERVER_ERROR%s",
            shard.topic,
            shard.index,
            transactional_id,
            next_step(error),
            exc_info=error,
        )
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def refused(self, code: int) -> ErrorCode:
        """Converts the code of an addition that wrote no record: KAFKA_STORAGE_ERROR becomes NOT_COORDINATOR."""
        return ErrorCode.NOT_COORDINATOR if code == ErrorCode.KAFKA_STORAGE_ERROR else ErrorCode(code)

    def when_durable(self, transactional_id: str, code: ErrorCode) -> ErrorCode | Pending:
        """Delays a code that `add` or `verify` has returned, until all decisions on which the code depends are durable.

        Returns the code if these decisions are durable already, else a `Pending` for it. If the commit fails, the
        response of the `Pending` is NOT_COORDINATOR.
        """
        try:
            shard = self.of(transactional_id)
        except KafkaError:
            return code
        if not (shard.dirty or shard.committing):
            return code
        pending = pending_code(parked=False)
        if shard.dirty:
            self._pipeline.respond_after_commit(pending, code)
        else:
            self._pipeline.respond_after_background(pending, code)
        return pending

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[PartitionTuple]
    ) -> Results:
        """Returns the code of each partition: NONE if the partition is in the producer's transaction."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        try:
            shard = self.of(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        if shard.state is not ShardState.ACTIVE:
            return dict.fromkeys(partitions, shard.refusal)
        transaction = shard.machine.transactions.get(transactional_id)
        code = adding.verify(transaction, producer_id, producer_epoch)
        if code is not ErrorCode.NONE:
            return dict.fromkeys(partitions, code)
        assert transaction is not None, "verify returns an error for an unknown id"
        return {place: adding.verify_partition(transaction, *place) for place in partitions}
