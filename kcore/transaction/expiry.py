"""Expires transactional ids that were idle for `transactional.id.expiration.ms`, in slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kcore.runtime.machine import Outcome, Record
from kcore.runtime.shard_timer import ShardTimer
from kcore.transaction.states import MAY_EXPIRE

if TYPE_CHECKING:
    from kcore.transaction.shard import TransactionShard

SLICE_IDS = 1_000
"""The number of ids that one slice checks."""

SLICE_BYTES = 16_384
"""Approximate maximum size in bytes of the tombstones that one slice writes, as in Kafka."""

RECORD_BYTES = 32
MAX_CHAR_BYTES = 4


def expire(machine: TransactionShard) -> Iterator[Outcome | None]:
    """Yields one item for each slice: the `Outcome` with the tombstones of its idle ids, or None if there are none."""
    remaining = SLICE_IDS
    size_bytes = 0
    records: list[Record] = []
    oldest_ms = machine.now.wall_ms - machine.services.config.transactional_id_expiration_ms
    for transactional_id in list(machine.transactions):
        transaction = machine.transactions.get(transactional_id)
        if transaction is not None and transaction.last_update_ms <= oldest_ms and transaction.state in MAY_EXPIRE:
            records.append(machine.tombstone(transactional_id))
            size_bytes += RECORD_BYTES + MAX_CHAR_BYTES * len(transactional_id)
        remaining -= 1
        if not remaining or size_bytes >= SLICE_BYTES:
            yield Outcome(records) if records else None
            remaining, size_bytes, records = SLICE_IDS, 0, []
            oldest_ms = machine.now.wall_ms - machine.services.config.transactional_id_expiration_ms
    if records:
        yield Outcome(records)


class ExpiryTimer(ShardTimer):
    """A periodic timer that expires unused ids."""

    __slots__ = ("_machine", "_running")

    def __init__(self, machine: TransactionShard) -> None:
        self._machine = machine
        self._running = False

    def arm(self) -> None:
        """Arms the timer for one interval from now."""
        machine = self._machine
        interval_ms = machine.services.config.transaction_remove_expired_transaction_cleanup_interval_ms
        machine.expiry = machine.context.schedule(machine.now.now_ms + interval_ms, self)

    def fire(self) -> None:
        """Starts an expiry run, unless the previous one is still running."""
        self.arm()
        if not self._running and self._machine.transactions:
            self._running = True
            self._machine.context.in_slices(self._expire())

    def _expire(self) -> Iterator[Outcome | None]:
        try:
            yield from expire(self._machine)
        finally:
            self._running = False
