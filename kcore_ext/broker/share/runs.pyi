from collections.abc import Iterable
from typing import final

StateBatch = tuple[int, int, int, int]
"""A range of offsets with equal state, as (first offset, last offset, delivery state, delivery count)."""

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
    """The delivery states of a share partition as a list of runs. A run is a range of offsets with equal state.

    The runs cover all offsets from `start_offset` to `end_offset`. A subclass defines `lock_expired`.
    """

    @property
    def start_offset(self) -> int:
        """The first offset whose delivery is not complete."""

    @property
    def end_offset(self) -> int:
        """The offset after the last tracked offset."""

    @property
    def complete_count(self) -> int:
        """The number of acknowledged and archived offsets from `start_offset` on."""

    interrupted: bool
    """True while a change of the runs is in progress.

    It stays True if an exception interrupts the change. The state must then be loaded again.
    """

    @property
    def tracked(self) -> int:
        """The number of offsets from `start_offset` to `end_offset`, including offsets whose delivery is complete."""

    @property
    def run_count(self) -> int:
        """The number of runs."""

    def reset(self, start_offset: int, state_batches: Iterable[StateBatch]) -> None:
        """Replaces the whole list by the stored state. Offsets between the batches count as never delivered.

        Raises:
            ValueError: a batch is below the start, inverted, in the wrong order, or has an unknown state.
        """

    def snapshot(self) -> list[tuple[int, int, int, int, bool, str | None]]:
        """Returns the runs as tuples (first offset, last offset, state, delivery count, changing, member).

        `changing` is True while a change of the run is being written. `member` is the id of the member whose lock the
        run has; None: the run has no lock.
        """

    def next_fetch_offset(self) -> int:
        """Returns the first offset that can be acquired; the end offset if no tracked offset can be acquired."""

    def can_acquire(self, max_locks: int) -> bool:
        """Returns True if a tracked offset can be acquired, or if fewer than `max_locks` offsets are tracked."""

    def acquirable(self, first: int, last: int) -> int:
        """Returns the number of acquirable offsets from `first` to `last`. Limits do not affect the result."""

    def settle(self) -> bool:
        """Moves `start_offset` to the first offset whose delivery is not complete. Returns True if it moved."""

    def move_log_start(self, offset: int) -> bool:
        """Removes all offsets below the new start offset of the log.

        Returns False if `start_offset` is already at or above `offset`.
        """

    def drop_locks(self) -> None:
        """Stops all timers and removes all offsets, because another node or a new object now serves the share
        partition.
        """

    def lock_expired(self, lock: Lock) -> None:
        """Releases the records of a lock that has expired. Subclasses implement this method."""
