"""The transaction shard: the state machine of one partition of `__transaction_state`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kcore.protocol.records import TRANSACTION_STATE, UnknownRecord, decode_key
from kcore.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from kcore.runtime.machine import Outcome, Record
from kcore.transaction.completion import Completion
from kcore.transaction.expiry import ExpiryTimer
from kcore.transaction.states import COMPLETION, EMPTY, ONGOING, PREVIOUS
from kcore.transaction.timeouts import Timeouts
from kcore.transaction.transaction import Transaction

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.config import Config
    from kcore.runtime.machine import ShardContext
    from kcore.runtime.topics import TopicImage
    from kcore.transaction.ending import TakeProducerId
    from kcore.transaction.markers import MarkerWriter
    from kcore_ext.timer_wheel import Timer

TOPIC_NAME = TRANSACTION_STATE
"""The internal topic whose partitions are transaction shards."""


class Services:
    """What every transaction shard of a node needs of the rest of it.

    Args:
        config: the node's settings.
        topics: the cluster's topics.
        take_producer_id: gives a producer id; None while there is none. Whatever is answered with it must wait for a
            commit.
        markers: writes end markers to partitions.
        level: the cluster's transaction.version.
    """

    __slots__ = ("config", "level", "markers", "take_producer_id", "topics")

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


class TransactionShard:
    """The transactional ids of one partition of `__transaction_state`.

    Args:
        context: time, timers and answers of the shard this machine lives in.
        services: what it needs of the rest of the node.

    Attributes:
        transactions: every transactional id as of its last transition.
        completions: the marker phases under way. Soft: they begin again at a load.
        timeouts: timers of open transactions.
        expiry: the timer of the next look for unused ids.
        now: the time of the present round.
    """

    __slots__ = (
        "_live",
        "_prepared",
        "completions",
        "context",
        "expiry",
        "now",
        "services",
        "timeouts",
        "transactions",
    )

    def __init__(self, context: ShardContext, services: Services) -> None:
        self.context = context
        self.services = services
        self.now: Now = context.now
        self.transactions: dict[str, Transaction] = {}
        self.completions: dict[str, Completion] = {}
        self.timeouts = Timeouts(self, services.config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
        self.expiry: Timer | None = None
        self._prepared: list[str] = []  # ends that were decided, and whose markers are to be sent
        self._live = False

    def record(self, transactional_id: str, transaction: Transaction | None) -> Record:
        """What the log will hold of an id; None: it is forgotten."""
        return Record(
            TransactionLogKey(transactional_id=transactional_id), transaction, 1 if self.services.level() >= 1 else 0
        )

    # ---- StateMachine

    def replay(self, offset: int, producer_id: int, key: TransactionLogKey, value: Transaction | None) -> None:
        """Applies one transition."""
        transactional_id = key.transactional_id
        if value is None:
            self.transactions.pop(transactional_id, None)
            return
        if self._live:
            self._transition(transactional_id, value)
        self.transactions[transactional_id] = value

    def _transition(self, transactional_id: str, value: Transaction) -> None:
        """The one gate of every change of state."""
        before = self.transactions.get(transactional_id)
        state = value.state
        if before is None:
            assert state is EMPTY, f"{transactional_id!r} begins as {state.name}"
        else:
            assert before.state in PREVIOUS[state], f"{transactional_id!r}: {before.state.name} -> {state.name}"
            assert value.producer_id != before.producer_id or value.producer_epoch >= before.producer_epoch, (
                f"{transactional_id!r}: epoch {before.producer_epoch} -> {value.producer_epoch}"
            )
        if state is ONGOING:
            if before is None or before.state is not ONGOING:
                self.timeouts.watch(transactional_id, value)
        elif state in COMPLETION:
            self.await_markers(transactional_id)
        elif before is not None and before.state in COMPLETION:
            self.completions.pop(transactional_id, None)

    def replay_marker(self, offset: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """A marker that somebody wrote to this topic by hand: no transaction writes here, so none ends."""

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
        """A record, typed; None for a type of key that is not known (it is skipped, as in Kafka)."""
        if key is None:
            return None
        typed = decode_key(TOPIC_NAME, key)
        if isinstance(typed, UnknownRecord):
            return None
        return typed, None if value is None else Transaction.of_record(TransactionLogValue.decode_value(value))

    def on_loaded(self) -> None:
        """Decided ends are completed, open transactions get what is left of their time (it went on meanwhile)."""
        self._live = True
        for transactional_id, transaction in self.transactions.items():
            if transaction.state is ONGOING:
                self.timeouts.watch(transactional_id, transaction)
            elif transaction.state in COMPLETION:
                self.await_markers(transactional_id)
        if self._prepared:
            self.context.in_slices(self._resume())
        ExpiryTimer(self).arm()

    def _resume(self) -> Iterator[Outcome | None]:
        prepared, self._prepared = self._prepared, []
        for transactional_id in prepared:
            self._send(transactional_id)
            yield None

    def on_unloaded(self) -> None:
        """Timers go, and marker phases with them: whoever loads the log next begins them again."""
        self._live = False
        self.timeouts.cancel()
        if self.expiry is not None:
            self.expiry.cancel()
        self._prepared.clear()
        self.completions.clear()

    # ---- markers

    def await_markers(self, transactional_id: str) -> None:
        """The end of a transaction was decided: `send_markers` is to write what is missing of its markers."""
        self._prepared.append(transactional_id)

    def send_markers(self) -> None:
        """Begins or goes on with the marker phase of every end that waits for it. Called behind a decision, never in
        one: partitions may answer at once, and what follows from that is decided then."""
        while self._prepared:
            prepared, self._prepared = self._prepared, []
            for transactional_id in prepared:
                self._send(transactional_id)

    def _send(self, transactional_id: str) -> None:
        transaction = self.transactions.get(transactional_id)
        if not self._live or transaction is None or transaction.state not in COMPLETION:
            return
        completion = self.completions.get(transactional_id)
        if completion is None:
            completion = self.completions[transactional_id] = Completion(self, transactional_id)
        completion.proceed()
