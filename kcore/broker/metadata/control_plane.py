"""Construction of the control plane: metadata and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.broker.configs.alter import ConfigChanges
from kcore.broker.configs.broker_config import BrokerConfig
from kcore.broker.configs.describe import SettingsView
from kcore.broker.configs.group_config import GroupConfigs
from kcore.broker.configs.topic_effective import TopicConfigs
from kcore.broker.metadata.application_topics import ApplicationTopics
from kcore.broker.metadata.internal_topics import InternalTopics
from kcore.broker.metadata.producer_ids import ProducerIds
from kcore.broker.metadata.topic_creation import TopicCreation

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topics import Topics
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.shard import Shard


class ControlPlane:
    """Topics, settings, features and producer ids of a node, as one object for the engine.

    Other listeners of the metadata (`topics.listen`) must be added after this object is made: changed settings are then
    in force before those listeners are notified.

    Args:
        shard: the metadata shard, loaded or not.
        topics: makes the metadata visible to all other code of the node.
        config: the node's settings.
        cluster: nodes, addresses and leaders.
        new_id: returns sixteen random bytes.
        now: the clock, which the driver reads once for each round of requests.

    Attributes:
        shard: the metadata shard.
        topics: the topics in the form that all other code of the node uses.
        broker_config: the broker's settings and their sources.
        topic_configs: each topic's effective settings.
        group_configs: each group's effective settings.
        settings: describes the settings of topics, brokers and groups.
        config_changes: checks changes of settings.
        application_topics: creates the internal topics of Kafka Streams applications.
        creation: checks and plans new topics.
        internal_topics: creates the coordinators' topics.
        producer_ids: allocates producer ids.
    """

    __slots__ = (
        "application_topics",
        "broker_config",
        "config_changes",
        "creation",
        "group_configs",
        "internal_topics",
        "producer_ids",
        "settings",
        "shard",
        "topic_configs",
        "topics",
    )

    shard: Shard[MetadataMachine]
    settings: SettingsView
    config_changes: ConfigChanges
    broker_config: BrokerConfig
    creation: TopicCreation
    internal_topics: InternalTopics
    producer_ids: ProducerIds

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        topics: Topics,
        config: Config,
        cluster: ClusterView,
        new_id: Callable[[], bytes],
        now: Now,
    ) -> None:
        self.creation = TopicCreation(config, cluster, new_id)
        self.shard = shard
        self.topics = topics
        # The broker's settings first: those of topics and groups fall back to them.
        self.broker_config = BrokerConfig(self.topics, config, cluster.node_id)
        self.topic_configs = TopicConfigs(self.topics, config)
        self.group_configs = GroupConfigs(self.topics, config)
        self.settings = SettingsView(self.broker_config, self.topic_configs)
        self.config_changes = ConfigChanges(self.broker_config)
        self.internal_topics = InternalTopics(self.shard, self.creation)
        self.application_topics = ApplicationTopics(self.shard, self.creation, now)
        self.producer_ids = ProducerIds(self.shard, cluster.node_id)
