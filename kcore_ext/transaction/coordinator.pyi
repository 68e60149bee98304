from collections.abc import Iterable
from typing import Any

from kcore_ext.runtime.clock import Now
from kcore_ext.runtime.shard import ShardCore
from kcore_ext.transaction.transaction import Transaction, TransactionBlock

class LocalMarkersCore:
    """Whoever writes markers to partitions of this node, at once.

    A subclass has `look_up(topic, index)`: a partition's log, and the shard that it is of, or None; None if the
    partition is not here. And `put(log, shard, producer_id, epoch, commit, coordinator_epoch, version)`: writes one
    marker, returns its code.
    """

class TransactionShardCore:
    """The part of `TransactionShard` that every transaction passes through: it begins, its end is decided, markers are
    written, it is complete. What it calls when that goes another way is the shard's own.

    Attributes:
        timers: of open transactions, by transactional id.
        interval_ms: open transactions are looked at at multiples of this.
        live: whether it decides: not while its log is replayed.
    """

    context: Any
    services: Any
    timeouts: Any
    expiry: Any
    now: Now
    transactions: dict[str, Transaction]
    completions: dict[str, Any]
    timers: dict[str, Any]
    interval_ms: int
    live: bool
    def block(self, transactional_id: str, value: Transaction) -> TransactionBlock[Any]:
        """What the log will hold of an id.

        Raises:
            ValueError: it does not fit in a record.
        """

    def add(
        self,
        shard: ShardCore,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: Iterable[tuple[str, int]],
        client_version: int,
    ) -> Any:
        """Adds partitions to a transaction, which may begin it.

        Returns:
            None if that is written; a code if there is nothing to write, or if it was refused.
        """

    def replay(self, offset: int, producer_id: int, key: Any, value: Transaction | None) -> None:
        """Applies one transition."""

    def replay_block(self, first_offset: int, producer_id: int, block: TransactionBlock[Any]) -> None:
        """Applies the transition of a block."""

    def deadline(self, value: Transaction) -> int:
        """When somebody must look whether an open transaction has taken too long, monotonic ms."""

    def await_markers(self, transactional_id: str) -> None:
        """The end of a transaction was decided: `send_markers` is to write what is missing of its markers."""

    def take_prepared(self) -> list[str]:
        """Whoever awaits markers; from here on the caller's business."""

    def send_markers(self) -> None:
        """Begins or goes on with the marker phase of every end that waits for it. Called behind a decision, never in
        one: partitions may answer at once, and what follows from that is decided then.
        """

    def send_markers_of(self, transactional_id: str) -> None:
        """The same for one id; nothing if no end of it is decided."""

class CoordinatorCore:
    """The way from a question about a transactional id to its shard, where that decides now. Every other question goes
    as `TransactionCoordinator.add_generic` and `run_generic` say.

    Attributes:
        shards: the shards; None before there is a topic for them.
        taken: what `add` answers if all is well.
    """

    shards: Any
    taken: Any
    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: Iterable[tuple[str, int]],
        client_version: int,
    ) -> Any:
        """Adds partitions to a transaction, which may begin it.

        What is decided is part of the present commit: whoever goes on with it at once must be part of that too.

        Returns:
            The code.
        """

    def run(self, api: Any, context: Any, transactional_id: str, request: Any) -> Any:
        """Decides a request about an id in its shard; markers of a transaction that it ended follow at once, within
        the same commit where the partitions are of this node.

        Returns:
            The response, or a `Pending`.
        """
