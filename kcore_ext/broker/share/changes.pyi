from collections.abc import Sequence
from typing import Any, final

from kcore_ext.broker.share.acquire import AcquiringRuns
from kcore_ext.broker.share.runs import Lock, StateBatch
from kcore_ext.runtime.timer_wheel import TimerWheel

@final
class Change:
    """Acknowledged or released records whose new state is being written."""

    @property
    def state_batches(self) -> list[StateBatch]:
        """Returns the new states to write, or an empty list if none must be written.

        The states of each acknowledgement batch are in ascending order of their offsets.
        """

class ShareRuns(AcquiringRuns):
    """The delivery state of a share partition's offsets, with acknowledgement, release and expiry of acquired records.

    `AcquiringRuns` documents the parameters `wheel` and `max_deliveries`.
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
        """Begins to acknowledge records. If any batch is invalid, the state does not change.

        Args:
            member: the member that has acquired the records.
            batches: the acknowledgement batches of a request, whose types are valid.
            wheel: the timers.
            deadline_ms: the monotonic time in ms at which renewed locks expire.
            max_deliveries: the number of deliveries after which a released record is archived.
            allow_renew: True if the group allows renewals (KIP-1222).

        Returns:
            The change, which the caller writes and then passes to `finish`; or the code of the first error.
        """

    def release(self, member: str, max_deliveries: int) -> Change:
        """Begins to release all records that a member has acquired. Returns the change, as `acknowledge` does."""

    def finish(self, change: Change, written: bool, max_deliveries: int) -> tuple[bool, bool]:
        """Ends a change: applies the change if it was written, else reverts it.

        Returns:
            Two flags: True if `start_offset` moved, and True if records became available.
        """

    def expire(self, lock: Lock, max_deliveries: int) -> list[list[StateBatch]]:
        """Releases the records of an expired lock. Returns the necessary writes, each with its new states.

        As in Kafka, each acquired range is a separate write. If a request has acknowledged only a part of a range, each
        record of the range is a separate write. There are at most 100 such writes. One more write contains all
        remaining states.
        """
