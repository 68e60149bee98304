"""The positions and buffers of a consumer, and fetch sessions (KIP-227), without I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple

from kcore.client.consumer_coordinator.interface import OffsetAndMetadata
from kcore.client.isolation import isolation_level
from kcore.errors import ConfigError
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.client.fetched import FetchedRecords, RecordCursor

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EARLIEST, LATEST = -2, -1
"""Timestamps in a ListOffsets request that stand for the start and the end of a log."""
MAX_EPOCH = 0x7FFFFFFF
RESETS: Final = ("earliest", "latest", "none")

MAX_RECORDS = 0x7FFFFFFF
"""Largest number of records of one poll."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings with which a consumer reads.

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
        """Raises ConfigError for a value that is not valid."""
        isolation_level(self.isolation)
        if self.reset not in RESETS:
            raise ConfigError(f"reset={self.reset!r}; valid: {', '.join(map(repr, RESETS))}")
        if not isinstance(self.max_records, int) or isinstance(self.max_records, bool):
            raise TypeError(f"max_records={self.max_records!r}; valid: a whole number, 1 or more")
        if not 1 <= self.max_records <= MAX_RECORDS:
            raise ConfigError(f"max_records={self.max_records!r}; valid: 1 to {MAX_RECORDS}")


@dataclass(slots=True)
class FetchPosition:
    """A consumer's position in a partition.

    Attributes:
        fetch: the next offset to fetch; None: not looked up yet.
        consumed: the offset after the consumed records; None: no record was consumed since the position was set.
        taken: the offset after the records that the user's code has received; None: it has received no record since the
            position was set.
        skipped: True once a response with only transaction markers or aborted records has moved the position.
        epoch: the leader epoch of the last fetched batch, or of the committed offset; None: unknown.
        leader_epoch: the leader epoch under which the position is valid; -1: unknown; None: not validated yet.
        validating: True while the leader checks that its log has the position.
        paused: True if the user paused the partition.
        not_before_ms: the end of a pause after an error.
        buffer: fetched records that the user's code has not received yet, or None.
        version: a number that changes with each assignment and each seek, so that late responses are recognized.
        initial: True until a seek or a reset. While it is True, a lookup uses the committed offset, if there is one.
        timestamp: the timestamp in ms by which the position is looked up, EARLIEST or LATEST; None: the reset policy
            decides.
    """

    fetch: int | None = None
    consumed: int | None = None
    taken: int | None = None
    skipped: bool = False
    epoch: int | None = None
    leader_epoch: int | None = None
    validating: bool = False
    paused: bool = False
    not_before_ms: int = 0
    buffer: FetchedRecords[Any] | None = None
    version: int = 0
    initial: bool = True
    timestamp: int | None = None

    @property
    def following(self) -> int | None:
        """The offset to commit; None if no record was consumed.

        If every fetched record is consumed, the result is the fetch position, which lies after transaction markers and
        aborted records. No poll returns these records, so after a lower offset they would count as lag forever.
        """
        if self.buffer is None and self.taken == self.consumed and (self.consumed is not None or self.skipped):
            return self.fetch
        return self.consumed


class Unvalidated(NamedTuple):
    """A position that a leader has to check.

    Attributes:
        offset: the offset of the position.
        epoch: the leader epoch of the record before the position.
        leader_epoch: the epoch of the partition's current leader.
        version: a number that changes with each change of the position.
    """

    offset: int
    epoch: int
    leader_epoch: int
    version: int


class FetchPositions:
    """The positions of the assigned partitions.

    Attributes:
        by_partition: the positions, in the order in which polls visit the partitions.
        cursor: the records for a `for` loop of the user's code. Records that the loop has finished count as consumed.
    """

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, FetchPosition] = {}
        self.cursor = RecordCursor()
        self._polled: dict[TopicPartition, int] = {}  # the offset after the records that the last poll returned
        self._loaded: dict[TopicPartition, int] = {}  # the offset after the records that were passed to the cursor
        self._versions = count(1)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions without a position."""
        for partition in partitions:
            if partition not in self.by_partition:
                # A new version: responses for an earlier assignment may still arrive.
                self.by_partition[partition] = FetchPosition(version=next(self._versions))

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes partitions with their positions and buffered records."""
        for partition in partitions:
            self.by_partition.pop(partition, None)

    def seek(self, partition: TopicPartition, offset: int | None, epoch: int | None = None) -> None:
        """Sets a position and drops buffered records.

        Args:
            partition: an assigned partition.
            offset: the offset of the next record; None: the position is looked up again.
            epoch: the leader epoch of the record before the offset, by which the leader validates the position.
        """
        state = self.by_partition[partition]
        state.fetch = offset
        state.consumed = state.taken = offset
        state.skipped = False
        state.epoch = epoch
        state.leader_epoch = None
        state.validating = False
        state.version = next(self._versions)
        state.initial = False
        state.buffer = None
        state.timestamp = None

    def seek_time(self, partition: TopicPartition, timestamp: int) -> None:
        """Requests the lookup of a position by time, and drops buffered records.

        Args:
            partition: an assigned partition.
            timestamp: the time in ms, EARLIEST or LATEST.
        """
        self.seek(partition, None)
        self.by_partition[partition].timestamp = timestamp

    def fall_back_to_end(self, partition: TopicPartition, version: int) -> bool:
        """Handles a lookup by timestamp that found no record: the next lookup sets the position to the end of the log.

        Args:
            partition: the partition of the lookup.
            version: the version of the position at the time of the lookup.

        Returns:
            False if this method changed nothing, because the position has changed since the lookup, or the lookup was
            not by timestamp. The caller then repeats the lookup.
        """
        state = self.by_partition.get(partition)
        if state is None or state.version != version or state.timestamp is None or state.timestamp < 0:
            return False
        state.timestamp = LATEST
        return True

    def drop_polled(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops records that the user's `for` loop has not read yet, if their partition moved or its position changed.

        The next call of `mark_consumed` does not mark records of these partitions as consumed.
        """
        self._move_consumed(self.cursor.finished(current=False))
        dropped = set(partitions)
        self.cursor.drop(dropped)
        for partition in dropped:
            self._polled.pop(partition, None)
            self._loaded.pop(partition, None)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets to commit, without positions that are being validated."""
        self._move_consumed(self.cursor.finished(current=False))
        return {
            partition: OffsetAndMetadata(following, "", state.epoch)
            for partition, state in self.by_partition.items()
            if not state.validating and (following := state.following) is not None
        }

    def missing(self, now_ms: int) -> list[TopicPartition]:
        """Returns the partitions without a position."""
        return [
            partition
            for partition, state in self.by_partition.items()
            if state.fetch is None and now_ms >= state.not_before_ms
        ]

    def pause(self, partitions: Iterable[TopicPartition], until_ms: int) -> None:
        """Postpones the next fetches and lookups of partitions after an error."""
        for partition in partitions:
            state = self.by_partition.get(partition)
            if state is not None:
                state.not_before_ms = until_ms

    def locate(self, partition: TopicPartition, version: int, offset: int, epoch: int | None) -> None:
        """Sets a position that was looked up, unless it has changed since the request.

        If the consumer has already returned records beyond the offset, the log was truncated or created again. The
        method then also drops the old values of `consumed` and `taken`. If they were committed, the group would skip
        new records.

        Args:
            partition: the partition whose position was looked up.
            version: the position's version at the time of the request.
            offset: the offset of the next record.
            epoch: the leader epoch of the record before it; None: unknown.
        """
        state = self.by_partition.get(partition)
        if state is None or state.fetch is not None or state.version != version:
            return
        ends = (state.consumed, state.taken, self._polled.get(partition), self._loaded.get(partition))
        if any(end is not None and end > offset for end in ends):
            self.drop_polled([partition])
            state.consumed = state.taken = None
        state.fetch = offset
        state.epoch = epoch
        if state.timestamp is not None:  # the program has sought the position, so that a commit includes it
            state.consumed = state.taken = offset
            state.timestamp = None

    def to_fetch(self, now_ms: int) -> dict[TopicPartition, int]:
        """Returns the positions of the partitions to fetch.

        Leaves out partitions that are paused, have buffered records, are being validated, or wait after an error.
        """
        return {
            partition: state.fetch
            for partition, state in self.by_partition.items()
            if state.fetch is not None
            and not state.paused
            and not state.buffer
            and not state.validating
            and now_ms >= state.not_before_ms
        }

    def begin_validation(
        self, partitions: Iterable[TopicPartition], epoch_of: Callable[[TopicPartition], int]
    ) -> dict[TopicPartition, Unvalidated]:
        """Returns the positions that a leader must validate, and marks them as being validated (KIP-320).

        A position needs validation if the partition has had a new leader epoch since the position was reached. The
        epochs of the position and of the leader must be known.

        Args:
            partitions: partitions that are about to be fetched.
            epoch_of: returns the leader epoch of a partition; -1: unknown.
        """
        unvalidated: dict[TopicPartition, Unvalidated] = {}
        for partition in partitions:
            state = self.by_partition.get(partition)
            current = epoch_of(partition)
            if state is None or state.leader_epoch == current:
                continue
            if current < 0 or state.epoch is None or state.fetch is None:
                state.leader_epoch = current
            else:
                state.validating = True
                unvalidated[partition] = Unvalidated(state.fetch, state.epoch, current, state.version)
        return unvalidated

    def end_validation(
        self, partition: TopicPartition, sent: Unvalidated, epoch: int, end_offset: int, reset: bool
    ) -> bool:
        """Stores the leader's response about a position.

        Args:
            partition: the partition whose position the leader has checked.
            sent: the position in the request.
            epoch: the largest epoch of the leader's log that is not above the position's epoch; -1: there is none.
            end_offset: the offset after that epoch's records; -1: none.
            reset: True to move a position that the leader's log does not have.

        Returns:
            False if the leader's log does not have the position, and `reset` is False.
        """
        state = self.by_partition.get(partition)
        if state is None or state.version != sent.version:
            return True
        state.validating = False
        if state.fetch != sent.offset:
            return True  # a Fetch of the old leader has moved it: the next round validates it again
        if epoch >= 0 and end_offset >= sent.offset:
            state.leader_epoch = sent.leader_epoch
            return True
        if reset:
            known = epoch >= 0 and end_offset >= 0
            self.drop_polled([partition])
            self.seek(partition, end_offset if known else None, epoch if known else None)
        return reset

    def fail_validation(self, partitions: Mapping[TopicPartition, Unvalidated]) -> None:
        """Ends a validation without a result. Before their next fetch, the positions are validated again."""
        for partition, sent in partitions.items():
            state = self.by_partition.get(partition)
            if state is not None and state.version == sent.version:
                state.validating = False

    def store(self, partition: TopicPartition, version: int, offset: int, records: FetchedRecords[Any]) -> None:
        """Buffers the records of a response, unless the position has changed since the request.

        Args:
            partition: the partition that was fetched.
            version: the position's version at the time of the request.
            offset: the requested offset.
            records: the fetched records, from `offset` on.
        """
        state = self.by_partition.get(partition)
        if state is None or state.version != version or state.fetch != offset or records.following <= offset:
            return
        if records and state.following == offset:  # the offset to commit must not fall back
            state.consumed = state.taken = offset
        state.fetch = records.following
        state.epoch = records.leader_epoch if records.leader_epoch >= 0 else state.epoch
        if records:
            state.buffer = records
        else:  # markers and aborted records alone
            state.skipped = True

    def take_records(self, limit: int) -> list[Any]:
        """Takes buffered records, partition by partition. If the user's code has left a `for` loop early, the remaining
        records of this loop come first.

        The records count as polled; `mark_consumed` later marks them as consumed. If this method raises, for example
        MemoryError, no record is taken, and the next fetch returns the records again.
        """
        begun: dict[TopicPartition, int] = {}  # the first taken offset of each partition
        try:
            taken = self.cursor.rest(limit)
            for record in taken:
                partition = TopicPartition(record[0], record[1])
                begun.setdefault(partition, record[2])
                self._polled[partition] = record[2] + 1
            for partition, state in list(self.by_partition.items()):
                if len(taken) >= limit:
                    break
                buffer = state.buffer
                if buffer is None or state.paused:
                    continue
                begun.setdefault(partition, buffer.next_offset)
                records = buffer.take(limit - len(taken))
                self._polled[partition] = state.taken = records[-1][2] + 1
                if taken:
                    taken += records
                else:
                    taken = records
                if not buffer:  # drained partitions go to the end of the order
                    state.buffer = None
                    self.by_partition[partition] = self.by_partition.pop(partition)
        except BaseException:
            self._rewind(begun)
            raise
        return taken

    def _rewind(self, begun: Mapping[TopicPartition, int]) -> None:
        """Moves positions back to records that no poll has returned."""
        for partition, offset in begun.items():
            self._polled.pop(partition, None)
            state = self.by_partition.get(partition)
            if state is not None:
                state.fetch = offset
                state.taken = state.consumed
                state.buffer = None
                state.version = next(self._versions)

    def take_for_loop(self, limit: int) -> bool:
        """Moves buffered records to `cursor`, from which the user's `for` loop reads them. Returns False if there are
        none.
        """
        records = self.take_records(limit)
        self._loaded, self._polled = self._polled, {}  # the cursor reports which records the loop has finished
        self.cursor.load(records)
        return bool(records)

    def mark_consumed(self) -> None:
        """Marks records as consumed: those of the last poll, and those that the user's `for` loop has reached."""
        polled, self._polled = self._polled, {}
        self._move_consumed(polled)
        self._move_consumed(self.cursor.finished(current=True))
        if not self.cursor:  # the loop has finished all records, and interceptors may have removed some
            loaded, self._loaded = self._loaded, {}
            self._move_consumed(loaded)

    def _move_consumed(self, ends: Mapping[Any, int]) -> None:
        for partition, following in ends.items():
            state = self.by_partition.get(partition)
            if state is not None and (state.consumed is None or following > state.consumed):
                state.consumed = following


class FetchSession:
    """A fetch session with one broker, in which requests after the first request have only the partitions that
    changed.
    """

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
        epoch_of: Callable[[TopicPartition], int],
    ) -> FetchRequest:
        """Builds the next request of the session; `epoch_of` returns the leader epoch of a partition."""
        if self._epoch == INITIAL_EPOCH:
            changed: Mapping[TopicPartition, int] = positions
            forgotten: list[TopicPartition] = []
        else:
            changed = {key: offset for key, offset in positions.items() if self._sent.get(key) != offset}
            forgotten = [key for key in self._sent if key not in positions]
        self._sent = dict(positions)
        topics: dict[str, list[FetchPartition]] = {}
        for (topic, number), offset in changed.items():
            row = FetchPartition(
                partition=number,
                current_leader_epoch=epoch_of(TopicPartition(topic, number)),
                fetch_offset=offset,
                partition_max_bytes=partition_bytes,
            )
            topics.setdefault(topic, []).append(row)
        forgotten_topics: dict[str, list[int]] = {}
        for topic, number in forgotten:
            forgotten_topics.setdefault(topic, []).append(number)
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=1 if committed else 0,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, partitions=numbers) for name, numbers in forgotten_topics.items()
            ],
            rack_id=rack,
        )

    def succeeded(self, session_id: int) -> None:
        """Moves to the next epoch of the session.

        If `session_id` is 0, the broker has no session, and the next request names all partitions.
        """
        if session_id == 0:
            self.reset()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1

    def resend(self, partition: TopicPartition) -> None:
        """Adds a partition to the next request after an error, because its leader epoch may have changed."""
        if partition in self._sent:
            self._sent[partition] = -1

    def failed(self) -> None:
        """Makes the next request replace the session after a lost response; the broker frees the old session."""
        self._epoch = INITIAL_EPOCH
        self._sent = {}

    def reset(self) -> None:
        """Begins a new session with the next request, because the broker does not have the current session."""
        self._id = 0
        self.failed()

    def close_request(self, max_bytes: int) -> FetchRequest | None:
        """Builds the request that frees the broker's session; None: there is none."""
        if self._id == 0:
            return None
        return FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, session_id=self._id, session_epoch=FINAL_EPOCH, topics=[]
        )
