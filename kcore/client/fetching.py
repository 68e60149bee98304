"""The positions and buffers of a consumer, and fetch sessions (KIP-227), without I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, NamedTuple

from kcore.client.consumer_coordinator.interface import OffsetAndMetadata
from kcore.errors import ConfigError
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kcore.protocol.topic_partition import TopicPartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
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
        epoch: the leader epoch of the last fetched batch, or of the committed offset; None: unknown.
        leader_epoch: the leader epoch under which the position is valid; -1: unknown; None: not validated yet.
        validating: True while the leader checks that its log has the position.
        paused: True if the user paused the partition.
        not_before_ms: the end of a pause after an error.
        buffer: fetched records that the user's code has not got yet.
        buffered_end: the offset after the buffered batches.
        version: a number that changes with each assignment and each seek, so that late responses are recognized.
        initial: True until the position was set once: the committed offset applies then.
    """

    fetch: int | None = None
    consumed: int | None = None
    epoch: int | None = None
    leader_epoch: int | None = None
    validating: bool = False
    paused: bool = False
    not_before_ms: int = 0
    buffer: deque[Any] = field(default_factory=deque)
    buffered_end: int = 0
    version: int = 0
    initial: bool = True


class Unvalidated(NamedTuple):
    """A position that a leader has to check.

    Attributes:
        offset: the position.
        epoch: its epoch.
        leader_epoch: the leader's epoch.
        version: the version of the position.
    """

    offset: int
    epoch: int
    leader_epoch: int
    version: int


class Positions:
    """The positions of the assigned partitions."""

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, Position] = {}
        self._versions = count(1)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions without a position."""
        for partition in partitions:
            if partition not in self.by_partition:
                # Unlike the version of an earlier assignment: its responses may still arrive.
                self.by_partition[partition] = Position(version=next(self._versions))

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets partitions with their buffers."""
        for partition in partitions:
            self.by_partition.pop(partition, None)

    def seek(self, partition: TopicPartition, offset: int | None, epoch: int | None = None) -> None:
        """Sets a position and drops buffered records.

        Args:
            partition: an assigned partition.
            offset: the offset; None: the position is looked up again.
            epoch: the leader epoch of the record before the offset, by which the leader validates the position.
        """
        state = self.by_partition[partition]
        state.fetch = offset
        state.consumed = offset
        state.epoch = epoch
        state.leader_epoch = None
        state.validating = False
        state.version = next(self._versions)
        state.initial = False
        state.buffer.clear()

    def consumed(self) -> dict[TopicPartition, int | OffsetAndMetadata]:
        """Returns the offsets to commit: none of a position that is being validated."""
        return {
            partition: OffsetAndMetadata(state.consumed, "", state.epoch)
            for partition, state in self.by_partition.items()
            if state.consumed is not None and not state.validating
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
            if state.fetch is not None
            and not state.paused
            and not state.buffer
            and not state.validating
            and now_ms >= state.not_before_ms
        }

    def begin_validation(
        self, partitions: Iterable[TopicPartition], epoch_of: Callable[[TopicPartition], int]
    ) -> dict[TopicPartition, Unvalidated]:
        """Returns the positions that were reached under another leader epoch, and marks them.

        A position is validated if both its own epoch and the leader's are known (KIP-320).

        Args:
            partitions: partitions that are about to be fetched.
            epoch_of: returns the leader epoch of a partition; -1: unknown.
        """
        found: dict[TopicPartition, Unvalidated] = {}
        for partition in partitions:
            state = self.by_partition.get(partition)
            current = epoch_of(partition)
            if state is None or state.leader_epoch == current:
                continue
            if current < 0 or state.epoch is None or state.fetch is None:
                state.leader_epoch = current
            else:
                state.validating = True
                found[partition] = Unvalidated(state.fetch, state.epoch, current, state.version)
        return found

    def end_validation(
        self, partition: TopicPartition, sent: Unvalidated, epoch: int, end_offset: int, reset: bool
    ) -> bool:
        """Stores the leader's response about a position.

        Args:
            partition: the partition.
            sent: the position that the leader has checked.
            epoch: the largest epoch of the leader's log that is not above that of the position; -1: none.
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
            self.seek(partition, end_offset if known else None, epoch if known else None)
        return reset

    def fail_validation(self, partitions: Mapping[TopicPartition, Unvalidated]) -> None:
        """Makes positions that no leader has validated be validated again."""
        for partition, sent in partitions.items():
            state = self.by_partition.get(partition)
            if state is not None and state.version == sent.version:
                state.validating = False

    def store(self, partition: TopicPartition, version: int, records: list[Any], following: int, epoch: int) -> None:
        """Buffers fetched records, unless the position has changed since the request."""
        state = self.by_partition.get(partition)
        if state is None or state.version != version:
            return
        state.fetch = following
        state.epoch = epoch if epoch >= 0 else state.epoch
        if records:
            state.buffer.extend(records)
        elif not state.buffer and state.consumed is not None:
            state.consumed = following  # markers and aborted records alone: the position moves past them

    def take(self, limit: int) -> list[Any]:
        """Takes buffered records, partition by partition."""
        taken: list[Any] = []
        for partition, state in list(self.by_partition.items()):
            buffer = state.buffer
            if not buffer or state.paused:
                continue
            if not taken and len(buffer) <= limit:
                taken = list(buffer)
                buffer.clear()
            else:
                while buffer and len(taken) < limit:
                    taken.append(buffer.popleft())
            if not buffer:  # drained partitions go to the end of the order
                self.by_partition[partition] = self.by_partition.pop(partition)
            if len(taken) >= limit:
                break
        return taken

    def mark_consumed(self, records: Iterable[Any]) -> None:
        """Records that the user's code has processed records."""
        last = {record[:2]: record[2] for record in records}
        for place, offset in last.items():
            state = self.by_partition.get(TopicPartition(*place))
            if state is not None and (state.consumed is None or offset + 1 > state.consumed):
                state.consumed = offset + 1


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

    def resend(self, partition: TopicPartition) -> None:
        """Sends a partition again with the next request, after its error: its leader epoch may have changed."""
        if partition in self._sent:
            self._sent[partition] = -1

    def failed(self) -> None:
        """Replaces the session by a new one with the next request, after a lost response; the broker frees the old."""
        self._epoch = INITIAL_EPOCH
        self._sent = {}

    def reset(self) -> None:
        """Begins a new session with the next request, because the broker does not know this one."""
        self._id = 0
        self.failed()

    def close_request(self, max_bytes: int) -> FetchRequest | None:
        """Builds the request that frees the broker's session; None: there is none."""
        if self._id == 0:
            return None
        return FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, session_id=self._id, session_epoch=FINAL_EPOCH, topics=[]
        )
