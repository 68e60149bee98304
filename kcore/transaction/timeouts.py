"""Transactions that take too long are aborted, and their producers fenced.

A timer an id, armed for the first look at the id's transaction and left alone while transactions come and go: when it
fires, it sees whether there is one that is due. Kafka looks at every transaction every
`transaction.abort.timed.out.transaction.cleanup.interval.ms`; the moments here are the same, but nothing is looked at
that is not due.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcore.runtime.machine import Outcome
from kcore.transaction import ending
from kcore.transaction.completion import MarkerTimer
from kcore.transaction.ending import ProducerIdsExhaustedError
from kcore.transaction.states import ONGOING

if TYPE_CHECKING:
    from kcore.transaction.shard import TransactionShard
    from kcore.transaction.transaction import Transaction
    from kcore_ext.runtime.timer_wheel import Timer

logger = logging.getLogger(__name__)


class TransactionTimeout(MarkerTimer):
    """Looks at an id's transaction when it may be due."""

    __slots__ = ()

    def fire(self) -> Outcome | None:
        """Aborts the transaction if it took too long."""
        machine, transactional_id = self.machine, self.transactional_id
        timeouts = machine.timeouts
        timeouts.forget(transactional_id)
        transaction = machine.transactions.get(transactional_id)
        if transaction is None or transaction.state is not ONGOING:
            return None
        wall_ms = machine.now.wall_ms
        if transaction.start_ms + transaction.timeout_ms >= wall_ms:
            timeouts.watch(transactional_id, transaction)
            return None
        logger.info("the transaction of %r took more than %d ms", transactional_id, transaction.timeout_ms)
        try:
            fenced = ending.fence(transaction, machine.services.level(), wall_ms, machine.services.take_producer_id)
        except ProducerIdsExhaustedError:
            timeouts.watch(transactional_id, transaction)
            return None
        return Outcome(machine.block(transactional_id, fenced))


class Timeouts:
    """The timers of one shard's open transactions.

    Args:
        machine: the shard's state machine, which says when to look (`TransactionShardCore.deadline`).
    """

    __slots__ = ("_machine", "_timers")

    def __init__(self, machine: TransactionShard) -> None:
        self._machine = machine
        self._timers: dict[str, Timer] = machine.timers

    def __len__(self) -> int:
        return len(self._timers)

    def watch(self, transactional_id: str, transaction: Transaction) -> None:
        """A transaction is open: somebody must look when its time is over."""
        deadline_ms = self._machine.deadline(transaction)
        timer = self._timers.get(transactional_id)
        if timer is None or timer.deadline_ms > deadline_ms:
            self.arm(transactional_id, deadline_ms)

    def arm(self, transactional_id: str, deadline_ms: int) -> None:
        """The next look at an id is at `deadline_ms` (monotonic); a later one is not needed."""
        timer = self._timers.get(transactional_id)
        if timer is not None:
            timer.cancel()
        timeout = TransactionTimeout(self._machine, transactional_id)
        self._timers[transactional_id] = self._machine.context.schedule(deadline_ms, timeout)

    def forget(self, transactional_id: str) -> None:
        """The timer fired."""
        self._timers.pop(transactional_id, None)

    def cancel(self) -> None:
        """The shard goes: no timer stays behind."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
