"""Creation of topics: Kafka's checks in Kafka's order, and the plan of the new topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kcore.broker.configs.topic_effective import read_topic_settings
from kcore.broker.configs.values import MAX_VALUE_LENGTH, InvalidValueError
from kcore.broker.metadata.internal_topics import InternalTopic, internal_topic
from kcore.broker.metadata.names import METADATA_TOPIC_ID, collision_key, name_fault
from kcore.broker.metadata.partition_range import MetadataItem, new_partitions
from kcore.broker.metadata.records import topic_records
from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.uuids import to_text

if TYPE_CHECKING:
    from kcore.broker.metadata.image import MetadataImage
    from kcore.config.node import Config
    from kcore.protocol.messages.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
    )
    from kcore.runtime.cluster import ClusterView

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Maximum number of new partitions in one request, as in Kafka. One batch of the metadata log contains all of them."""

DEFAULT = -1
"""Value in a request for the default number of partitions or replicas."""


class NewTopic(NamedTuple):
    """A planned topic that has passed the checks.

    Attributes:
        name: the topic's name.
        topic_id: the topic's id, 16 bytes.
        settings: the topic's own settings, as requested.
        assignments: for each partition, the node ids of its replicas, the leader first.
    """

    name: str
    topic_id: bytes
    settings: dict[str, str]
    assignments: Sequence[tuple[int, ...]]

    def records(self) -> list[MetadataItem]:
        """Makes the records that create the topic."""
        records: list[MetadataItem] = [*topic_records(self.name, self.topic_id, self.settings, ())]
        return records + new_partitions(self.topic_id, 0, self.assignments)


class TopicCreation:
    """The checks and the plan of new topics.

    Args:
        config: the node's settings.
        cluster: the cluster's nodes.
        new_id: returns sixteen random bytes.
    """

    __slots__ = ("_cluster", "_config", "_new_id")

    def __init__(self, config: Config, cluster: ClusterView, new_id: Callable[[], bytes]) -> None:
        self._config = config
        self._cluster = cluster
        self._new_id = new_id

    def plan(self, image: MetadataImage, topic: CreatableTopic) -> NewTopic:
        """Checks and plans a requested topic.

        Args:
            image: the existing topics.
            topic: the requested topic.

        Raises:
            KafkaError: the topic cannot be created; the code belongs to the first of Kafka's checks that fails.
        """
        check_name(image, topic.name)
        settings = self._settings(topic.configs)
        if topic.assignments:
            if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "a topic with a replica assignment must have -1 as number of partitions and as replication factor",
                )
            assignments = self._assigned(topic.assignments)
        else:
            factor = self._factor(topic.replication_factor)
            assignments = self.placed(0, self._count(topic.num_partitions), factor)
        return NewTopic(topic.name, self._fresh_id(image), settings, assignments)

    def automatic(self, image: MetadataImage, name: str) -> NewTopic:
        """Plans a topic that is created automatically on first use.

        Internal topics have their own settings and their own numbers of partitions and replicas.

        Raises:
            KafkaError: the topic cannot be created.
        """
        check_name(image, name)
        internal = internal_topic(name, self._config)
        if internal is None:
            internal = InternalTopic(self._config.num_partitions, self._config.default_replication_factor, {})
        partitions, factor, settings = internal
        if partitions > MAX_PARTITIONS_PER_REQUEST:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {name} would have {partitions} partitions; one request may create at most "
                f"{MAX_PARTITIONS_PER_REQUEST}",
            )
        return NewTopic(name, self._fresh_id(image), settings, self.placed(0, partitions, factor))

    def total_partitions(self, topics: Iterable[CreatableTopic]) -> int:
        """Returns the number of partitions that these topics would have in total.

        A negative count is invalid and counts as 0, so that it does not reduce the total of the other topics.
        """
        return sum(
            len(topic.assignments)
            or (self._config.num_partitions if topic.num_partitions == DEFAULT else max(0, topic.num_partitions))
            for topic in topics
        )

    def placed(self, first: int, partitions: int, factor: int) -> list[tuple[int, ...]]:
        """Assigns new partitions to nodes.

        Args:
            first: number of the first new partition.
            partitions: number of new partitions.
            factor: number of replicas of each.

        Raises:
            KafkaError: INVALID_REPLICATION_FACTOR if the cluster has fewer nodes.
        """
        nodes = self._cluster.placement_order(factor)
        if factor > len(nodes):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{factor} replicas were requested, and the cluster has {len(nodes)} nodes",
            )
        rings = [tuple(nodes[(start + copy) % len(nodes)] for copy in range(factor)) for start in range(len(nodes))]
        return [rings[index % len(rings)] for index in range(first, first + partitions)]

    def checked_replicas(self, replicas: Sequence[int], factor: int | None) -> tuple[int, ...]:
        """Checks the nodes that a client assigned to a partition.

        Args:
            replicas: the nodes, the leader first.
            factor: the required number of nodes; None: any number.

        Raises:
            KafkaError: INVALID_REPLICA_ASSIGNMENT if the assignment is not valid.
        """
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if not replicas:
            raise KafkaError(code, "the assignment of a partition names no node")
        for node in replicas:
            if node not in self._cluster.nodes:
                raise KafkaError(code, f"node {node} is not in the cluster")
        if len(set(replicas)) != len(replicas):
            raise KafkaError(code, f"the assignment names a node twice: {list(replicas)}")
        if factor is not None and len(replicas) != factor:
            raise KafkaError(
                code, f"the assignment of a partition has {len(replicas)} nodes; the other partitions have {factor}"
            )
        return tuple(replicas)

    # ---- the parts of a plan

    def _settings(self, configs: Iterable[CreatableTopicConfig]) -> dict[str, str]:
        given = {config.name: config.value for config in configs}  # the last value of a duplicate setting counts
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"settings without a value: {', '.join(missing)}")
        settings = {name: value for name, value in given.items() if value is not None}
        check_settings(settings, self._config)
        return settings

    def _assigned(self, assignments: Sequence[CreatableReplicaAssignment]) -> list[tuple[int, ...]]:
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        by_index: dict[int, tuple[int, ...]] = {}
        factor: int | None = None
        for assignment in assignments:
            if assignment.partition_index in by_index:
                raise KafkaError(code, f"partition {assignment.partition_index} is assigned twice")
            replicas = self.checked_replicas(assignment.broker_ids, factor)
            factor = len(replicas)
            by_index[assignment.partition_index] = replicas
        if by_index.keys() != set(range(len(by_index))):
            raise KafkaError(
                code, f"the assignment must have the partitions 0 to {len(by_index) - 1}, found {sorted(by_index)}"
            )
        return [by_index[index] for index in range(len(by_index))]

    def _factor(self, factor: int) -> int:
        if factor == DEFAULT:
            return self._config.default_replication_factor
        if factor < 1:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {factor}; valid: 1 or more, or -1 for the default",
            )
        return factor

    def _count(self, partitions: int) -> int:
        if partitions == DEFAULT:
            return self._config.num_partitions
        if partitions < 1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; valid: 1 or more, or -1 for the default"
            )
        return partitions

    def _fresh_id(self, image: MetadataImage) -> bytes:
        """Returns a random unused id whose text has no leading dash, which would look like a command line option."""
        while True:
            topic_id = self._new_id()
            if (
                topic_id not in image.ids
                and topic_id not in {bytes(16), METADATA_TOPIC_ID}
                and not to_text(topic_id).startswith("-")
            ):
                return topic_id


def check_name(image: MetadataImage, name: str) -> None:
    """Checks the name of a new topic.

    Raises:
        KafkaError: the name is illegal, in use, or collides with another.
    """
    fault = name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if image.by_name(name) is not None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    if collision_key(name) in image.collisions:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} differs from an existing topic only in dots and underscores"
        )


def check_settings(settings: Mapping[str, str], config: Config) -> None:
    """Checks the settings of a topic.

    Raises:
        KafkaError: INVALID_CONFIG if a setting is not valid.
    """
    for name, value in settings.items():
        if len(value) > MAX_VALUE_LENGTH:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"the value of {name} is longer than {MAX_VALUE_LENGTH} characters"
            )
    try:
        read_topic_settings(settings, config)
    except InvalidValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
