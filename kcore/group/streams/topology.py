"""The topology of a Kafka Streams application: subtopologies with their input and internal topics."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kcore.errors import KafkaError
from kcore.group.metadata_bound import TOPIC_BYTES
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.records.streams_group_topology import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from kcore.runtime.sliced import step

if TYPE_CHECKING:
    from kcore.protocol.messages.streams_group_heartbeat import Topology as RequestedTopology


PARTS_PER_STEP: Final = 100
PART_COST_US: Final = 5
"""The cost of converting one subtopology, in microseconds."""
PART_BYTES: Final = 512
"""The memory of a subtopology without topics, in bytes."""
CONFIG_BYTES: Final = 256
"""The memory of a setting of an internal topic besides its characters, in bytes."""
COPARTITION_BYTES: Final = 256
"""The memory of a group of co-partitioned topics without entries, in bytes."""


class Topology:
    """A topology as the group's record stores it, and the value of that record. Immutable.

    Args:
        value: the value of the group's record.
        size_bytes: the estimated memory of the topology; None: the constructor computes it from `value`.

    Attributes:
        value: the value of the group's record.
        epoch: the version of the topology, which the application sets.
        subtopologies: by id.
        required_topics: every topic that must exist before tasks are assigned.
        subtopology_of: subtopology id by input topic (source or repartition source).
        size_bytes: the estimated memory of the topology, limited by `kcore.group.metadata_bound`.
    """

    __slots__ = ("epoch", "required_topics", "size_bytes", "subtopologies", "subtopology_of", "value")

    def __init__(self, value: StreamsGroupTopologyValue, size_bytes: int | None = None) -> None:
        self.value = value
        self.size_bytes = sum(map(_part_bytes, value.subtopologies)) if size_bytes is None else size_bytes
        self.epoch = value.epoch
        self.subtopologies: dict[str, Subtopology] = {part.subtopology_id: part for part in value.subtopologies}
        self.required_topics: frozenset[str] = frozenset(
            name for part in self.subtopologies.values() for name in _required(part)
        )
        self.subtopology_of: dict[str, str] = {
            name: part.subtopology_id for part in self.subtopologies.values() for name in input_topics(part)
        }

    def __eq__(self, other: object) -> bool:
        """Returns True for equal epochs and contents. The order of a list matters, except for the list of
        subtopologies.
        """
        if not isinstance(other, Topology):
            return NotImplemented
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies

    __hash__ = None  # type: ignore[assignment]  # compared, never a key

    def encode_value(self, version: int) -> bytes:
        """Encodes the value of the topology's record."""
        return self.value.encode_value(version)

    def __repr__(self) -> str:
        return f"<Topology epoch {self.epoch} {sorted(self.subtopologies)}>"


def input_topics(part: Subtopology) -> Iterator[str]:
    """Yields the topics that a subtopology reads: sources, then repartition sources."""
    yield from part.source_topics
    for topic in part.repartition_source_topics:
        yield topic.name


def internal_topics(part: Subtopology) -> Iterator[TopicInfo]:
    """Yields the internal topics of a subtopology: repartition sources, then changelogs."""
    yield from part.repartition_source_topics
    yield from part.state_changelog_topics


def named_topics(topology: RequestedTopology) -> Iterator[str]:
    """Yields every topic name in a request's topology; a name may occur more than once."""
    for part in topology.subtopologies:
        yield from part.source_topics
        yield from part.repartition_sink_topics
        for topic in internal_topics(part):  # type: ignore[arg-type]  # the fields are those of the record
            yield topic.name


def from_request(topology: RequestedTopology) -> Topology:
    """Converts a request's topology to a `Topology`.

    Raises:
        KafkaError: `refuse_impossible` refuses the topology.
    """
    converted: Topology = step(from_request_in_steps(topology), -1)[1]
    return converted


def refuse_impossible(topology: RequestedTopology) -> None:
    """Refuses a topology that cannot be stored, because it has a negative epoch or two subtopologies with the same id.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR without a message, as in Kafka.
    """
    parts = topology.subtopologies
    if topology.epoch < 0 or len({part.subtopology_id for part in parts}) < len(parts):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def from_request_in_steps(topology: RequestedTopology) -> Generator[int, None, Topology]:
    """Converts a topology like `from_request`, in steps; yields the cost of each step in microseconds.

    Raises:
        KafkaError: `refuse_impossible` refuses the topology.
    """
    refuse_impossible(topology)
    parts = topology.subtopologies
    converted: list[Subtopology] = []
    size_bytes = 0
    for first in range(0, len(parts), PARTS_PER_STEP):
        some = [_subtopology(part) for part in parts[first : first + PARTS_PER_STEP]]
        converted += some
        size_bytes += sum(map(_part_bytes, some))
        yield PART_COST_US * PARTS_PER_STEP
    return Topology(StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=tuple(converted)), size_bytes)


def is_same(requested: RequestedTopology, topology: Topology) -> bool:
    """Returns True if a request's topology equals the group's topology.

    Does not convert the requested topology, because every join calls this function.

    Raises:
        KafkaError: `refuse_impossible` refuses the requested topology.
    """
    refuse_impossible(requested)
    parts = requested.subtopologies
    if requested.epoch != topology.epoch or len(parts) != len(topology.subtopologies):
        return False
    for part in parts:  # their ids differ
        present = topology.subtopologies.get(part.subtopology_id)
        if present is None or not _is_same_part(part, present):
            return False
    return True


def _is_same_part(part: Any, present: Subtopology) -> bool:
    return (
        tuple(part.source_topics) == tuple(present.source_topics)
        and tuple(part.source_topic_regex) == tuple(present.source_topic_regex)
        and tuple(part.repartition_sink_topics) == tuple(present.repartition_sink_topics)
        and _topics(part.state_changelog_topics) == tuple(present.state_changelog_topics)
        and _topics(part.repartition_source_topics) == tuple(present.repartition_source_topics)
        and _copartitions(part.copartition_groups) == tuple(present.copartition_groups)
    )


def _required(part: Subtopology) -> Iterator[str]:
    yield from input_topics(part)
    for topic in part.state_changelog_topics:
        yield topic.name


def _subtopology(part: Any) -> Subtopology:
    return Subtopology(
        subtopology_id=part.subtopology_id,
        source_topics=tuple(part.source_topics),
        source_topic_regex=tuple(part.source_topic_regex),
        state_changelog_topics=_topics(part.state_changelog_topics),
        repartition_sink_topics=tuple(part.repartition_sink_topics),
        repartition_source_topics=_topics(part.repartition_source_topics),
        copartition_groups=_copartitions(part.copartition_groups),
    )


def _part_bytes(part: Subtopology) -> int:
    """Returns the estimated memory of a subtopology for the metadata limit, in bytes."""
    names = (part.subtopology_id, *part.source_topics, *part.source_topic_regex, *part.repartition_sink_topics)
    size_bytes = PART_BYTES + TOPIC_BYTES * (len(names) - 1) + sum(map(len, names))
    for topic in internal_topics(part):
        size_bytes += TOPIC_BYTES + len(topic.name)
        for config in topic.topic_configs:
            size_bytes += CONFIG_BYTES + len(config.key) + len(config.value)
    for group in part.copartition_groups:
        numbers = len(group.source_topics) + len(group.source_topic_regex) + len(group.repartition_source_topics)
        size_bytes += COPARTITION_BYTES + 8 * numbers
    return size_bytes


def _copartitions(groups: Sequence[Any]) -> tuple[CopartitionGroup, ...]:
    return tuple(
        CopartitionGroup(
            source_topics=tuple(group.source_topics),
            source_topic_regex=tuple(group.source_topic_regex),
            repartition_source_topics=tuple(group.repartition_source_topics),
        )
        for group in groups
    )


def _topics(topics: Sequence[Any]) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=tuple(TopicConfig(key=config.key, value=config.value) for config in topic.topic_configs),
        )
        for topic in topics
    )
