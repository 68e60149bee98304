"""The positions and buffers of a consumer, and fetch sessions (KIP-227), without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kcore.client.consumer_coordinator.interface import OffsetAndMetadata
from kcore.errors import ConfigError
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.client.fetched import FetchedRecords, RecordCursor

INITIAL_EPOCH = 0
MAX_EPOCH = 0x7FFFFFFF
ISOLATIONS: Final = ("read_committed", "read_uncommitted")
RESETS: Final = ("earliest", "latest", "none")


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings of a consumer's reading.

    Attributes:
        isolation: "read_committed" or "read_uncommitted".
        reset: the position in a partition without a committed offset: "earliest", "latest", or "none" for an error.
        max_records: the largest number of records that a poll returns.
        rack: the consumer's rack, or "".
    """

    isolation: str
    reset: str
    max_records: int
    rack: str

    def __post_init__(self) -> None:
        """Raises ConfigError for a value that is not one of the names above."""
        if self.isolation not in ISOLATIONS:
            raise ConfigError(f"isolation={self.isolation!r}; valid: {', '.join(map(repr, ISOLATIONS))}")
        if self.reset not in RESETS:
            raise ConfigError(f"reset={self.reset!r}; valid: {', '.join(map(repr, RESETS))}")


@dataclass(slots=True)
class Position:
    """A consumer's position in a partition.

    Attributes:
        fetch: the next offset to fetch; None: not known yet.
        consumed: the next offset to commit; None: nothing was consumed since the position was set.
        epoch: the leader epoch of the last consumed batch; None: unknown.
        paused: True if the user paused the partition.
        not_before_ms: the end of a pause after an error.
        buffer: fetched records that the user's code has not got yet, or None.
        version: counts changes of the position by the user, so that late responses are recognized.
    """

    fetch: int | None = None
    consumed: int | None = None
    epoch: int | None = None
    paused: bool = False
    not_before_ms: int = 0
    buffer: FetchedRecords[Any] | None = None
    version: int = 0


class Positions:
    """The positions of the assigned partitions.

    Attributes:
        by_partition: the positions, in the order in which polls visit the partitions.
        cursor: the records of a loop over single records; those that it finished are consumed.
    """

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, Position] = {}
        self.cursor = RecordCursor()
        self._polled: dict[TopicPartition, int] = {}  # the ends of the records that the last poll returned

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions without a position."""
        for partition in partitions:
            self.by_partition.setdefault(partition, Position())

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets partitions with their buffers."""
        for partition in partitions:
            self.by_partition.pop(partition, None)

    def seek(self, partition: TopicPartition, offset: int | None) -> None:
        """Sets a position and drops buffered records; None: the position is looked up again."""
        state = self.by_partition[partition]
        state.fetch = offset
        state.consumed = offset
        state.epoch = None
        state.version += 1
        state.buffer = None

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops records that were taken and are no longer current, because the partition moved or the position did."""
        self._mark(self.cursor.finished(current=False))
        dropped = set(partitions)
        self.cursor.drop(dropped)
        for partition in dropped:
            self._polled.pop(partition, None)

    def consumed(self) -> dict[TopicPartition, int | OffsetAndMetadata]:
        """Returns the offsets to commit."""
        self._mark(self.cursor.finished(current=False))
        return {
            partition: OffsetAndMetadata(state.consumed, "", state.epoch)
            for partition, state in self.by_partition.items()
            if state.consumed is not None
        }

    def missing(self, now_ms: int) -> list[TopicPartition]:
        """Returns the partitions without a position."""
        return [
            partition
            for partition, state in self.by_partition.items()
            if state.fetch is None and now_ms >= state.not_before_ms
        ]

    def to_fetch(self, now_ms: int) -> dict[TopicPartition, int]:
        """Returns the partitions to fetch, with their positions: neither paused, nor buffered, nor after an error."""
        return {
            partition: state.fetch
            for partition, state in self.by_partition.items()
            if state.fetch is not None and not state.paused and not state.buffer and now_ms >= state.not_before_ms
        }

    def store(self, partition: TopicPartition, version: int, offset: int, records: FetchedRecords[Any]) -> None:
        """Buffers the records of a response, unless the position has changed since the request.

        Args:
            partition: the partition.
            version: the position's version at the time of the request.
            offset: the requested offset.
            records: the records.
        """
        state = self.by_partition.get(partition)
        if state is None or state.version != version or state.fetch != offset or records.following <= offset:
            return
        state.fetch = records.following
        state.epoch = records.leader_epoch if records.leader_epoch >= 0 else state.epoch
        if records:
            state.buffer = records
        elif state.consumed is not None:
            state.consumed = records.following  # markers and aborted records alone: the position moves past them

    def take(self, limit: int) -> list[Any]:
        """Takes buffered records, partition by partition; those of a loop that was left come first.

        The records count as polled: `processed` marks them as consumed.
        """
        taken = self.cursor.rest(limit)
        for record in taken:
            self._polled[TopicPartition(record[0], record[1])] = record[2] + 1
        for partition, state in list(self.by_partition.items()):
            if len(taken) >= limit:
                break
            buffer = state.buffer
            if buffer is None or state.paused:
                continue
            records = buffer.take(limit - len(taken))
            self._polled[partition] = records[-1][2] + 1
            if taken:
                taken += records
            else:
                taken = records
            if not buffer:  # drained partitions go to the end of the order
                state.buffer = None
                self.by_partition[partition] = self.by_partition.pop(partition)
        return taken

    def take_for_loop(self, limit: int) -> bool:
        """Moves buffered records to the cursor; returns False if there are none."""
        records = self.take(limit)
        self._polled.clear()  # the cursor knows which of them are finished
        self.cursor.load(records)
        return bool(records)

    def processed(self) -> None:
        """Marks the records of the last poll, and the loop's records up to the current one, as consumed."""
        polled, self._polled = self._polled, {}
        self._mark(polled)
        self._mark(self.cursor.finished(current=True))

    def _mark(self, ends: Mapping[Any, int]) -> None:
        for partition, following in ends.items():
            state = self.by_partition.get(partition)
            if state is not None and (state.consumed is None or following > state.consumed):
                state.consumed = following


class FetchSession:
    """A fetch session with one broker: after the first request, only changes are sent."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._sent: dict[TopicPartition, int] = {}

    def request(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        committed: bool,
        max_bytes: int,
        partition_bytes: int,
        min_bytes: int,
        wait_ms: int,
        rack: str,
    ) -> FetchRequest:
        """Builds the next request of the session."""
        if self._epoch == INITIAL_EPOCH:
            changed: Mapping[TopicPartition, int] = positions
            forgotten: list[TopicPartition] = []
        else:
            changed = {key: offset for key, offset in positions.items() if self._sent.get(key) != offset}
            forgotten = [key for key in self._sent if key not in positions]
        self._sent = dict(positions)
        topics: dict[str, list[FetchPartition]] = {}
        for (topic, number), offset in changed.items():
            row = FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=partition_bytes)
            topics.setdefault(topic, []).append(row)
        gone: dict[str, list[int]] = {}
        for topic, number in forgotten:
            gone.setdefault(topic, []).append(number)
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=1 if committed else 0,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
            forgotten_topics_data=[ForgottenTopic(topic=name, partitions=numbers) for name, numbers in gone.items()],
            rack_id=rack,
        )

    def succeeded(self, session_id: int) -> None:
        """Moves to the next epoch, or back to full requests if the broker keeps no session."""
        if session_id == 0:
            self.reset()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """Begins a new session with the next request, after an error."""
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._sent = {}
