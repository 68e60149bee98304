"""The topics that coordinators keep their state in: made when they are first needed, with Kafka's own settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kcore.errors import KafkaError
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topic_creation import TopicCreation
    from kcore.config.node import Config
    from kcore.runtime.machine import Outcome
    from kcore.runtime.shard import Shard


class InternalTopic(NamedTuple):
    """What an internal topic is made with.

    Attributes:
        partitions: how many partitions.
        replication_factor: how many copies of each.
        settings: its own settings.
    """

    partitions: int
    replication_factor: int
    settings: dict[str, str]


def internal_topic(name: str, config: Config) -> InternalTopic | None:
    """What an internal topic is made with; None if `name` is not that of one."""
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


class InternalTopics:
    """Makes internal topics for the coordinators.

    Args:
        shard: the metadata.
        creation: how topics are made.
    """

    __slots__ = ("_creation", "_shard")

    def __init__(self, shard: Shard[MetadataMachine], creation: TopicCreation) -> None:
        self._shard = shard
        self._creation = creation

    def ensure(self, name: str) -> bool:
        """Makes an internal topic that is not there yet; it is durable with the next commit.

        Returns:
            Whether it is there now. False while the metadata is being loaded, or if it cannot be made.
        """
        if self._shard.machine.image.by_name(name) is None:
            self._shard.perform(lambda: self._make(name))
        return self._shard.machine.image.by_name(name) is not None

    def _make(self, name: str) -> Outcome | None:
        machine = self._shard.machine
        try:
            new = self._creation.automatic(machine.image, name)
        except KafkaError:
            return None
        return machine.outcome(new.records())
