"""Writes the end markers of a prepared transaction to every partition, and completes the transaction.

This marker phase begins again at every load, from the prepared record in the log. A partition that already has its
marker gets a second one, which finds no open transaction and changes nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcore.runtime.machine import Outcome
from kcore.runtime.shard_timer import ShardTimer
from kcore.transaction import ending
from kcore.transaction.markers import DROPPED, GIVEN_UP, RETRIED, Marker
from kcore.transaction.states import PREPARE_COMMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcore.protocol.topic_partition import PartitionTuple
    from kcore.transaction.markers import Results
    from kcore.transaction.shard import TransactionShard

logger = logging.getLogger(__name__)

RETRY_MS = 20
RETRY_MAX_MS = 1_000
"""Maximum delay in ms before a retry to write markers. The first delay is `RETRY_MS`. It doubles with each retry."""

MARKERS_PER_SLICE = 500
"""Maximum number of markers of one slice. The node serves other requests before it writes further markers."""


class Completion:
    """The marker phase of one prepared transaction.

    Args:
        machine: the shard's state machine.
        transactional_id: the id whose transaction ends.

    Attributes:
        outstanding: partitions without a marker.
        given_up: True if a partition refused the marker permanently, for example because it has seen a newer epoch of
            the producer or the coordinator. The transaction then stays prepared until its shard is loaded again.
    """

    __slots__ = (
        "_failed",
        "_generation",
        "_in_flight",
        "_machine",
        "_marker",
        "_retry_ms",
        "_unsent",
        "given_up",
        "outstanding",
        "transactional_id",
    )

    def __init__(self, machine: TransactionShard, transactional_id: str) -> None:
        transaction = machine.transactions[transactional_id]
        shard = machine.context.shard
        self.transactional_id = transactional_id
        self.outstanding = set(transaction.topic_partitions())
        self.given_up = False
        self._machine = machine
        self._generation = shard.generation
        self._retry_ms = RETRY_MS
        self._unsent: list[PartitionTuple] = []  # outstanding partitions that the current attempt has not reached
        self._in_flight: set[PartitionTuple] = set()  # partitions whose codes have not arrived
        self._failed = False  # True if a partition of the current attempt must be tried again
        self._marker = Marker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is PREPARE_COMMIT,
            shard.leader_epoch,
            transaction.client_version,
        )

    @property
    def _current(self) -> bool:
        """True until the shard is unloaded or loaded again. A load starts a new marker phase."""
        current: bool = self._machine.context.shard.generation == self._generation
        return current

    def proceed(self) -> None:
        """Writes the next missing markers, or completes the transaction if none is missing.

        If there are many markers, the method writes them in slices. If the commit of a round with markers fails, the
        shard loads its log again, which restarts the marker phase. Without the reload, the coordinator could record the
        completion of a transaction whose marker was lost.

        A partition gets no second marker before it has responded to the first marker. Otherwise the second marker could
        arrive after the completion and end the producer's next transaction, which may have the same epoch.
        """
        if self.given_up or not self._current:
            return
        if not self._unsent:
            if self._in_flight:
                return
            # sorted, because the order of hashes would make simulations unrepeatable
            self._unsent = sorted(self.outstanding)
            self._failed = False
        part = self._existing(self._unsent[-MARKERS_PER_SLICE:])
        del self._unsent[-MARKERS_PER_SLICE:]
        if self._unsent:
            self._machine.context.in_slices(self._next_slice())
        if part:
            self._in_flight.update(part)
            try:
                self._machine.context.shard.join_round()
                self._machine.services.markers.write(self._marker, part, self.arrived)
            except BaseException:
                self._in_flight.difference_update(part)
                raise
        else:
            self._end_attempt()

    def _next_slice(self) -> Iterator[None]:
        self._machine.await_markers(self.transactional_id)
        self._machine.send_markers()
        yield

    def _existing(self, partitions: list[PartitionTuple]) -> list[PartitionTuple]:
        """Returns the partitions that exist.

        A deleted partition needs no marker: its records of the transaction are deleted too.
        """
        topics = self._machine.services.topics
        existing = []
        for name, index in partitions:
            topic = topics.by_name(name)
            if topic is None or index >= topic.partitions:
                self.outstanding.discard((name, index))
            else:
                existing.append((name, index))
        return existing

    def arrived(self, results: Results) -> None:
        """Processes the codes that partitions have returned; completes the transaction, or schedules a retry."""
        if self.given_up or not self._current:
            return
        for partition, code in results.items():
            self._in_flight.discard(partition)
            if code in DROPPED:
                self.outstanding.discard(partition)
            elif code in RETRIED:
                self._failed = True
            else:
                self.given_up = True
                log = logger.info if code in GIVEN_UP else logger.error
                log(
                    "transaction coordinator: the end marker of transactional id %r could not be written to partition "
                    "%s-%d: %s; the transaction stays prepared until the shard of the transactional id is loaded again",
                    self.transactional_id,
                    *partition,
                    code.name,
                )
        self._end_attempt()

    def _end_attempt(self) -> None:
        """Schedules a retry if the attempt failed; completes the transaction if no marker is missing."""
        if self.given_up or self._unsent or self._in_flight:
            return
        if self._failed:
            self._retry()
        elif not self.outstanding:
            self._complete()

    def _retry(self) -> None:
        context = self._machine.context
        context.schedule(context.now.now_ms + self._retry_ms, MarkerRetry(self._machine, self.transactional_id))
        self._retry_ms = min(2 * self._retry_ms, RETRY_MAX_MS)

    def _complete(self) -> None:
        if self._machine.context.shard.perform(self._completed) is not None:
            self._retry()

    def _completed(self) -> Outcome:
        machine = self._machine
        transaction = machine.transactions[self.transactional_id]
        completed = ending.complete(transaction, machine.now.wall_ms)
        return Outcome(machine.block(self.transactional_id, completed))


class MarkerTimer(ShardTimer):
    """A timer of a transactional id that may prepare the end of a transaction.

    After the timer has prepared the end, it starts to write the markers of the transaction. The coordinator completes
    the transaction when all partitions have responded.
    """

    __slots__ = ("machine", "transactional_id")

    def __init__(self, machine: TransactionShard, transactional_id: str) -> None:
        self.machine = machine
        self.transactional_id = transactional_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.transactional_id}>"

    def __call__(self) -> None:
        """Fires the timer, then writes the markers of prepared transactions."""
        super().__call__()
        self.machine.send_markers()


class MarkerRetry(MarkerTimer):
    """The timer after which the missing markers of a transactional id are written again."""

    __slots__ = ()

    def fire(self) -> None:
        """Queues the id for the marker phase. Writes no record, because the end is decided already."""
        self.machine.await_markers(self.transactional_id)
