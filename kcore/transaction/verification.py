"""The coordinator's answers to those who write in a transaction: partitions, and groups (KIP-890).

Everybody is in one process, and what they decide is one commit. So an answer comes at once, and the writer goes on
with it: the partition's place in the transaction and the first batch there become durable together, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.transaction.ending import EPOCH_BUMPS_SINCE

if TYPE_CHECKING:
    from kcore.protocol.error_codes import ErrorCode
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.markers import Results, TopicPartition


class PartitionVerifier:
    """Answers partitions whose producers write in a transaction; see `kcore.broker.data.transaction_verifier`.

    Args:
        coordinator: who knows.
    """

    __slots__ = ("_coordinator",)

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        add: bool,
        done: Callable[[Results], None],
    ) -> None:
        """Verifies that partitions are in a transaction, or adds them (Produce v12+); `done` has the codes."""
        if add:
            code = self._coordinator.add(transactional_id, producer_id, producer_epoch, partitions, EPOCH_BUMPS_SINCE)
            done(dict.fromkeys(partitions, code))
        else:
            done(self._coordinator.verify(transactional_id, producer_id, producer_epoch, partitions))


class OffsetsVerifier:
    """Answers groups whose offsets are committed in a transaction; see `kcore.group.offsets.verifier`.

    Args:
        coordinator: who knows.
    """

    __slots__ = ("_coordinator",)

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int, add: bool
    ) -> ErrorCode:
        """Verifies that a group's partition is in a transaction, or adds it (TxnOffsetCommit v5)."""
        place = (topic, partition)
        if add:
            code: ErrorCode = self._coordinator.add(
                transactional_id, producer_id, producer_epoch, (place,), EPOCH_BUMPS_SINCE
            )
            return code
        return self._coordinator.verify(transactional_id, producer_id, producer_epoch, (place,))[place]
