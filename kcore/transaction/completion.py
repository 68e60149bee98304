"""The marker phase: from the decided end of a transaction to every partition's knowing of it.

It begins again at every load: a prepared end in the log is all that it needs. Partitions that had their marker before
get another one, which finds nothing open and does no harm.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcore.runtime.machine import Outcome
from kcore.runtime.shard import ShardTimer
from kcore.transaction import ending
from kcore.transaction.markers import DROPPED, GIVEN_UP, RETRIED, Marker
from kcore.transaction.states import PREPARE_COMMIT

if TYPE_CHECKING:
    from kcore.transaction.markers import Results
    from kcore.transaction.shard import TransactionShard

logger = logging.getLogger(__name__)

RETRY_MS = 20
RETRY_MAX_MS = 1_000
"""Partitions that could not be reached are asked again after this long at first, and at last."""


class Completion:
    """The markers of one transaction that was prepared.

    Args:
        machine: the shard's state machine.
        transactional_id: whose transaction.

    Attributes:
        outstanding: partitions without a marker.
        given_up: a partition knows a newer producer or coordinator: this transaction is not ours to complete. It stays
            as it is until its shard is loaded again.
    """

    __slots__ = ("_generation", "_machine", "_marker", "_retry_ms", "given_up", "outstanding", "transactional_id")

    def __init__(self, machine: TransactionShard, transactional_id: str) -> None:
        transaction = machine.transactions[transactional_id]
        shard = machine.context.shard
        self.transactional_id = transactional_id
        self.outstanding = set(transaction.topic_partitions())
        self.given_up = False
        self._machine = machine
        self._generation = shard.generation
        self._retry_ms = RETRY_MS
        self._marker = Marker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is PREPARE_COMMIT,
            shard.leader_epoch,
            transaction.client_version,
        )

    @property
    def _current(self) -> bool:
        """Whether this coordinator still owns the id: another one begins anew with what the log says."""
        current: bool = self._machine.context.shard.generation == self._generation
        return current

    def proceed(self) -> None:
        """Writes what is missing; completes the transaction if nothing is."""
        if self.given_up or not self._current:
            return
        outstanding = self.outstanding
        if outstanding:
            topics = self._machine.services.topics
            for place in list(outstanding):
                topic = topics.by_name(place[0])
                if topic is None or place[1] >= topic.partitions:
                    outstanding.discard(place)  # deleted, and with it whatever was written in the transaction
        if outstanding:
            self._machine.services.markers.write(self._marker, list(outstanding), self.arrived)
        else:
            self._complete()

    def arrived(self, results: Results) -> None:
        """Partitions answered."""
        if self.given_up or not self._current:
            return
        failed = False
        for place, code in results.items():
            if code in DROPPED:
                self.outstanding.discard(place)
            elif code in RETRIED:
                failed = True
            else:
                self.given_up = True
                say = logger.info if code in GIVEN_UP else logger.error
                say("the end of %r cannot be written to %s-%d: %s", self.transactional_id, *place, code.name)
        if self.given_up:
            return
        if failed:
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
    """A timer of a transactional id that may have markers sent. They go out behind the decision, not within it: what
    the partitions answer is another one.
    """

    __slots__ = ("machine", "transactional_id")

    def __init__(self, machine: TransactionShard, transactional_id: str) -> None:
        self.machine = machine
        self.transactional_id = transactional_id

    def __call__(self) -> None:
        """The time came."""
        super().__call__()
        self.machine.send_markers()


class MarkerRetry(MarkerTimer):
    """Partitions that could not be reached are asked again."""

    __slots__ = ()

    def fire(self) -> None:
        """Nothing to write: the end was decided before."""
        self.machine.await_markers(self.transactional_id)
