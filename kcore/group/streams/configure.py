"""The configuration of a topology: the partition counts of its internal topics, and the number of tasks.

If topics are missing or have wrong partition counts (`TopicFault`), the topology is not ready, and no task is assigned.
Heartbeat responses report this as a status. If the topology itself is invalid, the heartbeat fails with an error.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from enum import Enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.errors import KafkaError
from kcore.group.streams.topology import Topology, input_topics, internal_topics
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.sliced import step

if TYPE_CHECKING:
    from kcore.protocol.records.streams_group_topology import Subtopology, TopicInfo
    from kcore.runtime.topics import TopicImage

NAME_COST_US: Final = 1
"""The cost of one topic name in each step of the configuration, in microseconds."""

UNDECIDED: Final = 0
"""The partition count in a request that leaves the count of a topic to the coordinator."""

MAX_TASKS: Final = 50_000
"""Maximum number of tasks of a topology.

The assignor spends about 2 µs on each task, and the node serves no other request meanwhile.
"""

LISTED_TOPICS: Final = 3
"""Maximum number of topics that a status lists by name. For further topics, the status shows only their number."""

MAX_TEXT: Final = 4_000
"""Maximum number of characters of a status or error message in a response.

The protocol allows 32,767 bytes, which a single topic name in the text may already reach.
"""


class Status(Enum):
    """The statuses of a heartbeat response; the value is Kafka's code."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicFault(NamedTuple):
    """The reason why a topology is not ready, as a status of heartbeat responses.

    Attributes:
        status: the status, for example MISSING_SOURCE_TOPICS.
        detail: the text of the status.
    """

    status: Status
    detail: str


class InternalTopic(NamedTuple):
    """An internal topic of a topology, with the partition count that it must have.

    Attributes:
        name: the topic's name.
        partitions: the partition count that the configuration requires.
        replication_factor: the requested number of replicas; 0 for the broker's default.
        settings: the topic's own settings.
    """

    name: str
    partitions: int
    replication_factor: int
    settings: dict[str, str]


class ConfiguredSubtopology(NamedTuple):
    """A subtopology whose partition counts are known.

    Attributes:
        tasks: the number of tasks.
        stateful: True if the subtopology has changelog topics.
        inputs: the topics that the subtopology reads.
        internal: the internal topics of the subtopology, by name.
    """

    tasks: int
    stateful: bool
    inputs: tuple[str, ...]
    internal: dict[str, InternalTopic]


class ConfiguredTopology(NamedTuple):
    """A topology with the partition counts that follow from the existing topics. It exists only in memory.

    Attributes:
        epoch: the topology's epoch.
        subtopologies: by id, in order of the ids; None if their partition counts cannot be decided.
        missing: internal topics that must be created, by name.
        fault: the reason why the topology is not ready; None if it is ready.
    """

    epoch: int
    subtopologies: dict[str, ConfiguredSubtopology] | None
    missing: dict[str, InternalTopic]
    fault: TopicFault | None

    @property
    def is_ready(self) -> bool:
        """True if tasks can be assigned."""
        return self.fault is None


class _FaultError(Exception):
    """An exception that ends the configuration of a topology because of a `TopicFault`."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.fault = TopicFault(status, detail)


def configure(topology: Topology, topics: TopicImage) -> ConfiguredTopology:
    """Configures a topology: computes its partition counts and tasks from the existing topics.

    Raises:
        KafkaError: STREAMS_INVALID_TOPOLOGY for a loop, a repartition topic that no subtopology writes, or a
            subtopology without input. As in Kafka, UNKNOWN_SERVER_ERROR for a co-partition group with an unknown topic,
            or an internal topic with a negative partition count.
    """
    configured: ConfiguredTopology = step(configure_in_steps(topology, topics), -1)[1]
    return configured


def configure_in_steps(topology: Topology, topics: TopicImage) -> Generator[int, None, ConfiguredTopology]:
    """Configures a topology like `configure`, in steps; yields the cost of each step in microseconds.

    If a topic changes between two steps, the caller must not use the result.
    """
    try:
        return (yield from _Configuration(topology, topics).steps())
    except _FaultError as error:
        return ConfiguredTopology(topology.epoch, None, {}, error.fault)


def shortened(text: str) -> str:
    """Shortens a text to about `MAX_TEXT` characters, so that it can be encoded in a response."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def _has(topics: Sequence[object], positions: Iterable[int]) -> bool:
    return all(0 <= position < len(topics) for position in positions)


def summary(names: Iterable[str]) -> str:
    """Formats at most `LISTED_TOPICS` names in alphabetical order, and the number of further names."""
    ordered = sorted(names)
    text = ", ".join(ordered[:LISTED_TOPICS])
    more = len(ordered) - LISTED_TOPICS
    return f"{text} and {more} more" if more > 0 else text


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


class _Configuration:
    """The configuration of one topology in progress, with the partition counts that it has decided so far."""

    __slots__ = ("_decided", "_fixed_count", "_parts", "_topics", "_topology")

    def __init__(self, topology: Topology, topics: TopicImage) -> None:
        self._topology = topology
        self._topics = topics
        self._parts = topology.subtopologies.values()
        self._decided: dict[str, int] = {}
        self._fixed_count: int | None = None

    def steps(self) -> Generator[int, None, ConfiguredTopology]:
        """Decides all partition counts, and compares them with the existing topics.

        Yields the cost of each step in microseconds.
        """
        cost = NAME_COST_US * len(self._topology.required_topics)
        self._check_sources()
        yield cost
        self._decided = self._repartition_counts()
        yield cost
        self._enforce_copartitions()
        yield cost
        self._decide_changelogs()
        yield cost
        parts = {part.subtopology_id: self._configured_part(part) for part in self._parts}
        yield cost
        missing = self._missing(parts)
        fault = None
        if missing:
            fault = TopicFault(Status.MISSING_INTERNAL_TOPICS, f"the internal topics {summary(missing)} are missing")
        else:
            _check_tasks(sum(part.tasks for part in parts.values()))
        return ConfiguredTopology(self._topology.epoch, dict(sorted(parts.items())), missing, fault)

    def _existing(self, name: str) -> int | None:
        topic = self._topics.by_name(name)
        return None if topic is None else topic.partitions

    def _count(self, name: str) -> int | None:
        """Returns the partition count of a topic: the count of the existing topic, or else the count that this
        configuration has computed. None if there is neither.
        """
        existing = self._existing(name)
        return self._decided.get(name) if existing is None else existing

    def _known_count(self, name: str) -> int:
        count = self._count(name)
        if count is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the partition count of {name} is unknown")
        return count

    def _check_sources(self) -> None:
        missing = {name for part in self._parts for name in part.source_topics if self._existing(name) is None}
        if missing:
            raise _FaultError(Status.MISSING_SOURCE_TOPICS, f"the source topics {summary(missing)} are missing")

    # ---- repartition topics

    def _repartition_counts(self) -> dict[str, int]:
        """Returns the partition count of each repartition topic.

        The topology may fix the count. Otherwise it is the largest count of the inputs of the subtopology that writes
        to the topic.

        Kafka visits all sinks repeatedly until every count is known. This method visits the sinks in the same order,
        by a heap. It visits each sink only once, when the count of an input of its subtopology is known.
        """
        sinks = [(part, name) for part in self._parts for name in part.repartition_sink_topics]
        positions: dict[str, list[int]] = {}
        for position, (part, _) in enumerate(sinks):
            positions.setdefault(part.subtopology_id, []).append(position)
        readers: dict[str, list[str]] = {}
        for part in self._parts:
            for topic in part.repartition_source_topics:
                readers.setdefault(topic.name, []).append(part.subtopology_id)
        largest: dict[str, int] = {}  # known input counts, by subtopology
        due: list[tuple[int, int]] = []  # (sweep, position) of sinks

        def add_input(part_id: str, count: int, sweep: int, position: int) -> None:
            if part_id not in largest:
                for sink in positions.get(part_id, ()):
                    heappush(due, (sweep if sink > position else sweep + 1, sink))
            largest[part_id] = max(count, largest.get(part_id, 0))

        for part in self._parts:
            for source in part.source_topics:
                add_input(part.subtopology_id, self._known_count(source), 0, -1)
        counts: dict[str, int] = {}
        for topic in self._repartition_sources():
            if topic.partitions:
                counts[topic.name] = topic.partitions
        for name, count in counts.items():
            for part_id in readers[name]:
                add_input(part_id, count, 0, -1)
        while due:
            sweep, position = heappop(due)
            part, name = sinks[position]
            if name not in counts:
                counts[name] = largest[part.subtopology_id]
                for part_id in readers.get(name, ()):
                    add_input(part_id, counts[name], sweep, position)
        looping = {name for _, name in sinks if name not in counts}
        if looping:
            raise _invalid(f"repartition topics depend on each other in a loop: {summary(looping)}")
        unwritten = {topic.name for topic in self._repartition_sources() if topic.name not in counts}
        if unwritten:
            raise _invalid(f"no subtopology writes the repartition topics {summary(unwritten)}")
        return counts

    def _repartition_sources(self) -> list[TopicInfo]:
        return [topic for part in self._parts for topic in part.repartition_source_topics]

    # ---- co-partitioned topics

    def _enforce_copartitions(self) -> None:
        fixed = {topic.name for topic in self._repartition_sources() if topic.partitions}
        flexible = {topic.name for topic in self._repartition_sources() if not topic.partitions}
        for part in self._parts:
            for group in part.copartition_groups:
                if not _has(part.source_topics, group.source_topics) or not _has(
                    part.repartition_source_topics, group.repartition_source_topics
                ):
                    message = f"a co-partition group of subtopology {part.subtopology_id} names an unknown topic"
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
                names = {part.source_topics[i] for i in group.source_topics}
                names |= {part.repartition_source_topics[i].name for i in group.repartition_source_topics}
                if names:
                    self._enforce(names, fixed, flexible)

    def _enforce(self, names: set[str], fixed: set[str], flexible: set[str]) -> None:
        """Sets the same partition count for all repartition topics of a co-partition group.

        If the co-partition group has other topics, the count is their common partition count. Otherwise it is the count
        that the topology fixes for repartition topics, or else the largest count in the co-partition group.
        """
        repartition = {name: self._known_count(name) for name in names if name in fixed or name in flexible}
        others = {name: self._known_count(name) for name in names if name not in repartition}
        if others:
            count = _same_count(others, others)
        elif fixed:
            # Fixed counts never change, so all co-partition groups share one check of them.
            if self._fixed_count is None:
                self._fixed_count = _same_count({name: self._known_count(name) for name in fixed}, repartition)
            count = self._fixed_count
        else:
            count = max(repartition.values())
            if not count:
                raise _invalid(f"no partition count is known for the co-partitioned topics {summary(names)}")
        for name, present in repartition.items():
            if name in fixed and present != count:
                raise _FaultError(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"the repartition topic {name} has {present} partitions, and its co-partitioned topics have "
                    f"{count}",
                )
            self._decided[name] = count

    # ---- changelogs, tasks, existing topics

    def _decide_changelogs(self) -> None:
        for part in self._parts:
            counts = [self._known_count(name) for name in input_topics(part)]
            if not counts:
                raise _invalid(f"subtopology {part.subtopology_id} has no input topic")
            for topic in part.state_changelog_topics:
                self._decided[topic.name] = max(counts)

    def _configured_part(self, part: Subtopology) -> ConfiguredSubtopology:
        inputs = tuple(dict.fromkeys(input_topics(part)))
        internal = {}
        for topic in internal_topics(part):
            count = topic.partitions or self._decided[topic.name]
            if count < 1:
                message = f"the internal topic {topic.name} has {count} partitions; the count must be 1 or more"
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
            settings = {config.key: config.value for config in topic.topic_configs}
            internal[topic.name] = InternalTopic(topic.name, count, topic.replication_factor, settings)
        tasks = max(map(self._known_count, inputs))
        return ConfiguredSubtopology(tasks, bool(part.state_changelog_topics), inputs, internal)

    def _missing(self, parts: Mapping[str, ConfiguredSubtopology]) -> dict[str, InternalTopic]:
        """Returns the internal topics of the topology that do not exist, by name.

        Raises:
            _FaultError: an existing internal topic has another partition count than the configuration requires.
        """
        missing: dict[str, InternalTopic] = {}
        internal = {name: topic for _, part in sorted(parts.items()) for name, topic in part.internal.items()}
        for name, topic in internal.items():
            existing = self._existing(name)
            if existing is None:
                missing[name] = topic
            elif existing != topic.partitions:
                raise _FaultError(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"the existing topic {name} has {existing} partitions, but {topic.partitions} are needed",
                )
        return missing


def _check_tasks(tasks: int) -> None:
    """Checks that there are not too many tasks.

    A topology could have billions of tasks, if many subtopologies read the same large topics.

    Raises:
        _FaultError: there are more than `MAX_TASKS` tasks.
    """
    if tasks > MAX_TASKS:
        raise _FaultError(
            Status.INCORRECTLY_PARTITIONED_TOPICS, f"the topology has {tasks} tasks, the maximum is {MAX_TASKS}"
        )


def _same_count(counts: Mapping[str, int], shown: Mapping[str, int]) -> int:
    """Returns the partition count that all co-partitioned topics have.

    Raises:
        _FaultError: the counts differ. The text of the error lists the topics in `shown` with their counts.
    """
    distinct = set(counts.values())
    if len(distinct) > 1:
        text = ", ".join(f"{name}={count}" for name, count in sorted(shown.items()))
        raise _FaultError(
            Status.INCORRECTLY_PARTITIONED_TOPICS, f"co-partitioned topics have different partition counts: {text}"
        )
    return distinct.pop()
