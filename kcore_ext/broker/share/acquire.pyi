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
        """Acquires records for a member, and locks them until `deadline_ms`.

        Args:
            member: the member that acquires the records.
            batches: consecutive batches of the log. The first batch contains `fetch_offset`, or begins after
                `fetch_offset` if the log has no records in between.
            fetch_offset: the result of `next_fetch_offset`.
            wheel: the timers.
            deadline_ms: the monotonic time in ms at which the locks of the acquired records expire.
            max_records: the method reads no further batch when it has acquired this number of records.
            batch_size: the approximate number of offsets in an acquired range, for records that were never delivered.
            record_limit: True if `max_records` is a strict limit (KIP-1206). False: the method acquires all records of
                the last batch that it reads, so the number of acquired records may exceed `max_records`.
            max_locks: the maximum number of offsets whose state is tracked.
            max_deliveries: the number of deliveries after which a released record is archived.
            aborted: pairs (first offset, last offset) of the batches of aborted transactions. Their records are
                archived instead of acquired.
        """
