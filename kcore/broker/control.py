"""The control plane, wired: metadata, settings, and the APIs that read and change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kcore.broker.alter_config import ConfigChanges
from kcore.broker.apis.alter_configs import AlterConfigsApi
from kcore.broker.apis.alter_user_scram_credentials import AlterUserScramCredentialsApi
from kcore.broker.apis.api_versions import ApiVersionsApi
from kcore.broker.apis.create_acls import CreateAclsApi
from kcore.broker.apis.create_delegation_token import CreateDelegationTokenApi
from kcore.broker.apis.create_partitions import CreatePartitionsApi
from kcore.broker.apis.create_topics import CreateTopicsApi
from kcore.broker.apis.delete_acls import DeleteAclsApi
from kcore.broker.apis.delete_topics import DeleteTopicsApi
from kcore.broker.apis.describe_acls import DescribeAclsApi
from kcore.broker.apis.describe_client_quotas import DescribeClientQuotasApi
from kcore.broker.apis.describe_cluster import DescribeClusterApi
from kcore.broker.apis.describe_configs import DescribeConfigsApi
from kcore.broker.apis.describe_delegation_token import DescribeDelegationTokenApi
from kcore.broker.apis.describe_log_dirs import DescribeLogDirsApi
from kcore.broker.apis.describe_topic_partitions import DescribeTopicPartitionsApi
from kcore.broker.apis.describe_user_scram_credentials import DescribeUserScramCredentialsApi
from kcore.broker.apis.elect_leaders import ElectLeadersApi
from kcore.broker.apis.expire_delegation_token import ExpireDelegationTokenApi
from kcore.broker.apis.incremental_alter_configs import IncrementalAlterConfigsApi
from kcore.broker.apis.init_producer_id import InitProducerIdApi
from kcore.broker.apis.list_config_resources import ListConfigResourcesApi
from kcore.broker.apis.list_partition_reassignments import ListPartitionReassignmentsApi
from kcore.broker.apis.metadata import MetadataApi
from kcore.broker.apis.renew_delegation_token import RenewDelegationTokenApi
from kcore.broker.apis.sasl_authenticate import SaslAuthenticateApi
from kcore.broker.apis.sasl_handshake import SaslHandshakeApi
from kcore.broker.apis.update_features import UpdateFeaturesApi
from kcore.broker.broker_config import BrokerConfig
from kcore.broker.describe_config import SettingsView
from kcore.broker.group_config import GroupConfigs
from kcore.broker.internal_topics import InternalTopics
from kcore.broker.producer_ids import ProducerIds
from kcore.broker.topic_configs import TopicConfigs
from kcore.broker.topic_creation import TopicCreation

if TYPE_CHECKING:
    from kcore.broker.apis.init_producer_id import TransactionalProducers
    from kcore.broker.log_dirs import LogDirs
    from kcore.broker.topic_machine import MetadataMachine
    from kcore.broker.topics import Topics
    from kcore.config import Config
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import Api
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.shard import Shard


class ControlPlane:
    """Topics, settings, features and producer ids of a node, as one object for the engine.

    Whoever follows the metadata (`topics.listen`) must begin after this object is made: settings are then in force
    when a change is told.

    Args:
        shard: the metadata, loaded or not.
        topics: what the rest of the node sees of it.
        config: the node's settings.
        cluster: nodes, addresses and leaders.
        new_id: makes sixteen random bytes.

    Attributes:
        shard: the metadata.
        topics: the topics, for everybody.
        broker_config: the broker's settings and where they come from.
        topic_configs: each topic's settings in force.
        group_configs: each group's settings in force.
        internal_topics: makes the coordinators' topics.
        producer_ids: gives out producer ids.
    """

    __slots__ = (
        "_cluster",
        "_config",
        "_creation",
        "_new_id",
        "broker_config",
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
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._new_id = new_id
        self._creation = TopicCreation(config, cluster, new_id)
        self.shard = shard
        self.topics = topics
        # The broker's settings first: those of topics and groups fall back to them.
        self.broker_config = BrokerConfig(self.topics, config, cluster.node_id)
        self.topic_configs = TopicConfigs(self.topics, config)
        self.group_configs = GroupConfigs(self.topics, config)
        self.internal_topics = InternalTopics(self.shard, self._creation)
        self.producer_ids = ProducerIds(self.shard, cluster.node_id)

    def apis(
        self,
        log_dirs: LogDirs,
        *,
        transactional: TransactionalProducers | None = None,
        authorizer: Authorizer | None = None,
    ) -> list[Api[Any, Any]]:
        """Every API of the control plane but ApiVersions, which is told of all of a node's APIs.

        Args:
            log_dirs: where partitions are kept.
            transactional: serves InitProducerId with a transactional id.
            authorizer: who may do what; None allows all.
        """
        shard, config, cluster, creation = self.shard, self._config, self._cluster, self._creation
        view = SettingsView(self.broker_config, self.topic_configs)
        changes = ConfigChanges(self.broker_config)
        return [
            MetadataApi(shard, cluster, config, creation, authorizer),
            DescribeClusterApi(cluster, authorizer),
            DescribeTopicPartitionsApi(shard, cluster, config, authorizer),
            CreateTopicsApi(shard, creation, view, authorizer),
            DeleteTopicsApi(shard, config, authorizer),
            CreatePartitionsApi(shard, creation, authorizer),
            DescribeConfigsApi(shard, view, self.broker_config, authorizer),
            IncrementalAlterConfigsApi(shard, changes, authorizer),
            AlterConfigsApi(shard, changes, authorizer),
            ListConfigResourcesApi(shard, cluster, authorizer),
            InitProducerIdApi(shard, self.producer_ids, self.topics, transactional, authorizer),
            DescribeLogDirsApi(shard, log_dirs, authorizer),
            ElectLeadersApi(shard, cluster, authorizer),
            UpdateFeaturesApi(shard, authorizer),
            ListPartitionReassignmentsApi(authorizer),
            DescribeClientQuotasApi(authorizer),
            DescribeUserScramCredentialsApi(shard, authorizer),
            AlterUserScramCredentialsApi(shard, authorizer),
            DescribeAclsApi(shard, authorizer),
            CreateAclsApi(shard, authorizer, self._new_id),
            DeleteAclsApi(shard, authorizer),
            CreateDelegationTokenApi(),
            RenewDelegationTokenApi(),
            ExpireDelegationTokenApi(),
            DescribeDelegationTokenApi(),
            SaslHandshakeApi(),
            SaslAuthenticateApi(),
        ]

    def api_versions(self) -> ApiVersionsApi:
        """A new ApiVersions API; the engine tells it with `serve` which APIs there are."""
        return ApiVersionsApi(self.topics)
