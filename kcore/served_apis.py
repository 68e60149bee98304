"""The table of the served APIs: the versions of each, and how a node creates it.

A class is imported when its API is created (`kcore.runtime.deferred`); its constructor names the services of the node
that it needs. ApiVersions lists the rows of this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kcore.broker import apis as broker
from kcore.broker.metadata.names import INTERNAL_TOPICS
from kcore.group import apis as group
from kcore.protocol.api_keys import ApiKey
from kcore.runtime.deferred import DeferredApi
from kcore.share import apis as share
from kcore.transaction import apis as transaction

if TYPE_CHECKING:
    from kcore.broker.data.client_quotas import ClientQuotas
    from kcore.broker.data.fetch_budget import FetchMemoryBudget
    from kcore.broker.data.fetch_session import FetchSessions
    from kcore.broker.data.log_dirs import LogDirs
    from kcore.broker.data.partitions import Partitions
    from kcore.broker.data.transaction_verifier import PartitionVerifier
    from kcore.broker.metadata.control_plane import ControlPlane
    from kcore.broker.metadata.topics import Topics
    from kcore.broker.share.share_partitions import SharePartitions
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.group.consumer.services import ConsumerServices
    from kcore.group.shard import GroupShard
    from kcore.group.share.services import ShareGroupServices
    from kcore.group.streams.services import StreamsServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import Api
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.shards import Shards
    from kcore.runtime.slices import Slices
    from kcore.share.coordinator import ShareCoordinator
    from kcore.transaction.coordinator import TransactionCoordinator
    from kcore.transaction.local_markers import LocalMarkers
    from kcore.transaction.verification import TransactionVerifier
    from kcore_ext.runtime.purgatory import Purgatory


class Node(Protocol):
    """The services of a node that its APIs use. `kcore.engine.Engine` describes them."""

    config: Config
    new_uuid: Callable[[], bytes]
    now: Now
    slices: Slices
    purgatory: Purgatory
    pipeline: CommitPipeline
    topics: Topics
    control: ControlPlane
    partitions: Partitions
    client_quotas: ClientQuotas
    fetch_sessions: FetchSessions
    fetch_memory_budget: FetchMemoryBudget
    groups: Shards[GroupShard]
    consumer_groups: ConsumerServices
    streams_groups: StreamsServices
    share_groups: ShareGroupServices
    share: ShareCoordinator
    share_partitions: SharePartitions
    transactions: TransactionCoordinator
    markers: LocalMarkers
    transaction_verifier: TransactionVerifier
    partition_verifier: PartitionVerifier

    @property
    def authorizer(self) -> Authorizer | None:
        """Checks the permissions of principals; None: everything is allowed."""
        ...

    @property
    def cluster(self) -> ClusterView:
        """The nodes of the cluster with their addresses, and the partition leaders."""
        ...

    @property
    def log_dirs(self) -> LogDirs:
        """The sizes of the data folder."""
        ...

    def share_groups_enabled(self) -> bool:
        """Returns True if the cluster's share.version enables share groups."""
        ...


class ServedApi(NamedTuple):
    """A row of the table.

    Attributes:
        key: the API's key.
        versions: the lowest and the highest served version, equal to the versions of its class. ApiVersions needs them
            before the class is imported.
        make: creates the API of a node.
    """

    key: ApiKey
    versions: tuple[int, int]
    make: Callable[[Node], Api[Any, Any]]


# fmt: off
SERVED_APIS: Final[tuple[ServedApi, ...]] = (
    # ---- topics, settings and the cluster
    ServedApi(ApiKey.API_VERSIONS, (0, 4), lambda node: broker.ApiVersionsApi(
        node.topics, {row.key: row.versions for row in SERVED_APIS})),
    ServedApi(ApiKey.METADATA, (0, 13), lambda node: broker.MetadataApi(
        node.control.shard, node.cluster, node.config, node.control.creation, node.authorizer, node.client_quotas)),
    ServedApi(ApiKey.DESCRIBE_CLUSTER, (0, 2), lambda node: broker.DescribeClusterApi(node.cluster, node.authorizer)),
    ServedApi(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), lambda node: broker.DescribeTopicPartitionsApi(
        node.control.shard, node.cluster, node.config, node.authorizer)),
    ServedApi(ApiKey.CREATE_TOPICS, (2, 7), lambda node: broker.CreateTopicsApi(
        node.control.shard, node.control.creation, node.control.settings, node.authorizer,
        lambda: node.partitions.opening, node.client_quotas)),
    ServedApi(ApiKey.DELETE_TOPICS, (1, 6), lambda node: broker.DeleteTopicsApi(
        node.control.shard, node.config, node.authorizer, node.client_quotas)),
    ServedApi(ApiKey.CREATE_PARTITIONS, (0, 3), lambda node: broker.CreatePartitionsApi(
        node.control.shard, node.control.creation, node.authorizer,
        lambda: node.partitions.opening, node.client_quotas)),
    ServedApi(ApiKey.DESCRIBE_CONFIGS, (1, 4), lambda node: broker.DescribeConfigsApi(
        node.control.shard, node.control.settings, node.control.broker_config, node.authorizer)),
    ServedApi(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), lambda node: broker.IncrementalAlterConfigsApi(
        node.control.shard, node.control.config_changes, node.authorizer)),
    ServedApi(ApiKey.ALTER_CONFIGS, (0, 2), lambda node: broker.AlterConfigsApi(
        node.control.shard, node.control.config_changes, node.authorizer)),
    ServedApi(ApiKey.LIST_CONFIG_RESOURCES, (0, 1), lambda node: broker.ListConfigResourcesApi(
        node.control.shard, node.cluster, node.authorizer)),
    ServedApi(ApiKey.DESCRIBE_LOG_DIRS, (1, 5), lambda node: broker.DescribeLogDirsApi(
        node.control.shard, node.log_dirs, node.authorizer)),
    ServedApi(ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), lambda node: broker.AlterReplicaLogDirsApi(
        node.control.shard, node.log_dirs, node.authorizer)),
    ServedApi(ApiKey.ELECT_LEADERS, (0, 2), lambda node: broker.ElectLeadersApi(
        node.control.shard, node.cluster, node.authorizer)),
    ServedApi(ApiKey.UPDATE_FEATURES, (0, 2), lambda node: broker.UpdateFeaturesApi(
        node.control.shard, node.control.broker_config, node.authorizer)),
    ServedApi(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), lambda node: broker.ListPartitionReassignmentsApi(
        node.authorizer)),
    ServedApi(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), lambda node: broker.AlterPartitionReassignmentsApi(
        node.control.shard, node.control.creation, node.authorizer)),
    ServedApi(ApiKey.DESCRIBE_QUORUM, (0, 2), lambda node: broker.DescribeQuorumApi(
        node.control.shard, node.cluster, node.now, node.authorizer)),
    ServedApi(ApiKey.UNREGISTER_BROKER, (0, 0), lambda node: broker.UnregisterBrokerApi(node.cluster, node.authorizer)),
    ServedApi(ApiKey.ADD_RAFT_VOTER, (0, 1), lambda node: broker.AddRaftVoterApi(node.cluster, node.authorizer)),
    ServedApi(ApiKey.REMOVE_RAFT_VOTER, (0, 0), lambda node: broker.RemoveRaftVoterApi(node.cluster, node.authorizer)),

    # ---- quotas, users and permissions
    ServedApi(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), lambda node: broker.DescribeClientQuotasApi(
        node.control.shard, node.authorizer)),
    ServedApi(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), lambda node: broker.AlterClientQuotasApi(
        node.control.shard, node.authorizer)),
    ServedApi(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), lambda node: broker.DescribeUserScramCredentialsApi(
        node.control.shard, node.authorizer)),
    ServedApi(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), lambda node: broker.AlterUserScramCredentialsApi(
        node.control.shard, node.authorizer)),
    ServedApi(ApiKey.DESCRIBE_ACLS, (1, 3), lambda node: broker.DescribeAclsApi(node.control.shard, node.authorizer)),
    ServedApi(ApiKey.CREATE_ACLS, (1, 3), lambda node: broker.CreateAclsApi(
        node.control.shard, node.authorizer, node.new_uuid)),
    ServedApi(ApiKey.DELETE_ACLS, (1, 3), lambda node: broker.DeleteAclsApi(node.control.shard, node.authorizer)),
    ServedApi(ApiKey.CREATE_DELEGATION_TOKEN, (1, 3), lambda node: broker.CreateDelegationTokenApi(
        node.authorizer)),
    ServedApi(ApiKey.RENEW_DELEGATION_TOKEN, (1, 2), lambda _: broker.RenewDelegationTokenApi()),
    ServedApi(ApiKey.EXPIRE_DELEGATION_TOKEN, (1, 2), lambda _: broker.ExpireDelegationTokenApi()),
    ServedApi(ApiKey.DESCRIBE_DELEGATION_TOKEN, (1, 3), lambda _: broker.DescribeDelegationTokenApi()),
    ServedApi(ApiKey.SASL_HANDSHAKE, (0, 1), lambda _: broker.SaslHandshakeApi()),
    ServedApi(ApiKey.SASL_AUTHENTICATE, (0, 2), lambda _: broker.SaslAuthenticateApi()),

    # ---- records
    ServedApi(ApiKey.PRODUCE, (0, 13), lambda node: broker.ProduceApi(
        node.partitions, node.pipeline, node.now, node.partition_verifier, cluster=node.cluster,
        authorizer=node.authorizer, config=node.config, quotas=node.client_quotas)),
    ServedApi(ApiKey.FETCH, (4, 18), lambda node: broker.FetchApi(
        node.partitions, node.purgatory, node.fetch_sessions, node.now, cluster=node.cluster,
        memory_budget=node.fetch_memory_budget, authorizer=node.authorizer, quotas=node.client_quotas)),
    ServedApi(ApiKey.LIST_OFFSETS, (1, 11), lambda node: broker.ListOffsetsApi(
        node.partitions, node.pipeline, authorizer=node.authorizer)),
    ServedApi(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), lambda node: broker.OffsetForLeaderEpochApi(
        node.partitions, node.pipeline, authorizer=node.authorizer)),
    ServedApi(ApiKey.DELETE_RECORDS, (0, 2), lambda node: broker.DeleteRecordsApi(
        node.partitions, node.pipeline, authorizer=node.authorizer)),
    ServedApi(ApiKey.DESCRIBE_PRODUCERS, (0, 0), lambda node: broker.DescribeProducersApi(
        node.partitions, authorizer=node.authorizer)),
    ServedApi(ApiKey.SHARE_FETCH, (1, 2), lambda node: broker.ShareFetchApi(
        node.share_partitions, node.share_groups_enabled, node.fetch_memory_budget, cluster=node.cluster,
        authorizer=node.authorizer)),
    ServedApi(ApiKey.SHARE_ACKNOWLEDGE, (1, 2), lambda node: broker.ShareAcknowledgeApi(
        node.share_partitions, node.share_groups_enabled, cluster=node.cluster, authorizer=node.authorizer)),

    # ---- transactions
    ServedApi(ApiKey.INIT_PRODUCER_ID, (0, 5), lambda node: broker.InitProducerIdApi(
        node.control.shard, node.control.producer_ids, node.topics,
        transaction.TransactionalInitProducerIdApi(node.transactions, node.config), node.authorizer)),
    ServedApi(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), lambda node: transaction.AddPartitionsToTxnApi(
        node.transactions, node.topics, INTERNAL_TOPICS, node.authorizer)),
    ServedApi(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), lambda node: transaction.AddOffsetsToTxnApi(
        node.transactions, node.topics, node.authorizer)),
    ServedApi(ApiKey.END_TXN, (0, 5), lambda node: transaction.EndTxnApi(node.transactions, node.authorizer)),
    ServedApi(ApiKey.WRITE_TXN_MARKERS, (1, 2), lambda node: transaction.WriteTxnMarkersApi(
        node.markers, node.pipeline, node.authorizer, node.slices)),
    ServedApi(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), lambda node: transaction.DescribeTransactionsApi(
        node.transactions, node.authorizer)),
    ServedApi(ApiKey.LIST_TRANSACTIONS, (0, 2), lambda node: transaction.ListTransactionsApi(
        node.transactions, node.authorizer)),

    # ---- groups
    ServedApi(ApiKey.FIND_COORDINATOR, (0, 6), lambda node: group.FindCoordinatorApi(
        node.topics, node.cluster, node.control.internal_topics.ensure, node.authorizer, node.slices)),
    ServedApi(ApiKey.JOIN_GROUP, (0, 9), lambda node: group.JoinGroupApi(node.groups, node.config, node.authorizer)),
    ServedApi(ApiKey.SYNC_GROUP, (0, 5), lambda node: group.SyncGroupApi(node.groups, node.authorizer)),
    ServedApi(ApiKey.HEARTBEAT, (0, 4), lambda node: group.HeartbeatApi(node.groups, node.authorizer)),
    ServedApi(ApiKey.LEAVE_GROUP, (0, 5), lambda node: group.LeaveGroupApi(node.groups, node.authorizer)),
    ServedApi(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), lambda node: group.ConsumerGroupHeartbeatApi(
        node.groups, node.consumer_groups, node.authorizer)),
    ServedApi(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), lambda node: group.ConsumerGroupDescribeApi(
        node.groups, node.consumer_groups, node.authorizer)),
    ServedApi(ApiKey.STREAMS_GROUP_HEARTBEAT, (0, 0), lambda node: group.StreamsGroupHeartbeatApi(
        node.groups, node.streams_groups, node.authorizer)),
    ServedApi(ApiKey.STREAMS_GROUP_DESCRIBE, (0, 0), lambda node: group.StreamsGroupDescribeApi(
        node.groups, node.streams_groups, node.authorizer)),
    ServedApi(ApiKey.SHARE_GROUP_HEARTBEAT, (1, 1), lambda node: group.ShareGroupHeartbeatApi(
        node.groups, node.share_groups, node.authorizer)),
    ServedApi(ApiKey.SHARE_GROUP_DESCRIBE, (1, 1), lambda node: group.ShareGroupDescribeApi(
        node.groups, node.share_groups, node.authorizer)),
    ServedApi(ApiKey.DESCRIBE_GROUPS, (0, 6), lambda node: group.DescribeGroupsApi(node.groups, node.authorizer)),
    ServedApi(ApiKey.LIST_GROUPS, (0, 5), lambda node: group.ListGroupsApi(node.groups, node.authorizer)),
    ServedApi(ApiKey.DELETE_GROUPS, (0, 2), lambda node: group.DeleteGroupsApi(
        node.groups, node.authorizer, node.share_groups)),

    # ---- offsets
    ServedApi(ApiKey.OFFSET_COMMIT, (2, 10), lambda node: group.OffsetCommitApi(
        node.groups, node.topics, node.authorizer)),
    ServedApi(ApiKey.TXN_OFFSET_COMMIT, (0, 5), lambda node: group.TxnOffsetCommitApi(
        node.groups, node.topics, node.transaction_verifier, node.authorizer)),
    ServedApi(ApiKey.OFFSET_FETCH, (1, 10), lambda node: group.OffsetFetchApi(
        node.groups, node.topics, node.authorizer)),
    ServedApi(ApiKey.OFFSET_DELETE, (0, 0), lambda node: group.OffsetDeleteApi(
        node.groups, node.topics, node.authorizer)),
    ServedApi(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), lambda node: group.DescribeShareGroupOffsetsApi(
        node.groups, node.share_groups, node.topics, node.authorizer)),
    ServedApi(ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0, 0), lambda node: group.AlterShareGroupOffsetsApi(
        node.groups, node.share_groups, node.topics, node.authorizer)),
    ServedApi(ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0, 0), lambda node: group.DeleteShareGroupOffsetsApi(
        node.groups, node.share_groups, node.topics, node.authorizer)),

    # ---- the share coordinator
    ServedApi(ApiKey.INITIALIZE_SHARE_GROUP_STATE, (0, 0), lambda node: share.InitializeShareGroupStateApi(
        node.share, node.topics, node.authorizer)),
    ServedApi(ApiKey.READ_SHARE_GROUP_STATE, (0, 0), lambda node: share.ReadShareGroupStateApi(
        node.share, node.topics, node.authorizer)),
    ServedApi(ApiKey.WRITE_SHARE_GROUP_STATE, (0, 1), lambda node: share.WriteShareGroupStateApi(
        node.share, node.topics, node.authorizer)),
    ServedApi(ApiKey.DELETE_SHARE_GROUP_STATE, (0, 0), lambda node: share.DeleteShareGroupStateApi(
        node.share, node.topics, node.authorizer)),
    ServedApi(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), lambda node: share.ReadShareGroupStateSummaryApi(
        node.share, node.topics, node.authorizer)),
)
# fmt: on


def apis_of(node: Node, served: Iterable[ServedApi] = SERVED_APIS) -> list[DeferredApi]:
    """Returns the APIs of a node. Each API object is created at its first use.

    Args:
        node: the node whose services the APIs use.
        served: the rows for the APIs to return; by default, the whole table.
    """
    return [DeferredApi(row.key, row.versions, partial(row.make, node)) for row in served]
