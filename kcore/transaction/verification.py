"""Verification of transactional writes for partitions and groups (KIP-890).

The coordinator and the writer are in one process and in one round, so the verification completes at once. The addition
of a partition and the first batch in it become durable together, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.transaction.ending import EPOCH_BUMPS_SINCE

if TYPE_CHECKING:
    from kcore.protocol.error_codes import ErrorCode
    from kcore.protocol.topic_partition import PartitionTuple
    from kcore.runtime.pending import Pending
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.markers import Results


class TransactionVerifier:
    """Verifies partitions to which transactional producers write, and groups whose offsets they commit.

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
        """Verifies that partitions are in a transaction, or adds them (Produce v12+); calls `done` with the codes."""
        if add:
            code = self._coordinator.add(transactional_id, producer_id, producer_epoch, partitions, EPOCH_BUMPS_SINCE)
            done(dict.fromkeys(partitions, code))
        else:
            done(self._coordinator.verify(transactional_id, producer_id, producer_epoch, partitions))

    def verify_group(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int, add: bool
    ) -> ErrorCode | Pending:
        """Verifies that a group's partition is in a transaction, or adds it (TxnOffsetCommit v5)."""
        group_partition = (topic, partition)
        if add:
            code: ErrorCode = self._coordinator.add(
                transactional_id, producer_id, producer_epoch, (group_partition,), EPOCH_BUMPS_SINCE
            )
            return code
        codes = self._coordinator.verify(transactional_id, producer_id, producer_epoch, (group_partition,))
        return codes[group_partition]
