"""The transaction shard: the state machine of one partition of `__transaction_state`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.protocol.records import TRANSACTION_STATE, UnknownRecord, decode_key
from kcore.protocol.records.transaction_log import TransactionLogValue
from kcore.runtime.machine import Outcome, Record
from kcore.transaction.completion import Completion
from kcore.transaction.expiry import ExpiryTimer
from kcore.transaction.states import COMPLETION, ONGOING
from kcore.transaction.timeouts import Timeouts
from kcore.transaction.transaction import of_value, record_of
from kcore_ext.transaction.coordinator import TransactionCounters, TransactionShardCore

if TYPE_CHECKING:
    from kcore.config.node import Config
    from kcore.runtime.machine import ShardContext
    from kcore.runtime.topics import TopicImage
    from kcore.transaction.ending import TakeProducerId
    from kcore.transaction.markers import MarkerWriter, Results

TIMERS_PER_SLICE: Final = 5_000
"""Number of timers that one slice arms for open transactions after a load."""

TOPIC_NAME = TRANSACTION_STATE
"""The internal topic whose partitions are transaction shards."""


class TransactionServices:
    """The components of a node that its transaction shards use.

    Args:
        config: the node's settings.
        topics: the cluster's topics.
        take_producer_id: returns a producer id; None while none is available. A response with the id must wait for a
            commit.
        markers: writes end markers to partitions.
        level: returns the cluster's transaction.version.

    Attributes:
        counters: counts the ends of transactions in all shards.
        make_record: makes the record of a transactional id from a `TransactionBlock`, the compiled form of this record.
    """

    __slots__ = ("config", "counters", "level", "make_record", "markers", "take_producer_id", "topics")

    def __init__(
        self,
        config: Config,
        topics: TopicImage,
        take_producer_id: TakeProducerId,
        markers: MarkerWriter,
        level: Callable[[], int],
    ) -> None:
        self.config = config
        self.topics = topics
        self.take_producer_id = take_producer_id
        self.markers = markers
        self.level = level
        self.make_record = record_of
        self.counters = TransactionCounters()


class TransactionShard(TransactionShardCore):
    """The transactional ids of one partition of `__transaction_state`.

    The compiled base class `TransactionShardCore` implements the transitions of transactions. This class implements
    loading, unloading and the marker phases.

    Args:
        context: time, timers and responses of the shard that owns this machine.
        services: the components of the node that the shard uses.

    Attributes:
        transactions: the current state of every transactional id.
        completions: the running marker phases by transactional id. No record stores them; a load begins them again.
        timeouts: the timers of open transactions.
        expiry: the timer of the next expiry run.
        now: the time of the current round.
    """

    __slots__ = ()

    completions: dict[str, Completion]

    def __init__(self, context: ShardContext, services: TransactionServices) -> None:
        self.context = context
        self.services = services
        self.counters = services.counters
        self.now = context.now
        self.interval_ms = services.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self.timeouts = Timeouts(self)
        self.expiry = None

    def tombstone(self, transactional_id: str) -> Record:
        """Returns the tombstone of a transactional id."""
        return record_of(transactional_id, None, 0)

    # ---- StateMachine

    def replay_marker(self, offset: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Ignores a marker: no transaction writes to this topic, so only an operator can have written one."""

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
        """Decodes a record; returns None for an unknown type of key, which is skipped as in Kafka."""
        if key is None:
            return None
        typed = decode_key(TOPIC_NAME, key)
        if isinstance(typed, UnknownRecord):
            return None
        return typed, None if value is None else of_value(TransactionLogValue.decode_value(value))

    def on_loaded(self) -> None:
        """Resumes the marker phase of prepared transactions, and arms timers for the remaining timeouts of open
        transactions.

        If there are many open transactions, further timers are armed in slices.
        """
        self.live = True
        prepared = False
        ongoing: list[str] = []
        for transactional_id, transaction in self.transactions.items():
            if transaction.state is ONGOING:
                ongoing.append(transactional_id)
            elif transaction.state in COMPLETION:
                self.await_markers(transactional_id)
                prepared = True
        if prepared:
            self.context.in_slices(self._resume())
        self._watch(ongoing[:TIMERS_PER_SLICE])
        if len(ongoing) > TIMERS_PER_SLICE:
            self.context.in_slices(self._watch_others(ongoing))
        ExpiryTimer(self).arm()

    def _watch(self, transactional_ids: list[str]) -> None:
        for transactional_id in transactional_ids:
            transaction = self.transactions.get(transactional_id)
            if transaction is not None and transaction.state is ONGOING:
                self.timeouts.watch(transactional_id, transaction)

    def _watch_others(self, transactional_ids: list[str]) -> Iterator[None]:
        for first in range(TIMERS_PER_SLICE, len(transactional_ids), TIMERS_PER_SLICE):
            self._watch(transactional_ids[first : first + TIMERS_PER_SLICE])
            yield

    def _resume(self) -> Iterator[Outcome | None]:
        for transactional_id in self.take_prepared():
            self.send_markers_of(transactional_id)
            yield None

    def on_unloaded(self) -> None:
        """Cancels timers and marker phases; the next load begins them again."""
        self.live = False
        self.timeouts.cancel()
        if self.expiry is not None:
            self.expiry.cancel()
        self.take_prepared()
        self.completions.clear()

    # ---- marker phases that do not end immediately

    def complete_later(self, transactional_id: str, results: Results | None) -> None:
        """Starts the marker phase of a prepared transaction that could not be completed in its own commit.

        Args:
            transactional_id: the id whose transaction ends.
            results: the codes of its partitions; None if no marker was written yet.
        """
        completion = self.completions[transactional_id] = Completion(self, transactional_id)
        if results is None:
            completion.proceed()
        else:
            self.context.shard.join_round()  # if the round with these markers fails, the load writes them again
            completion.arrived(results)
