"""The values that the client API takes and returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

from kcore.client.consumer_coordinator.interface import OffsetAndMetadata
from kcore.protocol.topic_partition import TopicPartition

__all__ = [
    "GroupDescription",
    "GroupListing",
    "HeaderList",
    "Isolation",
    "MemberDescription",
    "OffsetAndMetadata",
    "Offsets",
    "Partition",
    "Record",
    "RecordMetadata",
    "TopicListing",
    "TopicPartition",
    "to_datetime",
    "to_ms",
]

Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]

Partition: TypeAlias = TopicPartition | tuple[str, int]
"""A partition as callers write it: `("jobs", 0)` or `TopicPartition("jobs", 0)`."""

Offsets: TypeAlias = (
    Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata]
)
"""Offsets to commit: each is that of the next record to read."""

HeaderList: TypeAlias = Sequence[tuple[str, bytes | None]]


def to_datetime(timestamp_ms: int) -> datetime:
    """Converts milliseconds since the epoch to a time in UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def to_ms(when: datetime | float) -> int:
    """Converts a time, or seconds since the epoch, to milliseconds; a time without a zone is local, as in Python."""
    seconds = when.timestamp() if isinstance(when, datetime) else when
    return round(seconds * 1000)


class Record(NamedTuple):
    """A record that was read.

    Attributes:
        topic: its topic.
        partition: its partition.
        offset: its offset.
        timestamp_ms: its timestamp, in milliseconds since the epoch; see also `timestamp`.
        key: its key, or None.
        value: its value; None is a tombstone.
        headers: names and values.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def timestamp(self) -> datetime:
        """The timestamp as a time in UTC."""
        return to_datetime(self.timestamp_ms)

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition."""
        return TopicPartition(self.topic, self.partition)


class RecordMetadata(NamedTuple):
    """The place of a record that was written.

    Attributes:
        topic: its topic.
        partition: its partition.
        offset: its offset; -1 if the broker did not return it.
        timestamp_ms: its timestamp in milliseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def timestamp(self) -> datetime:
        """The timestamp as a time in UTC."""
        return to_datetime(self.timestamp_ms)


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic.

    Attributes:
        name: its name.
        id: its id, sixteen bytes.
        partitions: the number of its partitions.
        internal: True if the server uses it for its own state.
    """

    name: str
    id: bytes
    partitions: int
    internal: bool = False


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list.

    Attributes:
        group_id: its id.
        type: "classic", "consumer", "share" or "streams".
        state: its state, for example "Stable".
        protocol_type: the protocol type of a classic group, for example "consumer".
    """

    group_id: str
    type: str
    state: str
    protocol_type: str = ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        member_id: its id.
        instance_id: its id as a static member; None: it is a dynamic member.
        client_id: the client's id.
        host: the client's address.
        epoch: its member epoch; -1 in a classic group.
        assignment: the partitions that it owns.
        target: the partitions that it will own after the rebalance; equal to `assignment` in a classic group.
        topics: the names that it subscribes to.
        pattern: the regular expression that it subscribes to, or None.
        rack: its rack, or None.
        tasks: the tasks of a streams member: subtopology and partition.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    epoch: int = -1
    assignment: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    rack: str | None = None
    tasks: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group.

    Attributes:
        group_id: its id.
        type: "classic", "consumer", "share" or "streams".
        state: its state: "Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling".
        members: its members.
        epoch: its group epoch; -1 for a classic group.
        assignment_epoch: the epoch of the target assignment; -1 for a classic group.
        assignor: the assignor, or "".
        protocol_type: the protocol type of a classic group.
    """

    group_id: str
    type: str
    state: str
    members: tuple[MemberDescription, ...] = field(default=())
    epoch: int = -1
    assignment_epoch: int = -1
    assignor: str = ""
    protocol_type: str = ""


def as_partitions(partitions: Iterable[Partition]) -> list[TopicPartition]:
    """Converts partitions as callers write them.

    Raises:
        TypeError: an element is not a pair of a topic's name and a partition number.
    """
    return [as_partition(partition) for partition in partitions]


def as_partition(partition: Any) -> TopicPartition:
    """Converts one partition as callers write it.

    Raises:
        TypeError: it is not a pair of a topic's name and a partition number.
    """
    match partition:
        case (str(topic), int(number)):
            return TopicPartition(topic, number)
    raise TypeError(f"{partition!r} is not a partition; valid: ('jobs', 0) or TopicPartition('jobs', 0)")


def to_bytes(value: Any) -> bytes | None:
    """Converts a record's key or value as callers write it; text is encoded as UTF-8.

    Raises:
        TypeError: the value has another type, and needs a serialization by the caller.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a key or value of type {type(value).__name__}; valid: bytes, str or None")
