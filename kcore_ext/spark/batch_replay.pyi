from collections.abc import Callable
from typing import Any, final

from kcore_ext.group.offsets import OffsetAndMetadata
from kcore_ext.spark.column_store import Input

@final
class EventInput:
    """The columns of a batch of events, as Arrow arrays.

    The columns `key`, `value` and `offset` are required. If another column is None, each of its rows counts as -1 or
    False.

    Args:
        size: the number of rows.
        key: a column of the type binary, like `value`.
        offset: a column of the type int64, like `producer_id` and `timestamp` (in µs).
        producer_epoch: a column of the type int32, like `last_sequence`.
        transactional: a column of the type bool, like `control` and `batch_only`.
    """

    def __init__(
        self,
        size: int,
        key: Input,
        value: Input,
        offset: Input,
        timestamp: Input | None,
        producer_id: Input | None,
        producer_epoch: Input | None,
        last_sequence: Input | None,
        transactional: Input | None,
        control: Input | None,
        batch_only: Input | None,
    ) -> None: ...

@final
class EventReplay:
    """The replay of the events of one partition. It skips an event if an earlier event had the same or a
    higher offset.

    Args:
        topic: the partition's topic.
        partition: the partition's number.
        stop: the replay ends before the first event whose offset is at least this offset.
        latest_ms: the replay ends before the first event with a later timestamp, in ms since the epoch.
        watch_keys: True to find the first repeated key.
        partitions_of: a function (group, topic) -> dictionary partition -> committed offset. None if the log of this
            topic has no committed offsets.
        other: called with the fields of an `EventRow` for each event except non-transactional committed offsets.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        stop: int,
        latest_ms: int,
        watch_keys: bool,
        partitions_of: Callable[[str, str], dict[int, OffsetAndMetadata]] | None,
        other: Callable[[tuple[Any, ...]], object],
    ) -> None: ...
    def resume(
        self,
        first: int,
        last: int,
        last_timestamp_ms: int,
        largest_timestamp_ms: int,
        log_first: int,
        last_gap: int,
        missing: Callable[[int, int], object] | None,
    ) -> None:
        """Continues from a checkpoint. The caller must call this method before the first `replay`.

        Args:
            first: the value of the attribute `first` at the checkpoint.
            last: the offset of the last replayed event; events up to it are skipped.
            last_timestamp_ms: the value of the attribute `last_timestamp_ms`.
            largest_timestamp_ms: the value of the attribute `largest_timestamp_ms`.
            log_first: the value of the attribute `log_first`.
            last_gap: the value of the attribute `last_gap`.
            missing: called with (first missing offset, next existing offset) if the events have a gap before the end of
                the replay. The function must raise an exception.
        """

    def replay(self, events: EventInput) -> None:
        """Replays the next events. Propagates exceptions of `other` and `missing`."""

    @property
    def log_first(self) -> int:
        """The offset of the log's first event; -1 before the first event."""

    @property
    def log_last(self) -> int:
        """The offset of the log's last event, even if the replay has skipped it."""

    @property
    def first(self) -> int:
        """The offset of the first replayed event; -1 before the first event."""

    @property
    def last(self) -> int:
        """The offset of the last replayed event."""

    @property
    def last_timestamp_ms(self) -> int:
        """The timestamp of the last replayed event, in ms since the epoch; -1 if there is none."""

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of a replayed event, in ms since the epoch; -1 if there is none."""

    @property
    def repeated_at(self) -> int:
        """The offset of the first repeated key; -1 if there is none, or if `watch_keys` is False."""

    @property
    def fast_records(self) -> int:
        """The number of non-transactional committed offsets, which the fast path replayed."""

    @property
    def added(self) -> int:
        """The number of replayed offsets whose partition had no committed offset before."""

    @property
    def gaps(self) -> bool:
        """True if any offset from 0 to the last event is missing."""

    @property
    def last_gap(self) -> int:
        """The first offset after the last gap that lies before the end of the replay; -1 if there is no gap."""

    @property
    def cut(self) -> bool:
        """True if the replay ended at `stop` or `latest_ms`, so that later events were not replayed."""
