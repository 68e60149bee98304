"""Aborts transactions that exceed their timeout, and fences their producers.

Each id with an open transaction has one timer. Later transactions of the id do not re-arm the timer: when it fires, it
checks whether the current transaction has timed out. Kafka checks every transaction every
`transaction.abort.timed.out.transaction.cleanup.interval.ms`. kcore aborts at the same moments, and checks only the ids
whose timers fire.
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
    """The timer of an id, which checks whether the open transaction has exceeded its timeout."""

    __slots__ = ()

    def fire(self) -> Outcome | None:
        """Aborts the transaction if it exceeded its timeout."""
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
        logger.info(
            "transaction coordinator: the transaction of transactional id %r exceeded its timeout of %d ms; kcore "
            "aborts the transaction and fences its producer",
            transactional_id,
            transaction.timeout_ms,
        )
        try:
            fenced = ending.fence(transaction, machine.services.level(), wall_ms, machine.services.take_producer_id)
        except ProducerIdsExhaustedError:
            timeouts.watch(transactional_id, transaction)
            return None
        machine.counters.timeouts += 1
        return Outcome(machine.block(transactional_id, fenced))


class Timeouts:
    """The timers of one shard's open transactions.

    Args:
        machine: the shard's state machine; `TransactionShardCore.deadline` gives the deadlines.
    """

    __slots__ = ("_machine", "_timers")

    def __init__(self, machine: TransactionShard) -> None:
        self._machine = machine
        self._timers: dict[str, Timer] = machine.timers

    def __len__(self) -> int:
        return len(self._timers)

    def watch(self, transactional_id: str, transaction: Transaction) -> None:
        """Arms a timer for the deadline of an open transaction, unless a timer with an earlier deadline is armed."""
        deadline_ms = self._machine.deadline(transaction)
        timer = self._timers.get(transactional_id)
        if timer is None or timer.deadline_ms > deadline_ms:
            self.arm(transactional_id, deadline_ms)

    def arm(self, transactional_id: str, deadline_ms: int) -> None:
        """Arms a timer of an id for `deadline_ms` (monotonic). Replaces the earlier timer of the id, if any."""
        timer = self._timers.get(transactional_id)
        if timer is not None:
            timer.cancel()
        timeout = TransactionTimeout(self._machine, transactional_id)
        self._timers[transactional_id] = self._machine.context.schedule(deadline_ms, timeout)

    def forget(self, transactional_id: str) -> None:
        """Removes the timer of an id, after it fired."""
        self._timers.pop(transactional_id, None)

    def cancel(self) -> None:
        """Cancels all timers, when the shard is unloaded."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
