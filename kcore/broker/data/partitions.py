"""All partitions that this node leads, by topic name or id, updated with the metadata."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kcore.broker.configs.log_config import LogConfig
from kcore.broker.data.partition import Partition
from kcore.broker.metadata.image import ConfigType
from kcore.broker.metadata.names import is_internal
from kcore.log.interface import PartitionKey
from kcore.printable import counted
from kcore.process_logging import log_failure
from kcore.runtime.topics import MetadataListener
from kcore_ext.broker.topic_traffic import TopicTraffic

if TYPE_CHECKING:
    from kcore.log.interface import LogEngine, PartitionLog
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.slices import Slices
    from kcore.runtime.topics import TopicInfo


logger = logging.getLogger(__name__)

OPENED_AT_ONCE = 500
"""Maximum number of logs that are opened in one step; the other logs of a topic are opened in slices."""

CONFIGURED_AT_ONCE = 500
"""Number of topics that a slice configures after a change of the broker's settings."""


def no_settings(topic: str) -> Mapping[str, Any]:
    """Returns no settings: every topic has Kafka's defaults."""
    return {}


class TopicPartitions:
    """The partitions of one topic.

    Attributes:
        name: the topic's name.
        topic_id: the topic's id, 16 bytes.
        internal: True if clients must not write to the topic.
        partitions: the partitions by number.
        size: the number of partitions that the topic has in the metadata; larger than `len(partitions)` while their
            logs are opened.
        config: the settings of all partitions.
        traffic: counts the records that clients write and read.
    """

    __slots__ = ("config", "internal", "name", "partitions", "size", "topic_id", "traffic")

    def __init__(self, name: str, topic_id: bytes, config: LogConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.internal = is_internal(name)
        self.config = config
        self.partitions: list[Partition] = []
        self.size = 0
        self.traffic = TopicTraffic()

    def get(self, index: int) -> Partition | None:
        """Returns the partition with this number, or None."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Partitions(MetadataListener):
    """The partitions of all topics. As a listener of the metadata it creates, extends, configures and drops them.

    Args:
        engine: the log engine, which contains the logs.
        pipeline: commits appends.
        slices: runs the recovery of partitions whose logs are not empty.
        settings: returns a topic's effective settings, typed, by Kafka's names.
        leader_epoch: the epoch in which this node leads; it increases by one at each start of a node.
        recover: makes the sliced recovery of a partition. An engine passes `RecoveryRetry.recover`, which repeats
            failed recoveries.

    Attributes:
        names: topic name -> its partitions.
        ids: topic id -> its partitions.
        opening: topics whose logs are being opened in slices. A partition is unknown until its log is open. This is as
            in Kafka, where a broker opens logs after the controller has created the topic.
        outdated: names of the topics that have not read their settings since the broker's settings changed. If there
            are many topics, slices read them; until then a topic keeps the settings from before the change.
        deleted_traffic: the traffic of topics that were deleted.
    """

    __slots__ = (
        "_engine",
        "_on_progress",
        "_pipeline",
        "_recover",
        "_settings",
        "deleted_traffic",
        "ids",
        "leader_epoch",
        "names",
        "opening",
        "outdated",
        "slices",
    )

    def __init__(
        self,
        engine: LogEngine,
        pipeline: CommitPipeline,
        slices: Slices,
        settings: Callable[[str], Mapping[str, Any]] = no_settings,
        *,
        leader_epoch: int | None = None,
        recover: Callable[[Partition], Iterator[None]] = Partition.recovery,
    ) -> None:
        self._engine = engine
        self._pipeline = pipeline
        self.slices = slices
        self._settings = settings
        self._recover = recover
        self._on_progress: Callable[[Partition], None] | None = None
        self.leader_epoch = engine.node_epoch if leader_epoch is None else leader_epoch
        self.names: dict[str, TopicPartitions] = {}
        self.ids: dict[bytes, TopicPartitions] = {}
        self.opening: set[TopicPartitions] = set()
        self.outdated: list[str] = []
        self.deleted_traffic = TopicTraffic()

    def __iter__(self) -> Iterator[Partition]:
        for topic in list(self.names.values()):
            yield from topic.partitions

    def get(self, topic: str, index: int) -> Partition | None:
        """Returns a partition by its topic's name, or None."""
        partitions = self.names.get(topic)
        return partitions.get(index) if partitions is not None else None

    def high_watermark(self, topic: str, index: int) -> int | None:
        """Returns the committed end of a partition; None if this node does not lead it."""
        partition = self.get(topic, index)
        return None if partition is None else partition.high_watermark

    def when_progress(self, callback: Callable[[Partition], None]) -> None:
        """Sets the callback for progress in any watched partition: new data, a moved log start or a deletion."""
        self._on_progress = callback
        for partition in self:
            partition.when_progress(callback)

    # ---- the metadata's listener

    def on_metadata_unloaded(self) -> None:
        """Refuses appends to partitions whose creation failed, because their topic may be missing in the metadata."""
        self._engine.permit_recreation(False)

    def on_metadata_loaded(self) -> None:
        """Permits appends to partitions whose creation failed, because the loaded metadata has their topics."""
        self._engine.permit_recreation(True)

    def on_topic_created(self, topic: TopicInfo) -> None:
        """Opens the logs of a topic; the next commit creates logs that are missing."""
        partitions = TopicPartitions(topic.name, topic.topic_id, LogConfig(self._settings(topic.name)))
        self.names[topic.name] = partitions
        self.ids[topic.topic_id] = partitions
        self._open(partitions, topic.partitions)

    def on_partitions_added(self, topic: TopicInfo, first: int) -> None:
        """Opens the logs of new partitions."""
        self._open(self.ids[topic.topic_id], topic.partitions)

    def on_partitions_removed(self, topic: TopicInfo, first: int) -> None:
        """Drops partitions whose creation could not be committed."""
        self.ids[topic.topic_id].size = first
        partitions = self.ids[topic.topic_id].partitions
        removed = partitions[first:]
        del partitions[first:]
        for partition in removed:
            self._engine.drop(PartitionKey(topic.topic_id, partition.index))
            partition.close()

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        """Drops the logs of a topic and completes the requests that wait for its partitions."""
        partitions = self.ids.pop(topic.topic_id, None)
        if partitions is None:
            return
        self.deleted_traffic.add(partitions.traffic)
        if self.names.get(topic.name) is partitions:
            del self.names[topic.name]
        for partition in partitions.partitions:
            self._engine.drop(PartitionKey(topic.topic_id, partition.index))
            partition.close()

    def on_config_changed(self, resource_type: int, name: str) -> None:
        """Reads the changed topic's settings again.

        If the broker's settings changed, reads the settings of all topics.
        """
        if resource_type == ConfigType.TOPIC:
            changed = self.names.get(name)
            if changed is not None:
                self._configure(changed)
        elif resource_type == ConfigType.BROKER:
            self._configure_all()

    def _configure_all(self) -> None:
        """Reads the settings of all topics again, in slices if there are many topics and the driver runs slices."""
        if len(self.names) <= CONFIGURED_AT_ONCE or not self.slices.requests.enabled:
            self.outdated = []
            for changed in self.names.values():
                self._configure(changed)
            return
        outdated = list(self.names)
        outdated.reverse()  # `pop` takes the last name: topics are configured in order of creation
        self.outdated = outdated
        self.slices.add(self._configure_outdated(outdated))

    def _configure_outdated(self, outdated: list[str]) -> Iterator[None]:
        """Reads the settings of outdated topics, unless another change has made all topics outdated again."""
        while outdated and outdated is self.outdated:
            try:
                for _ in range(min(CONFIGURED_AT_ONCE, len(outdated))):
                    changed = self.names.get(outdated[-1])
                    if changed is not None:
                        self._configure(changed)
                    outdated.pop()
            except MemoryError as error:
                log_failure(
                    logger,
                    error,
                    "broker: out of memory while applying the changed broker settings to topics; %s must still get the "
                    "new settings; kcore tries again; reduce the load, or add memory to the machine",
                    counted(len(outdated), "topics"),
                )
            yield

    def _configure(self, topic: TopicPartitions) -> None:
        topic.config = LogConfig(self._settings(topic.name))
        for partition in topic.partitions:
            partition.config = topic.config

    def _open(self, topic: TopicPartitions, size: int) -> None:
        """Opens the logs of a topic with `size` partitions, many of them in slices if the driver runs slices."""
        topic.size = size
        if topic in self.opening:
            return
        if topic.internal or not self.slices.requests.enabled:
            self._open_until(topic, size)
            return
        self._open_until(topic, min(size, len(topic.partitions) + OPENED_AT_ONCE))
        if len(topic.partitions) < size:
            self.opening.add(topic)
            self.slices.add(self._open_rest(topic), topic.name)

    def _open_rest(self, topic: TopicPartitions) -> Iterator[None]:
        """Opens the remaining logs of a topic in slices, until the topic is deleted or its creation fails."""
        while len(topic.partitions) < topic.size and self.ids.get(topic.topic_id) is topic:
            try:
                self._open_until(topic, min(topic.size, len(topic.partitions) + OPENED_AT_ONCE))
            except MemoryError as error:
                log_failure(
                    logger,
                    error,
                    "topic %s: out of memory while opening its partitions; kcore tries again; reduce the load, or add "
                    "memory to the machine",
                    topic.name,
                )
            yield
        self.opening.discard(topic)

    def _make(self, topic: TopicPartitions, index: int, log: PartitionLog, leader_epoch: int) -> Partition:
        partition = Partition(
            topic.name,
            topic.topic_id,
            index,
            log,
            leader_epoch=leader_epoch,
            pipeline=self._pipeline,
            config=topic.config,
            internal=topic.internal,
            traffic=topic.traffic,
        )
        if self._on_progress is not None:
            partition.when_progress(self._on_progress)
        return partition

    def _begin_recovery(self, topic: TopicPartitions, partition: Partition) -> None:
        """Queues the recovery of a partition, unless a shard's load recovers it: the load reads the log anyway."""
        if partition.recovering and not topic.internal:
            self.slices.add(self._recover(partition), partition)

    def _open_until(self, topic: TopicPartitions, stop: int) -> None:
        for index in range(len(topic.partitions), stop):
            key = PartitionKey(topic.topic_id, index)
            created = self._engine.get(key) is None
            partition = self._make(topic, index, self._engine.open(key), self.leader_epoch)
            topic.partitions.append(partition)
            if created:
                self._pipeline.enlist(partition)
            self._begin_recovery(topic, partition)
