"""All partitions that this node leads, by topic name or id: kept in step with the metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kcore.broker.configs.log_config import LogConfig
from kcore.broker.data.partition import Partition
from kcore.broker.metadata.image import ConfigType
from kcore.broker.metadata.names import is_internal
from kcore.log.interface import PartitionKey
from kcore.runtime.topics import MetadataListener

if TYPE_CHECKING:
    from kcore.log.interface import LogEngine
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.slices import Slices
    from kcore.runtime.topics import TopicInfo


def no_settings(topic: str) -> Mapping[str, Any]:
    """Kafka's defaults for every topic."""
    return {}


class TopicPartitions:
    """The partitions of one topic.

    Attributes:
        name: the topic's name.
        topic_id: its id.
        internal: whether clients must not write to it.
        partitions: by number.
        config: the settings of all of them.
    """

    __slots__ = ("config", "internal", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, config: LogConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.internal = is_internal(name)
        self.config = config
        self.partitions: list[Partition] = []

    def get(self, index: int) -> Partition | None:
        """The partition of that number, or None."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Partitions(MetadataListener):
    """The partitions of all topics. A listener of the metadata: topics come, grow, change and go by it.

    Args:
        engine: where the logs are.
        pipeline: where appends are committed.
        slices: where partitions recover that have something in their logs.
        settings: a topic's effective settings, typed, by Kafka's names.
        leader_epoch: the epoch in which this node leads; one more at each start of a node.
        on_progress: told of each watched partition that has something new for readers.

    Attributes:
        names: topic name -> its partitions.
        ids: topic id -> its partitions.
    """

    __slots__ = ("_engine", "_on_progress", "_pipeline", "_settings", "ids", "leader_epoch", "names", "slices")

    def __init__(
        self,
        engine: LogEngine,
        pipeline: CommitPipeline,
        slices: Slices,
        settings: Callable[[str], Mapping[str, Any]] = no_settings,
        *,
        leader_epoch: int | None = None,
    ) -> None:
        self._engine = engine
        self._pipeline = pipeline
        self.slices = slices
        self._settings = settings
        self._on_progress: Callable[[Partition], None] | None = None
        self.leader_epoch = engine.node_epoch if leader_epoch is None else leader_epoch
        self.names: dict[str, TopicPartitions] = {}
        self.ids: dict[bytes, TopicPartitions] = {}

    def __iter__(self) -> Iterator[Partition]:
        for topic in list(self.names.values()):
            yield from topic.partitions

    def get(self, topic: str, index: int) -> Partition | None:
        """A partition by its topic's name, or None."""
        found = self.names.get(topic)
        return found.get(index) if found is not None else None

    def when_progress(self, callback: Callable[[Partition], None]) -> None:
        """Tells one observer, for every watched partition, that readers may find something new there."""
        self._on_progress = callback
        for partition in self:
            partition.when_progress(callback)

    # ---- the metadata's listener

    def on_topic_created(self, topic: TopicInfo) -> None:
        """Opens the logs of a topic; those that do not exist are created with the next commit."""
        found = TopicPartitions(topic.name, topic.topic_id, LogConfig(self._settings(topic.name)))
        self.names[topic.name] = found
        self.ids[topic.topic_id] = found
        self._open(found, topic.partitions)

    def on_partitions_added(self, topic: TopicInfo, first: int) -> None:
        """Opens the logs of new partitions."""
        self._open(self.ids[topic.topic_id], topic.partitions)

    def on_partitions_removed(self, topic: TopicInfo, first: int) -> None:
        """Drops partitions whose creation was not committed after all."""
        found = self.ids[topic.topic_id]
        gone = found.partitions[first:]
        del found.partitions[first:]
        for partition in gone:
            self._engine.drop(PartitionKey(topic.topic_id, partition.index))
            partition.close()

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Drops the logs of a topic; who waits for its partitions learns that they are gone."""
        found = self.ids.pop(topic.topic_id, None)
        if found is None:
            return
        if self.names.get(topic.name) is found:
            del self.names[topic.name]
        for partition in found.partitions:
            self._engine.drop(PartitionKey(topic.topic_id, partition.index))
            partition.close()

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Reads a topic's settings anew; a change of the broker's may be a change of every topic's."""
        if resource_type == ConfigType.TOPIC:
            found = self.names.get(name)
            if found is not None:
                self._configure(found)
        elif resource_type == ConfigType.BROKER:
            for found in self.names.values():
                self._configure(found)

    def _configure(self, topic: TopicPartitions) -> None:
        topic.config = LogConfig(self._settings(topic.name))
        for partition in topic.partitions:
            partition.config = topic.config

    def _open(self, topic: TopicPartitions, count: int) -> None:
        for index in range(len(topic.partitions), count):
            key = PartitionKey(topic.topic_id, index)
            created = self._engine.get(key) is None
            partition = Partition(
                topic.name,
                topic.topic_id,
                index,
                self._engine.open(key),
                leader_epoch=self.leader_epoch,
                pipeline=self._pipeline,
                config=topic.config,
                internal=topic.internal,
            )
            if self._on_progress is not None:
                partition.when_progress(self._on_progress)
            topic.partitions.append(partition)
            if created:
                self._pipeline.enlist(partition)
            if partition.recovering and not topic.internal:
                # A coordinator's partition is read by its shard's load, and recovers with it.
                self.slices.add(partition.recovery())
