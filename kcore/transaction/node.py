"""Creates the transaction coordinator of a node, and connects it to the node's log and timers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.runtime.shard import Shard
from kcore.transaction.coordinator import TransactionCoordinator
from kcore.transaction.shard import TOPIC_NAME, TransactionServices, TransactionShard

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.runtime.loader import ShardLog
    from kcore.runtime.shard_services import ShardServices


def make_transaction_coordinator(
    log_of: Callable[[str, int], ShardLog | None], services: ShardServices, transaction: TransactionServices
) -> TransactionCoordinator:
    """Makes the transaction coordinator. It makes its shards once `__transaction_state` exists.

    Args:
        log_of: returns the log of a partition; called with topic and partition number.
        services: the components that all shards of the node use.
        transaction: the components that only transaction shards use.
    """

    def make(index: int) -> Shard[TransactionShard]:
        return services.make_shard(TOPIC_NAME, index, log_of, lambda context: TransactionShard(context, transaction))

    return TransactionCoordinator(make, services.pipeline)
