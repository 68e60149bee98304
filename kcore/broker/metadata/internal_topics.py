"""The internal topics of the coordinators, created on first use with Kafka's settings for them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.errors import KafkaError
from kcore.printable import counted
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topic_creation import TopicCreation
    from kcore.config.node import Config
    from kcore.runtime.machine import Outcome
    from kcore.runtime.shard import Shard
    from kcore.runtime.topics import TopicInfo

logger = logging.getLogger(__name__)

_PARTITION_SETTINGS: Final = {
    CONSUMER_OFFSETS: "offsets.topic.num.partitions",
    TRANSACTION_STATE: "transaction.state.log.num.partitions",
    SHARE_GROUP_STATE: "share.coordinator.state.topic.num.partitions",
}


class InternalTopic(NamedTuple):
    """Properties with which an internal topic is created.

    Attributes:
        partitions: number of partitions.
        replication_factor: number of replicas of each partition.
        settings: the topic's own settings.
    """

    partitions: int
    replication_factor: int
    settings: dict[str, str]


def internal_topic(name: str, config: Config) -> InternalTopic | None:
    """Returns the properties of an internal topic; None if `name` is not an internal topic."""
    if name == CONSUMER_OFFSETS:
        return InternalTopic(
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE:
        return InternalTopic(
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        )
    if name == SHARE_GROUP_STATE:
        return InternalTopic(
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
            },
        )
    return None


def report_fixed_partitions(config: Config, find: Callable[[str], TopicInfo | None]) -> None:
    """Logs a warning for each internal topic whose number of partitions differs from the configured number.

    Args:
        config: the settings of the node.
        find: returns the topic with a name, or None.
    """
    for name, setting in _PARTITION_SETTINGS.items():
        topic = find(name)
        count = config.get(setting)
        if topic is not None and topic.partitions != count and config.source(setting) != "default":
            logger.warning(
                "broker: %s=%d has no effect, because the internal topic %s already exists with %s, and "
                "this number cannot change; set the setting to the number of partitions, or remove the setting",
                setting,
                count,
                name,
                counted(topic.partitions, "partitions"),
            )


class InternalTopics:
    """The creator of internal topics for the coordinators.

    Args:
        shard: the metadata shard.
        creation: checks and plans new topics.
    """

    __slots__ = ("_creation", "_shard")

    def __init__(self, shard: Shard[MetadataMachine], creation: TopicCreation) -> None:
        self._shard = shard
        self._creation = creation

    def ensure(self, name: str) -> bool:
        """Creates an internal topic unless it exists. The topic is durable with the next commit.

        Returns:
            True if the topic exists now. False while the metadata is being loaded, or if it cannot be created.
        """
        if self._shard.machine.image.by_name(name) is None:
            self._shard.perform(lambda: self._create(name))
        return self._shard.machine.image.by_name(name) is not None

    def _create(self, name: str) -> Outcome | None:
        machine = self._shard.machine
        try:
            new = self._creation.automatic(machine.image, name)
        except KafkaError:
            return None
        return machine.outcome(new.records())
