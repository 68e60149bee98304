"""Construction of the control plane: metadata, settings, and the APIs that read and change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.broker import apis
from kcore.broker.apis.api_versions import ApiVersionsApi
from kcore.broker.configs.alter import ConfigChanges
from kcore.broker.configs.broker_config import BrokerConfig
from kcore.broker.configs.describe import SettingsView
from kcore.broker.configs.group_config import GroupConfigs
from kcore.broker.configs.topic_effective import TopicConfigs
from kcore.broker.metadata.application_topics import ApplicationTopics
from kcore.broker.metadata.internal_topics import InternalTopics
from kcore.broker.metadata.producer_ids import ProducerIds
from kcore.broker.metadata.topic_creation import TopicCreation
from kcore.protocol.api_keys import ApiKey
from kcore.runtime.deferred import DeferredApi, Maker, deferred_apis

if TYPE_CHECKING:
    from kcore.broker.apis.init_producer_id import TransactionalProducers
    from kcore.broker.data.client_quotas import ClientQuotas
    from kcore.broker.data.log_dirs import LogDirs
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topics import Topics
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.shard import Shard


class ControlPlane:
    """Topics, settings, features and producer ids of a node, as one object for the engine.

    Other listeners of the metadata (`topics.listen`) must be added after this object is made: changed settings are then
    in force before those listeners are notified.

    Args:
        shard: the metadata shard, loaded or not.
        topics: shows the metadata to the rest of the node.
        config: the node's settings.
        cluster: nodes, addresses and leaders.
        new_id: returns sixteen random bytes.
        now: the time of the round.

    Attributes:
        shard: the metadata shard.
        topics: the topics as the rest of the node sees them.
        broker_config: the broker's settings and their sources.
        topic_configs: each topic's effective settings.
        group_configs: each group's effective settings.
        application_topics: creates the internal topics of Kafka Streams applications.
        creation: checks and plans new topics.
        internal_topics: creates the coordinators' topics.
        producer_ids: allocates producer ids.
    """

    __slots__ = (
        "_cluster",
        "_config",
        "_new_id",
        "_now",
        "application_topics",
        "broker_config",
        "creation",
        "group_configs",
        "internal_topics",
        "producer_ids",
        "shard",
        "topic_configs",
        "topics",
    )

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        topics: Topics,
        config: Config,
        cluster: ClusterView,
        new_id: Callable[[], bytes],
        now: Now,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._new_id = new_id
        self._now = now
        self.creation = TopicCreation(config, cluster, new_id)
        self.shard = shard
        self.topics = topics
        # The broker's settings first: those of topics and groups fall back to them.
        self.broker_config = BrokerConfig(self.topics, config, cluster.node_id)
        self.topic_configs = TopicConfigs(self.topics, config)
        self.group_configs = GroupConfigs(self.topics, config)
        self.internal_topics = InternalTopics(self.shard, self.creation)
        self.application_topics = ApplicationTopics(self.shard, self.creation, now)
        self.producer_ids = ProducerIds(self.shard, cluster.node_id)

    def apis(
        self,
        log_dirs: LogDirs,
        *,
        transactional: TransactionalProducers | None = None,
        authorizer: Authorizer | None = None,
        opening: Callable[[], object] | None = None,
        quotas: ClientQuotas | None = None,
    ) -> list[DeferredApi]:
        """Makes every API of the control plane except ApiVersions, which needs the list of all of the node's APIs.

        Args:
            log_dirs: the node's data folder.
            transactional: serves InitProducerId requests that have a transactional id.
            authorizer: decides about each operation; None allows all.
            opening: returns true while logs of new partitions are being opened; None if that is not to be awaited.
            quotas: limits the partitions that a client creates and deletes; None: there are no quotas.
        """
        shard, config, cluster, creation = self.shard, self._config, self._cluster, self.creation
        view = SettingsView(self.broker_config, self.topic_configs)
        changes = ConfigChanges(self.broker_config)
        makers: dict[ApiKey, Maker] = {
            ApiKey.METADATA: lambda: apis.MetadataApi(shard, cluster, config, creation, authorizer, quotas),
            ApiKey.DESCRIBE_CLUSTER: lambda: apis.DescribeClusterApi(cluster, authorizer),
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda: apis.DescribeTopicPartitionsApi(
                shard, cluster, config, authorizer
            ),
            ApiKey.CREATE_TOPICS: lambda: apis.CreateTopicsApi(shard, creation, view, authorizer, opening, quotas),
            ApiKey.DELETE_TOPICS: lambda: apis.DeleteTopicsApi(shard, config, authorizer, quotas),
            ApiKey.CREATE_PARTITIONS: lambda: apis.CreatePartitionsApi(shard, creation, authorizer, opening, quotas),
            ApiKey.DESCRIBE_CONFIGS: lambda: apis.DescribeConfigsApi(shard, view, self.broker_config, authorizer),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda: apis.IncrementalAlterConfigsApi(shard, changes, authorizer),
            ApiKey.ALTER_CONFIGS: lambda: apis.AlterConfigsApi(shard, changes, authorizer),
            ApiKey.LIST_CONFIG_RESOURCES: lambda: apis.ListConfigResourcesApi(shard, cluster, authorizer),
            ApiKey.INIT_PRODUCER_ID: lambda: apis.InitProducerIdApi(
                shard, self.producer_ids, self.topics, transactional, authorizer
            ),
            ApiKey.DESCRIBE_LOG_DIRS: lambda: apis.DescribeLogDirsApi(shard, log_dirs, authorizer),
            ApiKey.ELECT_LEADERS: lambda: apis.ElectLeadersApi(shard, cluster, authorizer),
            ApiKey.UPDATE_FEATURES: lambda: apis.UpdateFeaturesApi(shard, self.broker_config, authorizer),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda: apis.ListPartitionReassignmentsApi(authorizer),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda: apis.AlterPartitionReassignmentsApi(
                shard, creation, authorizer
            ),
            ApiKey.ALTER_REPLICA_LOG_DIRS: lambda: apis.AlterReplicaLogDirsApi(shard, log_dirs, authorizer),
            ApiKey.DESCRIBE_QUORUM: lambda: apis.DescribeQuorumApi(shard, cluster, self._now, authorizer),
            ApiKey.UNREGISTER_BROKER: lambda: apis.UnregisterBrokerApi(cluster, authorizer),
            ApiKey.ADD_RAFT_VOTER: lambda: apis.AddRaftVoterApi(cluster, authorizer),
            ApiKey.REMOVE_RAFT_VOTER: lambda: apis.RemoveRaftVoterApi(cluster, authorizer),
            ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda: apis.DescribeClientQuotasApi(shard, authorizer),
            ApiKey.ALTER_CLIENT_QUOTAS: lambda: apis.AlterClientQuotasApi(shard, authorizer),
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda: apis.DescribeUserScramCredentialsApi(shard, authorizer),
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda: apis.AlterUserScramCredentialsApi(shard, authorizer),
            ApiKey.DESCRIBE_ACLS: lambda: apis.DescribeAclsApi(shard, authorizer),
            ApiKey.CREATE_ACLS: lambda: apis.CreateAclsApi(shard, authorizer, self._new_id),
            ApiKey.DELETE_ACLS: lambda: apis.DeleteAclsApi(shard, authorizer),
            # These need a lambda too: access to the class name imports the class.
            ApiKey.CREATE_DELEGATION_TOKEN: lambda: apis.CreateDelegationTokenApi(),  # noqa: PLW0108
            ApiKey.RENEW_DELEGATION_TOKEN: lambda: apis.RenewDelegationTokenApi(),  # noqa: PLW0108
            ApiKey.EXPIRE_DELEGATION_TOKEN: lambda: apis.ExpireDelegationTokenApi(),  # noqa: PLW0108
            ApiKey.DESCRIBE_DELEGATION_TOKEN: lambda: apis.DescribeDelegationTokenApi(),  # noqa: PLW0108
            ApiKey.SASL_HANDSHAKE: lambda: apis.SaslHandshakeApi(),  # noqa: PLW0108
            ApiKey.SASL_AUTHENTICATE: lambda: apis.SaslAuthenticateApi(),  # noqa: PLW0108
        }
        return deferred_apis(apis.VERSIONS, makers)

    def api_versions(self) -> ApiVersionsApi:
        """Makes an ApiVersions API; the engine passes it the node's APIs with `serve`."""
        return ApiVersionsApi(self.topics)
