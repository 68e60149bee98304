"""The broker's APIs, one per file, named after the API. A class is imported on first use. `kcore.served_apis` creates
the objects of the classes.
"""

from typing import TYPE_CHECKING

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
