from collections.abc import Iterable
from typing import final

StateBatch = tuple[int, int, int, int]
"""A batch of records with equal state: first offset, last offset, delivery state, delivery count."""

@final
class Lock:
    """The lock of all records that one request has acquired or renewed. Its timer calls `RunList.lock_expired`."""

    @property
    def member(self) -> str:
        """The member that may acknowledge the records."""

    @property
    def expired(self) -> bool:
        """True once the timer has fired."""

    def __call__(self) -> None: ...

class RunList:
    """The runs of a share partition, from its start to its end. A subclass defines `lock_expired`."""

    @property
    def start_offset(self) -> int:
        """The first offset whose delivery is not complete."""

    @property
    def end_offset(self) -> int:
        """The offset after the last tracked one."""

    @property
    def complete_count(self) -> int:
        """The number of acknowledged and archived offsets from the start on."""

    torn: bool
    """True while a change of the runs is in progress.

    It stays True if an exception interrupts the change. The state must then be loaded again.
    """

    @property
    def tracked(self) -> int:
        """The number of offsets from the start to the end, including complete ones."""

    @property
    def run_count(self) -> int:
        """The number of runs."""

    def reset(self, start_offset: int, state_batches: Iterable[StateBatch]) -> None:
        """Replaces the whole list by the stored state. Offsets between the batches count as never delivered.

        Raises:
            ValueError: a batch is below the start, inverted, in the wrong order, or has an unknown state.
        """

    def snapshot(self) -> list[tuple[int, int, int, int, bool, str | None]]:
        """Returns the runs as tuples (first offset, last offset, state, delivery count, True while a change is written,
        owner of the lock or None).
        """

    def next_fetch_offset(self) -> int:
        """Returns the first offset that can be acquired; the end offset if no tracked offset can be acquired."""

    def can_acquire(self, max_locks: int) -> bool:
        """Returns False if no tracked offset can be acquired and `max_locks` offsets are already tracked."""

    def acquirable(self, first: int, last: int) -> int:
        """Returns the number of offsets in a range that can be acquired, without regard to limits."""

    def settle(self) -> bool:
        """Moves the start after the leading complete offsets. Returns True if it moved."""

    def move_log_start(self, offset: int) -> bool:
        """Removes all offsets below the new start of the log. Returns False if the start is already at or above it."""

    def drop_locks(self) -> None:
        """Stops all timers and removes all offsets, because another node or a new object now has the share
        partition.
        """

    def lock_expired(self, lock: Lock) -> None:
        """Handles the expiry of a lock. The subclass defines it."""
