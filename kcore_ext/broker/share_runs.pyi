from collections.abc import Iterable, Sequence
from typing import Any, final

from kcore_ext.runtime.timer_wheel import TimerWheel

StateBatch = tuple[int, int, int, int]
"""First offset, last offset, delivery state, delivery count."""

@final
class Lock:
    """The lock of all records that one request has acquired or renewed. Its timer calls `ShareRuns.lock_expired`."""

    @property
    def member(self) -> str:
        """The member that may acknowledge the records."""

    @property
    def expired(self) -> bool:
        """True once the timer has fired."""

    def __call__(self) -> None: ...

@final
class Change:
    """Acknowledged or released records whose new state is being written."""

    @property
    def state_batches(self) -> list[StateBatch]:
        """The new state, ascending within each acknowledgement; empty if there is nothing to write."""

@final
class Acquired:
    """The result of an acquisition."""

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """The acquired ranges, ascending: first offset, last offset, delivery count."""

    @property
    def count(self) -> int:
        """The number of acquired offsets."""

    @property
    def first_batch(self) -> int:
        """The index of the log batch that contains the first acquired record."""

    @property
    def stop_batch(self) -> int:
        """The index behind the log batch that contains the last acquired record."""

class ShareRuns:
    """The delivery state of a share partition's offsets, from its start to its end.

    A subclass defines `lock_expired`. The time and the limits are arguments, since they may change at any time:

    - `wheel`, `deadline_ms`: the timers, and the monotonic time at which a new lock expires.
    - `max_deliveries`: the number of deliveries after which a released record is archived.
    """

    @property
    def start_offset(self) -> int:
        """The first offset whose delivery is not complete."""

    @property
    def end_offset(self) -> int:
        """The offset behind the last tracked one."""

    @property
    def complete_count(self) -> int:
        """The number of acknowledged and archived offsets from the start on."""

    @property
    def tracked(self) -> int:
        """The number of offsets from the start to the end, with those that are complete."""

    @property
    def run_count(self) -> int:
        """The number of runs."""

    def reset(self, start_offset: int, state_batches: Iterable[StateBatch]) -> None:
        """Replaces everything by the stored state. Offsets between the batches count as never delivered.

        Raises:
            ValueError: a batch is below the start, inverted, in the wrong order, or has an unknown state.
        """

    def snapshot(self) -> list[tuple[int, int, int, int, bool, str | None]]:
        """Returns the runs: first and last offset, state, delivery count, being written, owner of the lock."""

    def next_fetch_offset(self) -> int:
        """Returns the first offset that can be acquired; the end if no tracked one can."""

    def can_acquire(self, max_locks: int) -> bool:
        """Returns False if no tracked offset can be acquired, and `max_locks` offsets are tracked."""

    def acquirable(self, first: int, last: int) -> int:
        """Returns the number of offsets in a range that can be acquired, without regard to limits."""

    def settle(self) -> bool:
        """Moves the start behind the leading complete offsets. Returns True if it moved."""

    def move_log_start(self, offset: int) -> bool:
        """Forgets all offsets below the new start of the log. Returns False if the start is already there."""

    def acquire(
        self,
        member: str,
        batches: list[bytes],
        fetch_offset: int,
        wheel: TimerWheel,
        deadline_ms: int,
        *,
        max_records: int,
        batch_size: int,
        record_limit: bool,
        max_locks: int,
        max_deliveries: int,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> Acquired:
        """Acquires records of log batches for a member.

        Args:
            member: the member.
            batches: log batches without a break, from the one on that contains `fetch_offset` or follows it.
            fetch_offset: the result of `next_fetch_offset`.
            wheel: see the class.
            deadline_ms: see the class.
            max_records: the number of records to acquire. Without `record_limit`, the last log batch is taken whole.
            batch_size: the size of the ranges into which records that were never delivered are split.
            record_limit: `max_records` is exact (KIP-1206).
            max_locks: the number of offsets that may be tracked.
            max_deliveries: see the class.
            aborted: first and last offsets of batches of aborted transactions, which are archived instead.
        """

    def acknowledge(
        self,
        member: str,
        batches: Sequence[Any],
        wheel: TimerWheel,
        deadline_ms: int,
        *,
        max_deliveries: int,
        allow_renew: bool,
    ) -> Change | int:
        """Begins to acknowledge records. Either all batches are valid, or nothing changes, except for renewed locks.

        Args:
            member: the member.
            batches: the acknowledgement batches of a request, whose types are valid.
            wheel: see the class.
            deadline_ms: the time at which renewed locks expire.
            max_deliveries: see the class.
            allow_renew: the group allows renewals (KIP-1222).

        Returns:
            The change, to be written and then passed to `finish`; or the code of the first error.
        """

    def release(self, member: str, max_deliveries: int) -> Change:
        """Begins to release all records that a member has acquired. Returns the change, as `acknowledge` does."""

    def finish(self, change: Change, written: bool, max_deliveries: int) -> tuple[bool, bool]:
        """Ends a change: applies it if it was written, else takes it back.

        Returns:
            Two flags: the start moved, records became available.
        """

    def expire(self, lock: Lock, max_deliveries: int) -> list[list[StateBatch]]:
        """Releases the records of an expired lock. Returns their new state, as a list of writes.

        As in Kafka, each range has a write of its own. If requests have divided the range in which records were first
        acquired, each record has one. From 100 writes on, one has the rest.
        """

    def drop_locks(self) -> None:
        """Stops all timers and forgets all offsets: another node, or a new object, now has the share partition."""

    def lock_expired(self, lock: Lock) -> None:
        """Handles the expiry of a lock. The subclass defines it."""
