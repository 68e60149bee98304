"""Verification of transactional writes for partitions and groups (KIP-890).

The coordinator and the writer are in one process, so a successful verification completes immediately. The addition of a
partition and the first batch in it become durable together, or not at all. A refusal waits until the decision that
caused it is durable, for example the new epoch that fences the producer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.protocol.error_codes import NO_ERROR
from kcore.runtime.pending import Pending
from kcore.transaction.ending import EPOCH_BUMPS_SINCE

if TYPE_CHECKING:
    from kcore.protocol.error_codes import ErrorCode
    from kcore.protocol.topic_partition import PartitionTuple
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.markers import Results


class TransactionVerifier:
    """The verifier of partitions to which transactional producers write, and of groups for which they commit offsets.

    It is the `ProduceVerifier` of `kcore.broker.data.transaction_verifier` and the `GroupVerifier` of
    `kcore.group.offsets.verifier`.

    Args:
        coordinator: the node's transaction coordinator.
    """

    __slots__ = ("_coordinator",)

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[PartitionTuple],
        add: bool,
        done: Callable[[Results], None],
    ) -> None:
        """Verifies that partitions are in a transaction, or adds them (Produce v12+); calls `done` with the codes.

        Calls `done` immediately, unless a refusal depends on a decision that is not durable yet.
        """
        results: Results
        if add:
            code = self._coordinator.add(transactional_id, producer_id, producer_epoch, partitions, EPOCH_BUMPS_SINCE)
            results = dict.fromkeys(partitions, code)
        else:
            results = self._coordinator.verify(transactional_id, producer_id, producer_epoch, partitions)
            code = next((code for code in results.values() if code is not NO_ERROR), NO_ERROR)
        waiting = self._refused(transactional_id, code)
        if isinstance(waiting, Pending):
            codes = dict(results)

            def pass_on(durable: ErrorCode) -> None:
                if durable is not code:
                    for partition in partitions:  # needs no memory: the request waits for `done`
                        codes[partition] = durable
                done(codes)

            waiting.on_complete(pass_on)
        else:
            done(results)

    def verify_group(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int, add: bool
    ) -> ErrorCode | Pending:
        """Verifies that a group's partition is in a transaction, or adds it (TxnOffsetCommit v5).

        Returns the error code. If a refusal depends on a decision that is not durable yet, returns a `Pending` with the
        code instead.
        """
        group_partition = (topic, partition)
        code: ErrorCode
        if add:
            code = self._coordinator.add(
                transactional_id, producer_id, producer_epoch, (group_partition,), EPOCH_BUMPS_SINCE
            )
        else:
            codes = self._coordinator.verify(transactional_id, producer_id, producer_epoch, (group_partition,))
            code = codes[group_partition]
        return self._refused(transactional_id, code)

    def _refused(self, transactional_id: str, code: ErrorCode) -> ErrorCode | Pending:
        """Returns NONE immediately; delays an error code until the decision that caused it is durable.

        NONE needs no wait: if the commit of the decision fails, the producer's batch in the same round fails too.
        """
        return code if code is NO_ERROR else self._coordinator.when_durable(transactional_id, code)
