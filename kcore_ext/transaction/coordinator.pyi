from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from kcore_ext.runtime.clock import Now
from kcore_ext.runtime.shard import ShardCore
from kcore_ext.transaction.transaction import Transaction, TransactionBlock

class LocalMarkersCore:
    """The compiled base of `LocalMarkers`, which writes markers to partitions of this node."""

    @abstractmethod
    def look_up(self, topic: str, index: int) -> tuple[Any, ShardCore | None] | None:
        """Returns a partition together with the shard that owns it; None if this node does not have the partition.

        In the result, the shard is None for a partition that belongs to no shard.
        """

class TransactionCounters:
    """The numbers of ended transactions on a node since it was opened.

    Attributes:
        commits: transactions that were prepared to commit.
        aborts: transactions that were prepared to abort, for any reason.
        timeouts: aborted transactions that exceeded their timeout.
    """

    commits: int
    aborts: int
    timeouts: int

class TransactionShardCore:
    """The compiled base of `TransactionShard`: the steps of every transaction.

    It begins a transaction, writes the markers of a prepared transaction, and completes it. For all other steps it
    calls the abstract methods.

    Attributes:
        timers: the timers of open transactions by transactional id.
        interval_ms: the time in ms between two checks of timeouts. Checks happen at multiples of this time.
        live: True if the shard handles requests; False during a load.
        counters: counts ends of transactions; a new object unless the subclass sets it.
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
    counters: TransactionCounters
    def count(self, status: int) -> int:
        """Returns the number of transactional ids in a state."""

    def block(self, transactional_id: str, value: Transaction) -> TransactionBlock[Any]:
        """Returns the record of a transactional id as a `TransactionBlock`.

        Raises:
            ValueError: the value does not fit in a record.
        """

    def add(
        self,
        shard: ShardCore,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[tuple[str, int]],
        client_version: int,
    ) -> Any:
        """Adds partitions to a transaction. The first addition begins the transaction.

        Returns:
            None if the shard wrote a record. Otherwise an error code, or NONE if the transaction already has all the
            partitions.
        """

    def replay(self, offset: int, producer_id: int, key: Any, value: Transaction | None) -> None:
        """Applies the change of a transactional id that one record contains."""

    def replay_block(self, first_offset: int, producer_id: int, block: TransactionBlock[Any]) -> None:
        """Applies the change of a transactional id that a block contains."""

    def deadline(self, value: Transaction) -> int:
        """Returns the time at which the timeout of an open transaction is checked, in monotonic ms."""

    def await_markers(self, transactional_id: str) -> None:
        """Queues a prepared transaction, so that `send_markers` writes its missing markers."""

    def take_prepared(self) -> list[str]:
        """Returns the queued transactional ids, and empties the queue."""

    def send_markers(self) -> None:
        """Begins or continues writing the markers of every queued id.

        Call this method after a decision, never inside a decision. Partitions on this node return their codes at once,
        which causes another decision.
        """

    def send_markers_of(self, transactional_id: str) -> None:
        """Begins or continues writing the markers of one id. Does nothing unless its transaction is prepared."""

    @abstractmethod
    def complete_later(self, transactional_id: str, results: Any) -> None:
        """Starts writing the missing markers of a prepared transaction that was not completed in its own commit."""

class CoordinatorCore:
    """The compiled base of `TransactionCoordinator`: passes requests to the shard of a transactional id.

    If that shard is not active, it calls `TransactionCoordinator.add_generic` or `run_generic`.

    Attributes:
        shards: the shards; None before their topic exists.
        taken: the code that `add` returns on success.
    """

    shards: Any
    taken: Any
    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[tuple[str, int]],
        client_version: int,
    ) -> Any:
        """Adds partitions to a transaction. The first addition begins the transaction.

        The coordinator's record belongs to the current round. If the caller writes records before that round is
        committed, these records must belong to the same round.

        Returns:
            The error code; `taken` on success.
        """

    def run(self, api: Any, context: Any, transactional_id: str, request: Any) -> Any:
        """Handles a request in the shard of its transactional id.

        If the request ends a transaction, this call also writes the markers for partitions of this node, as a part of
        the same commit.

        Returns:
            The response, or a `Pending`.
        """

    @abstractmethod
    def add_generic(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[tuple[str, int]],
        client_version: int,
    ) -> Any:
        """Adds partitions like `add`. Returns an error code if this node has no active shard for the id."""

    @abstractmethod
    def run_generic(self, api: Any, context: Any, transactional_id: str, request: Any) -> Any:
        """Handles a request like `run`. Returns an error response if this node has no active shard for the id."""

    @abstractmethod
    def add_failed(self, shard: Any, transactional_id: str, error: Exception) -> Any:
        """Returns the code for an addition that raised an unexpected error."""

    @abstractmethod
    def refused(self, code: int) -> Any:
        """Converts the result of an addition that wrote no record to an error code or NONE."""
