from collections.abc import Iterable
from typing import final

from kcore_ext.broker.share.runs import RunList
from kcore_ext.runtime.timer_wheel import TimerWheel

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
        """The index after the log batch that contains the last acquired record."""

class AcquiringRuns(RunList):
    """The runs whose records can be acquired.

    Several methods take these values as arguments, because the values may change at any time:

    - `wheel`, `deadline_ms`: the timers, and the monotonic time at which a new lock expires.
    - `max_deliveries`: the number of deliveries after which a released record is archived.
    """

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
            batches: consecutive log batches; the first one contains `fetch_offset` or is the next one after it.
            fetch_offset: the result of `next_fetch_offset`.
            wheel: the timers; see the class.
            deadline_ms: see the class.
            max_records: the number of records to acquire. Without `record_limit`, all records of the last log batch are
                acquired.
            batch_size: the size of the ranges into which records that were never delivered are split.
            record_limit: True if `max_records` must not be exceeded (KIP-1206).
            max_locks: the maximum number of offsets whose state may be tracked.
            max_deliveries: see the class.
            aborted: pairs of first and last offset of the batches of aborted transactions, whose records are archived
                instead.
        """
