"""The types of the client API's arguments and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, overload

from kcore.client.consumer_coordinator.interface import OffsetAndMetadata
from kcore.node.arguments import check_partition_number, check_text
from kcore.protocol.topic_partition import TopicPartition

__all__ = [
    "GroupDescription",
    "GroupListing",
    "GroupMetadata",
    "HeaderList",
    "Isolation",
    "MemberDescription",
    "OffsetAndMetadata",
    "Offsets",
    "Partition",
    "PartitionDescription",
    "PartitionDict",
    "ProducerState",
    "Record",
    "RecordMetadata",
    "SharePosition",
    "Tasks",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "Topology",
    "TransactionDescription",
    "TransactionListing",
    "to_datetime",
    "to_ms",
]

Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]

Partition: TypeAlias = TopicPartition | tuple[str, int]
"""A partition as callers write it: `("jobs", 0)` or `TopicPartition("jobs", 0)`."""

Offsets: TypeAlias = (
    Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata]
)
"""Offsets to commit: partition -> the offset of the next record to read."""

LATEST_S = 1e11
"""Maximum time in seconds since the epoch. A larger number is probably in milliseconds by mistake: in milliseconds, all
times after March 1973 are larger.
"""

T = TypeVar("T")
V = TypeVar("V")

if TYPE_CHECKING:

    class PartitionDict(dict[TopicPartition, V]):
        """A dict by partition; callers may write its keys as `("jobs", 0)`. At run time it is `dict`."""

        def __getitem__(self, partition: Partition, /) -> V: ...
        @overload
        def get(self, partition: Partition, default: None = None, /) -> V | None: ...
        @overload
        def get(self, partition: Partition, default: V, /) -> V: ...
        @overload
        def get(self, partition: Partition, default: T, /) -> V | T: ...
        def get(self, partition: Any, default: Any = None, /) -> Any:
            """Returns the value of a partition, or else the default."""

else:
    PartitionDict = dict


class GroupMetadata(NamedTuple):
    """The identity with which a transaction commits offsets: a group, and the member that commits, if there is one.

    Attributes:
        group_id: the id of the group.
        member_id: the member's id; "" for a group without members.
        epoch: the member epoch, or in a classic group the generation; -1 for a group without members.
        instance_id: the id of a static member, or None.
    """

    group_id: str
    member_id: str = ""
    epoch: int = -1
    instance_id: str | None = None


HeaderList: TypeAlias = Sequence[tuple[str, bytes | None]]


def to_datetime(timestamp_ms: int) -> datetime:
    """Converts milliseconds since the epoch to a time in UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def to_ms(when: datetime | float) -> int:
    """Converts a datetime, or seconds since the epoch, to milliseconds. A datetime without a zone is local time.

    Raises:
        TypeError: the time has another type.
        ValueError: the time is after the year 5138: the caller passed milliseconds. Or it is not a finite number.
    """
    if isinstance(when, datetime):
        return round(when.timestamp() * 1000)
    try:
        if isinstance(when, bool):
            raise TypeError
        if -LATEST_S <= when <= LATEST_S:
            return round(when * 1000)
    except TypeError:
        raise TypeError(f"the time is {when!r}; valid: a datetime, or seconds since 1970") from None
    late = "too late" if when > 0 else "not valid"
    raise ValueError(f"the time {when} is {late}; valid: a datetime, or seconds since 1970, not milliseconds")


def to_timestamp_ms(when: datetime | float) -> int:
    """Converts the time of a record to milliseconds, as `to_ms` does.

    Raises:
        TypeError: the time has another type.
        ValueError: the time is before 1970 or too late, or not a finite number.
    """
    time_ms = to_ms(when)
    if time_ms < 0:
        raise ValueError(f"the time of a record is {when}; valid: a datetime, or seconds since 1970, 0 or more")
    return time_ms


class Record(NamedTuple):
    """A record that was read.

    Attributes:
        topic: the name of the topic.
        partition: the partition number.
        offset: the record's position in the partition.
        timestamp_ms: in milliseconds since the epoch; see also `timestamp`.
        key: the key's bytes, or None.
        value: the value's bytes; None is a tombstone.
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
    """The partition, offset and timestamp of a record that was written.

    Attributes:
        topic: the name of the topic.
        partition: the partition number.
        offset: the record's position in the partition; -1 if the broker did not return it.
        timestamp_ms: in milliseconds since the epoch.
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
    """A topic in a list.

    Attributes:
        name: the topic's name.
        id: the topic id, sixteen bytes.
        partitions: the number of partitions.
        internal: True if the server uses it for its own state.
    """

    name: str
    id: bytes
    partitions: int
    internal: bool = False


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition of a topic.

    Attributes:
        partition: the number of the partition.
        leader: the node id of the partition's leader; None: the partition has no leader.
        replicas: the node ids of the partition's replicas.
        in_sync: the node ids of the replicas that are in sync.
    """

    partition: int
    leader: int | None
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions.

    Attributes:
        name: the topic's name.
        id: the topic id, sixteen bytes; all zero if the server has no topic ids.
        partitions: the description of each partition, by number.
        internal: True if the server uses it for its own state.
    """

    name: str
    id: bytes
    partitions: tuple[PartitionDescription, ...]
    internal: bool = False


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list.

    Attributes:
        group_id: the id of the group.
        type: "classic", "consumer", "share" or "streams".
        state: Kafka's name of the group state, for example "Stable".
        protocol_type: the protocol type of a classic group, for example "consumer".
    """

    group_id: str
    type: str
    state: str
    protocol_type: str = ""


class Tasks(NamedTuple):
    """Tasks of a streams member, each as subtopology and partition.

    Attributes:
        active: the tasks that process records.
        standby: the tasks that keep a copy of the state.
        warmup: the tasks that build a copy of the state before they become active.
    """

    active: tuple[tuple[str, int], ...] = ()
    standby: tuple[tuple[str, int], ...] = ()
    warmup: tuple[tuple[str, int], ...] = ()


NO_TASKS = Tasks()


@dataclass(frozen=True, slots=True)
class Topology:
    """The topology of a streams group.

    Attributes:
        epoch: the topology epoch, which rises with each change of the topology.
        source_topics: the topics that the topology reads.
        internal_topics: the repartition and changelog topics.
    """

    epoch: int
    source_topics: frozenset[str] = frozenset()
    internal_topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        member_id: the id of the member in the group.
        instance_id: the member's group instance id; None for a dynamic member.
        client_id: the client's id.
        host: the client's address.
        epoch: the member epoch; -1 in a classic group.
        assignment: the partitions that the member owns. For a streams member, these are the partitions with the numbers
            of its active tasks, in all topics that these tasks read. A topic may have fewer partitions than there are
            tasks.
        target: the partitions that the member will own after the rebalance; equal to `assignment` in a classic group.
        topics: the topic names to which the member subscribes.
        pattern: the regular expression to which the member subscribes, or None.
        rack: the name of the rack in which the member runs, or None.
        tasks: the active tasks of a streams member: subtopology and partition.
        assigned_tasks: all tasks that a streams member owns.
        target_tasks: all tasks that a streams member will own after the rebalance.
        topology_epoch: the epoch of a streams member's topology.
        classic: True for a member of a consumer group that uses the classic protocol.
        raw_assignment: the assignment of a classic group's member as the group's leader encoded it.
        assignment_decoded: False if the assignment of a classic group's member is not in the format of the consumer
            protocol.
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
    assigned_tasks: Tasks = NO_TASKS
    target_tasks: Tasks = NO_TASKS
    topology_epoch: int = -1
    classic: bool = False
    raw_assignment: bytes = b""
    assignment_decoded: bool = True


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group.

    Attributes:
        group_id: the id of the group.
        type: "classic", "consumer", "share" or "streams".
        state: the state of the group: "Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning",
            "Reconciling".
        members: the description of each member.
        epoch: the group epoch; -1 for a classic group.
        assignment_epoch: the epoch of the target assignment; -1 for a classic group.
        assignor: the name of the assignor that computed the assignment, or "".
        protocol_type: the protocol type of a classic group.
        topology: the topology of a streams group.
    """

    group_id: str
    type: str
    state: str
    members: tuple[MemberDescription, ...] = field(default=())
    epoch: int = -1
    assignment_epoch: int = -1
    assignor: str = ""
    protocol_type: str = ""
    topology: Topology | None = None


class SharePosition(NamedTuple):
    """The progress of a share group in a partition.

    Attributes:
        start: all records before this offset are acknowledged or archived; None: no member has fetched yet.
        lag: the number of records that are neither acknowledged nor archived; None: unknown.
    """

    start: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list.

    Attributes:
        transactional_id: the id that the producer configured.
        producer_id: the id of the transaction's producer.
        state: Kafka's name of the transaction state, for example "Ongoing".
    """

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id.

    Attributes:
        transactional_id: the id that the producer configured.
        producer_id: the id of the transaction's producer.
        producer_epoch: the producer's epoch, by which older producers are fenced.
        state: Kafka's name of the transaction state, for example "Ongoing".
        timeout: the seconds after which the coordinator aborts the transaction.
        started: the time at which the transaction began; None: no transaction is open.
        partitions: the partitions of the transaction.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout: float
    started: datetime | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of a producer in a partition's log.

    Attributes:
        partition: the topic and the partition.
        producer_id: the producer's id.
        producer_epoch: the producer's epoch.
        last_sequence: the sequence of the producer's last record.
        last_timestamp_ms: the time of the producer's last write, in milliseconds since the epoch; see also
            `last_timestamp`.
        coordinator_epoch: the epoch of the coordinator that ended the producer's last transaction in this partition;
            -1: no transaction has ended in this partition.
        transaction_start: the first offset of the open transaction; None: no transaction is open in this partition.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int = -1
    transaction_start: int | None = None

    @property
    def last_timestamp(self) -> datetime:
        """The time of the producer's last write, in UTC."""
        return to_datetime(self.last_timestamp_ms)


OPEN_TRANSACTION_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
"""States in which a transaction is open. An open transaction may hold back `read_committed` readers until its
coordinator ends the transaction.
"""


LONGEST_TOPIC: Final = 249
"""Number of characters of the longest name that a topic may have."""


def as_partitions(partitions: Iterable[Partition]) -> list[TopicPartition]:
    """Converts partitions, which callers may write as pairs, to `TopicPartition`.

    Raises:
        TypeError: an element is not a pair of a topic's name and a partition number.
        ValueError: a number is negative, or larger than a request can express.
    """
    return [as_partition(partition) for partition in partitions]


def as_partition(partition: Any) -> TopicPartition:
    """Converts a partition, which callers may write as a pair, to `TopicPartition`.

    Raises:
        TypeError: the argument is not a pair of a topic's name and a partition number.
        ValueError: the number is negative, or larger than a request can express.
    """
    match partition:
        case (str(topic), int(number)):
            check_partition_number(number)
            if len(topic) > LONGEST_TOPIC or not topic.isascii():
                check_text("the name of a topic", topic)
            return TopicPartition(topic, number)
    raise TypeError(f"{partition!r} is not a partition; valid: ('jobs', 0) or TopicPartition('jobs', 0)")


def to_bytes(value: Any) -> bytes | None:
    """Converts a record's key or value to bytes; text is encoded as UTF-8.

    Raises:
        TypeError: the value has another type. The caller must serialize it.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a key or value of type {type(value).__name__}; valid: bytes, str or None")
