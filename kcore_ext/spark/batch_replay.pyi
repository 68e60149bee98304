from collections.abc import Callable
from typing import Any, final

from kcore_ext.group.offsets import OffsetAndMetadata
from kcore_ext.spark.column_store import Input

@final
class EventInput:
    """Columns of a batch of events, as Arrow's binary, int64 (offset, producer_id; timestamp in µs), int32 and bool.

    Args:
        size: how many rows they have.
        key: and `value`, `offset`: these are there. Of the others, None stands for a column of -1 or False.
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
    """Walks over the events of one partition; offsets that come again, and those that come too late, are passed over.

    Args:
        topic: the partition's topic.
        partition: its number.
        stop: the first event with this offset or a later one ends the replay, and with it all that come behind.
        latest_ms: the first event with a later timestamp does so too.
        watch_keys: whether to look for the first key that comes again.
        partitions_of: (group, topic) -> its dictionary of offsets by partition; None if the topic has no offsets.
        other: called with the fields of an `EventRow` for each event that is no plain committed offset.
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
    def replay(self, events: EventInput) -> None:
        """The next events. Whatever `other` raises, it raises too."""

    @property
    def log_first(self) -> int:
        """The offset of the log's first event, -1 without one."""

    @property
    def log_last(self) -> int:
        """The offset of its last one, whether it was replayed or not."""

    @property
    def first(self) -> int:
        """The offset of the first event that was replayed, -1 without one."""

    @property
    def last(self) -> int:
        """The offset of the last one."""

    @property
    def last_timestamp_ms(self) -> int:
        """Its timestamp, -1 for none."""

    @property
    def repeated_at(self) -> int:
        """Where a key came for the second time; -1 as long as none did, or if nobody asked."""

    @property
    def plain(self) -> int:
        """How many plain committed offsets there were."""

    @property
    def added(self) -> int:
        """How many of them were new to their dictionaries."""

    @property
    def gaps(self) -> bool:
        """Whether an offset was missing, from 0 on."""

    @property
    def last_gap(self) -> int:
        """The offset behind the last ones that are missing before the replay's end, -1 for none."""

    @property
    def cut(self) -> bool:
        """Whether there are events behind the replay's end."""
