"""The broker's APIs, one per file, named after the API. A class is imported on first use.

`kcore.broker.metadata.control_plane.ControlPlane.apis` and `kcore.broker.data.data_plane.data_apis` build them.
"""

from typing import TYPE_CHECKING, Final

from kcore.protocol.api_keys import ApiKey
from kcore.runtime.deferred import api_finder

if TYPE_CHECKING:
    from kcore.broker.apis.add_raft_voter import AddRaftVoterApi as AddRaftVoterApi
    from kcore.broker.apis.alter_client_quotas import AlterClientQuotasApi as AlterClientQuotasApi
    from kcore.broker.apis.alter_configs import AlterConfigsApi as AlterConfigsApi
    from kcore.broker.apis.alter_partition_reassignments import (
        AlterPartitionReassignmentsApi as AlterPartitionReassignmentsApi,
    )
    from kcore.broker.apis.alter_replica_log_dirs import AlterReplicaLogDirsApi as AlterReplicaLogDirsApi
    from kcore.broker.apis.alter_user_scram_credentials import (
        AlterUserScramCredentialsApi as AlterUserScramCredentialsApi,
    )
    from kcore.broker.apis.api_versions import ApiVersionsApi as ApiVersionsApi
    from kcore.broker.apis.create_acls import CreateAclsApi as CreateAclsApi
    from kcore.broker.apis.create_delegation_token import CreateDelegationTokenApi as CreateDelegationTokenApi
    from kcore.broker.apis.create_partitions import CreatePartitionsApi as CreatePartitionsApi
    from kcore.broker.apis.create_topics import CreateTopicsApi as CreateTopicsApi
    from kcore.broker.apis.delete_acls import DeleteAclsApi as DeleteAclsApi
    from kcore.broker.apis.delete_records import DeleteRecordsApi as DeleteRecordsApi
    from kcore.broker.apis.delete_topics import DeleteTopicsApi as DeleteTopicsApi
    from kcore.broker.apis.describe_acls import DescribeAclsApi as DescribeAclsApi
    from kcore.broker.apis.describe_client_quotas import DescribeClientQuotasApi as DescribeClientQuotasApi
    from kcore.broker.apis.describe_cluster import DescribeClusterApi as DescribeClusterApi
    from kcore.broker.apis.describe_configs import DescribeConfigsApi as DescribeConfigsApi
    from kcore.broker.apis.describe_delegation_token import DescribeDelegationTokenApi as DescribeDelegationTokenApi
    from kcore.broker.apis.describe_log_dirs import DescribeLogDirsApi as DescribeLogDirsApi
    from kcore.broker.apis.describe_producers import DescribeProducersApi as DescribeProducersApi
    from kcore.broker.apis.describe_quorum import DescribeQuorumApi as DescribeQuorumApi
    from kcore.broker.apis.describe_topic_partitions import DescribeTopicPartitionsApi as DescribeTopicPartitionsApi
    from kcore.broker.apis.describe_user_scram_credentials import (
        DescribeUserScramCredentialsApi as DescribeUserScramCredentialsApi,
    )
    from kcore.broker.apis.elect_leaders import ElectLeadersApi as ElectLeadersApi
    from kcore.broker.apis.expire_delegation_token import ExpireDelegationTokenApi as ExpireDelegationTokenApi
    from kcore.broker.apis.fetch import FetchApi as FetchApi
    from kcore.broker.apis.incremental_alter_configs import IncrementalAlterConfigsApi as IncrementalAlterConfigsApi
    from kcore.broker.apis.init_producer_id import InitProducerIdApi as InitProducerIdApi
    from kcore.broker.apis.list_config_resources import ListConfigResourcesApi as ListConfigResourcesApi
    from kcore.broker.apis.list_offsets import ListOffsetsApi as ListOffsetsApi
    from kcore.broker.apis.list_partition_reassignments import (
        ListPartitionReassignmentsApi as ListPartitionReassignmentsApi,
    )
    from kcore.broker.apis.metadata import MetadataApi as MetadataApi
    from kcore.broker.apis.offset_for_leader_epoch import OffsetForLeaderEpochApi as OffsetForLeaderEpochApi
    from kcore.broker.apis.produce import ProduceApi as ProduceApi
    from kcore.broker.apis.remove_raft_voter import RemoveRaftVoterApi as RemoveRaftVoterApi
    from kcore.broker.apis.renew_delegation_token import RenewDelegationTokenApi as RenewDelegationTokenApi
    from kcore.broker.apis.sasl_authenticate import SaslAuthenticateApi as SaslAuthenticateApi
    from kcore.broker.apis.sasl_handshake import SaslHandshakeApi as SaslHandshakeApi
    from kcore.broker.apis.share_acknowledge import ShareAcknowledgeApi as ShareAcknowledgeApi
    from kcore.broker.apis.share_fetch import ShareFetchApi as ShareFetchApi
    from kcore.broker.apis.unregister_broker import UnregisterBrokerApi as UnregisterBrokerApi
    from kcore.broker.apis.update_features import UpdateFeaturesApi as UpdateFeaturesApi

__getattr__ = api_finder(__name__)

VERSIONS: Final[dict[ApiKey, tuple[int, int]]] = {
    ApiKey.METADATA: (0, 13),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
}
"""The served versions of each API, equal to those of its class: clients ask for them before any class is imported."""
