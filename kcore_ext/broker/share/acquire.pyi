from collections.abc import Iterable
from typing import final

from kcore_ext.broker.share.runs import RunList
from kcore_ext.runtime.timer_wheel import TimerWheel

@final
class Acquired:
    """The result of `AcquiringRuns.acquire`."""

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
    """A `RunList` from which members can acquire records.

    Several methods have these parameters, because the values may differ from call to call:

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
            member: the member that acquires the records.
            batches: consecutive log batches. The first batch contains `fetch_offset`, or begins after it if there are
                no records in between.
            fetch_offset: the result of `next_fetch_offset`.
            wheel: see the class.
            deadline_ms: see the class.
            max_records: the number of acquired records after which the method reads no further log batch.
            batch_size: the approximate number of offsets in an acquired range, for records that were never delivered.
            record_limit: True if `max_records` is a strict limit (KIP-1206). False: all records of the last log batch
                are acquired, so their number may exceed `max_records`.
            max_locks: the maximum number of offsets whose state is tracked.
            max_deliveries: see the class.
            aborted: pairs (first offset, last offset) of the batches of aborted transactions. Their records are
                archived instead of acquired.
        """
