"""Kafka's requests and responses, one file per API.

`from kcore.protocol.messages.heartbeat import HeartbeatRequest` and `kcore.protocol.messages.HeartbeatRequest` are the
same class. The package imports the file of a class at the first use of its name, so a program imports only the APIs
that it uses.
"""

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest as AddOffsetsToTxnRequest
    from kcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse as AddOffsetsToTxnResponse
    from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest as AddPartitionsToTxnRequest
    from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse as AddPartitionsToTxnResponse
    from kcore.protocol.messages.add_raft_voter import AddRaftVoterRequest as AddRaftVoterRequest
    from kcore.protocol.messages.add_raft_voter import AddRaftVoterResponse as AddRaftVoterResponse
    from kcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest as AllocateProducerIdsRequest
    from kcore.protocol.messages.allocate_producer_ids import (
        AllocateProducerIdsResponse as AllocateProducerIdsResponse,
    )
    from kcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest as AlterClientQuotasRequest
    from kcore.protocol.messages.alter_client_quotas import AlterClientQuotasResponse as AlterClientQuotasResponse
    from kcore.protocol.messages.alter_configs import AlterConfigsRequest as AlterConfigsRequest
    from kcore.protocol.messages.alter_configs import AlterConfigsResponse as AlterConfigsResponse
    from kcore.protocol.messages.alter_partition import AlterPartitionRequest as AlterPartitionRequest
    from kcore.protocol.messages.alter_partition import AlterPartitionResponse as AlterPartitionResponse
    from kcore.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest as AlterPartitionReassignmentsRequest,
    )
    from kcore.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsResponse as AlterPartitionReassignmentsResponse,
    )
    from kcore.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest as AlterReplicaLogDirsRequest
    from kcore.protocol.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsResponse as AlterReplicaLogDirsResponse,
    )
    from kcore.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest as AlterShareGroupOffsetsRequest,
    )
    from kcore.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsResponse as AlterShareGroupOffsetsResponse,
    )
    from kcore.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest as AlterUserScramCredentialsRequest,
    )
    from kcore.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsResponse as AlterUserScramCredentialsResponse,
    )
    from kcore.protocol.messages.api_versions import ApiVersionsRequest as ApiVersionsRequest
    from kcore.protocol.messages.api_versions import ApiVersionsResponse as ApiVersionsResponse
    from kcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest as BrokerHeartbeatRequest
    from kcore.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse as BrokerHeartbeatResponse
    from kcore.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest as ConsumerGroupDescribeRequest,
    )
    from kcore.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeResponse as ConsumerGroupDescribeResponse,
    )
    from kcore.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest as ConsumerGroupHeartbeatRequest,
    )
    from kcore.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatResponse as ConsumerGroupHeartbeatResponse,
    )
    from kcore.protocol.messages.create_acls import CreateAclsRequest as CreateAclsRequest
    from kcore.protocol.messages.create_acls import CreateAclsResponse as CreateAclsResponse
    from kcore.protocol.messages.create_delegation_token import (
        CreateDelegationTokenRequest as CreateDelegationTokenRequest,
    )
    from kcore.protocol.messages.create_delegation_token import (
        CreateDelegationTokenResponse as CreateDelegationTokenResponse,
    )
    from kcore.protocol.messages.create_partitions import CreatePartitionsRequest as CreatePartitionsRequest
    from kcore.protocol.messages.create_partitions import CreatePartitionsResponse as CreatePartitionsResponse
    from kcore.protocol.messages.create_topics import CreateTopicsRequest as CreateTopicsRequest
    from kcore.protocol.messages.create_topics import CreateTopicsResponse as CreateTopicsResponse
    from kcore.protocol.messages.default_principal_data import DefaultPrincipalData as DefaultPrincipalData
    from kcore.protocol.messages.delete_acls import DeleteAclsRequest as DeleteAclsRequest
    from kcore.protocol.messages.delete_acls import DeleteAclsResponse as DeleteAclsResponse
    from kcore.protocol.messages.delete_groups import DeleteGroupsRequest as DeleteGroupsRequest
    from kcore.protocol.messages.delete_groups import DeleteGroupsResponse as DeleteGroupsResponse
    from kcore.protocol.messages.delete_records import DeleteRecordsRequest as DeleteRecordsRequest
    from kcore.protocol.messages.delete_records import DeleteRecordsResponse as DeleteRecordsResponse
    from kcore.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest as DeleteShareGroupOffsetsRequest,
    )
    from kcore.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsResponse as DeleteShareGroupOffsetsResponse,
    )
    from kcore.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest as DeleteShareGroupStateRequest,
    )
    from kcore.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateResponse as DeleteShareGroupStateResponse,
    )
    from kcore.protocol.messages.delete_topics import DeleteTopicsRequest as DeleteTopicsRequest
    from kcore.protocol.messages.delete_topics import DeleteTopicsResponse as DeleteTopicsResponse
    from kcore.protocol.messages.describe_acls import DescribeAclsRequest as DescribeAclsRequest
    from kcore.protocol.messages.describe_acls import DescribeAclsResponse as DescribeAclsResponse
    from kcore.protocol.messages.describe_client_quotas import (
        DescribeClientQuotasRequest as DescribeClientQuotasRequest,
    )
    from kcore.protocol.messages.describe_client_quotas import (
        DescribeClientQuotasResponse as DescribeClientQuotasResponse,
    )
    from kcore.protocol.messages.describe_cluster import DescribeClusterRequest as DescribeClusterRequest
    from kcore.protocol.messages.describe_cluster import DescribeClusterResponse as DescribeClusterResponse
    from kcore.protocol.messages.describe_configs import DescribeConfigsRequest as DescribeConfigsRequest
    from kcore.protocol.messages.describe_configs import DescribeConfigsResponse as DescribeConfigsResponse
    from kcore.protocol.messages.describe_delegation_token import (
        DescribeDelegationTokenRequest as DescribeDelegationTokenRequest,
    )
    from kcore.protocol.messages.describe_delegation_token import (
        DescribeDelegationTokenResponse as DescribeDelegationTokenResponse,
    )
    from kcore.protocol.messages.describe_groups import DescribeGroupsRequest as DescribeGroupsRequest
    from kcore.protocol.messages.describe_groups import DescribeGroupsResponse as DescribeGroupsResponse
    from kcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest as DescribeLogDirsRequest
    from kcore.protocol.messages.describe_log_dirs import DescribeLogDirsResponse as DescribeLogDirsResponse
    from kcore.protocol.messages.describe_producers import DescribeProducersRequest as DescribeProducersRequest
    from kcore.protocol.messages.describe_producers import DescribeProducersResponse as DescribeProducersResponse
    from kcore.protocol.messages.describe_quorum import DescribeQuorumRequest as DescribeQuorumRequest
    from kcore.protocol.messages.describe_quorum import DescribeQuorumResponse as DescribeQuorumResponse
    from kcore.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest as DescribeShareGroupOffsetsRequest,
    )
    from kcore.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsResponse as DescribeShareGroupOffsetsResponse,
    )
    from kcore.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest as DescribeTopicPartitionsRequest,
    )
    from kcore.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsResponse as DescribeTopicPartitionsResponse,
    )
    from kcore.protocol.messages.describe_transactions import DescribeTransactionsRequest as DescribeTransactionsRequest
    from kcore.protocol.messages.describe_transactions import (
        DescribeTransactionsResponse as DescribeTransactionsResponse,
    )
    from kcore.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest as DescribeUserScramCredentialsRequest,
    )
    from kcore.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsResponse as DescribeUserScramCredentialsResponse,
    )
    from kcore.protocol.messages.elect_leaders import ElectLeadersRequest as ElectLeadersRequest
    from kcore.protocol.messages.elect_leaders import ElectLeadersResponse as ElectLeadersResponse
    from kcore.protocol.messages.end_txn import EndTxnRequest as EndTxnRequest
    from kcore.protocol.messages.end_txn import EndTxnResponse as EndTxnResponse
    from kcore.protocol.messages.envelope import EnvelopeRequest as EnvelopeRequest
    from kcore.protocol.messages.envelope import EnvelopeResponse as EnvelopeResponse
    from kcore.protocol.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest as ExpireDelegationTokenRequest,
    )
    from kcore.protocol.messages.expire_delegation_token import (
        ExpireDelegationTokenResponse as ExpireDelegationTokenResponse,
    )
    from kcore.protocol.messages.fetch import FetchRequest as FetchRequest
    from kcore.protocol.messages.fetch import FetchResponse as FetchResponse
    from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest as FindCoordinatorRequest
    from kcore.protocol.messages.find_coordinator import FindCoordinatorResponse as FindCoordinatorResponse
    from kcore.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsRequest as GetTelemetrySubscriptionsRequest,
    )
    from kcore.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsResponse as GetTelemetrySubscriptionsResponse,
    )
    from kcore.protocol.messages.heartbeat import HeartbeatRequest as HeartbeatRequest
    from kcore.protocol.messages.heartbeat import HeartbeatResponse as HeartbeatResponse
    from kcore.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest as IncrementalAlterConfigsRequest,
    )
    from kcore.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsResponse as IncrementalAlterConfigsResponse,
    )
    from kcore.protocol.messages.init_producer_id import InitProducerIdRequest as InitProducerIdRequest
    from kcore.protocol.messages.init_producer_id import InitProducerIdResponse as InitProducerIdResponse
    from kcore.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest as InitializeShareGroupStateRequest,
    )
    from kcore.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateResponse as InitializeShareGroupStateResponse,
    )
    from kcore.protocol.messages.join_group import JoinGroupRequest as JoinGroupRequest
    from kcore.protocol.messages.join_group import JoinGroupResponse as JoinGroupResponse
    from kcore.protocol.messages.leave_group import LeaveGroupRequest as LeaveGroupRequest
    from kcore.protocol.messages.leave_group import LeaveGroupResponse as LeaveGroupResponse
    from kcore.protocol.messages.list_config_resources import ListConfigResourcesRequest as ListConfigResourcesRequest
    from kcore.protocol.messages.list_config_resources import ListConfigResourcesResponse as ListConfigResourcesResponse
    from kcore.protocol.messages.list_groups import ListGroupsRequest as ListGroupsRequest
    from kcore.protocol.messages.list_groups import ListGroupsResponse as ListGroupsResponse
    from kcore.protocol.messages.list_offsets import ListOffsetsRequest as ListOffsetsRequest
    from kcore.protocol.messages.list_offsets import ListOffsetsResponse as ListOffsetsResponse
    from kcore.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest as ListPartitionReassignmentsRequest,
    )
    from kcore.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsResponse as ListPartitionReassignmentsResponse,
    )
    from kcore.protocol.messages.list_transactions import ListTransactionsRequest as ListTransactionsRequest
    from kcore.protocol.messages.list_transactions import ListTransactionsResponse as ListTransactionsResponse
    from kcore.protocol.messages.metadata import MetadataRequest as MetadataRequest
    from kcore.protocol.messages.metadata import MetadataResponse as MetadataResponse
    from kcore.protocol.messages.offset_commit import OffsetCommitRequest as OffsetCommitRequest
    from kcore.protocol.messages.offset_commit import OffsetCommitResponse as OffsetCommitResponse
    from kcore.protocol.messages.offset_delete import OffsetDeleteRequest as OffsetDeleteRequest
    from kcore.protocol.messages.offset_delete import OffsetDeleteResponse as OffsetDeleteResponse
    from kcore.protocol.messages.offset_fetch import OffsetFetchRequest as OffsetFetchRequest
    from kcore.protocol.messages.offset_fetch import OffsetFetchResponse as OffsetFetchResponse
    from kcore.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest as OffsetForLeaderEpochRequest,
    )
    from kcore.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochResponse as OffsetForLeaderEpochResponse,
    )
    from kcore.protocol.messages.produce import ProduceRequest as ProduceRequest
    from kcore.protocol.messages.produce import ProduceResponse as ProduceResponse
    from kcore.protocol.messages.push_telemetry import PushTelemetryRequest as PushTelemetryRequest
    from kcore.protocol.messages.push_telemetry import PushTelemetryResponse as PushTelemetryResponse
    from kcore.protocol.messages.read_share_group_state import ReadShareGroupStateRequest as ReadShareGroupStateRequest
    from kcore.protocol.messages.read_share_group_state import (
        ReadShareGroupStateResponse as ReadShareGroupStateResponse,
    )
    from kcore.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest as ReadShareGroupStateSummaryRequest,
    )
    from kcore.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryResponse as ReadShareGroupStateSummaryResponse,
    )
    from kcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest as RemoveRaftVoterRequest
    from kcore.protocol.messages.remove_raft_voter import RemoveRaftVoterResponse as RemoveRaftVoterResponse
    from kcore.protocol.messages.renew_delegation_token import (
        RenewDelegationTokenRequest as RenewDelegationTokenRequest,
    )
    from kcore.protocol.messages.renew_delegation_token import (
        RenewDelegationTokenResponse as RenewDelegationTokenResponse,
    )
    from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest as SaslAuthenticateRequest
    from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateResponse as SaslAuthenticateResponse
    from kcore.protocol.messages.sasl_handshake import SaslHandshakeRequest as SaslHandshakeRequest
    from kcore.protocol.messages.sasl_handshake import SaslHandshakeResponse as SaslHandshakeResponse
    from kcore.protocol.messages.share_acknowledge import ShareAcknowledgeRequest as ShareAcknowledgeRequest
    from kcore.protocol.messages.share_acknowledge import ShareAcknowledgeResponse as ShareAcknowledgeResponse
    from kcore.protocol.messages.share_fetch import ShareFetchRequest as ShareFetchRequest
    from kcore.protocol.messages.share_fetch import ShareFetchResponse as ShareFetchResponse
    from kcore.protocol.messages.share_group_describe import ShareGroupDescribeRequest as ShareGroupDescribeRequest
    from kcore.protocol.messages.share_group_describe import ShareGroupDescribeResponse as ShareGroupDescribeResponse
    from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest as ShareGroupHeartbeatRequest
    from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse as ShareGroupHeartbeatResponse
    from kcore.protocol.messages.streams_group_describe import (
        StreamsGroupDescribeRequest as StreamsGroupDescribeRequest,
    )
    from kcore.protocol.messages.streams_group_describe import (
        StreamsGroupDescribeResponse as StreamsGroupDescribeResponse,
    )
    from kcore.protocol.messages.streams_group_heartbeat import (
        StreamsGroupHeartbeatRequest as StreamsGroupHeartbeatRequest,
    )
    from kcore.protocol.messages.streams_group_heartbeat import (
        StreamsGroupHeartbeatResponse as StreamsGroupHeartbeatResponse,
    )
    from kcore.protocol.messages.sync_group import SyncGroupRequest as SyncGroupRequest
    from kcore.protocol.messages.sync_group import SyncGroupResponse as SyncGroupResponse
    from kcore.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest as TxnOffsetCommitRequest
    from kcore.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse as TxnOffsetCommitResponse
    from kcore.protocol.messages.unregister_broker import UnregisterBrokerRequest as UnregisterBrokerRequest
    from kcore.protocol.messages.unregister_broker import UnregisterBrokerResponse as UnregisterBrokerResponse
    from kcore.protocol.messages.update_features import UpdateFeaturesRequest as UpdateFeaturesRequest
    from kcore.protocol.messages.update_features import UpdateFeaturesResponse as UpdateFeaturesResponse
    from kcore.protocol.messages.write_share_group_state import (
        WriteShareGroupStateRequest as WriteShareGroupStateRequest,
    )
    from kcore.protocol.messages.write_share_group_state import (
        WriteShareGroupStateResponse as WriteShareGroupStateResponse,
    )
    from kcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest as WriteTxnMarkersRequest
    from kcore.protocol.messages.write_txn_markers import WriteTxnMarkersResponse as WriteTxnMarkersResponse


def module_name(message_name: str) -> str:
    """Returns the module of a request or response: ``"JoinGroupResponse"`` is in ``"join_group"``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"(Request|Response)$", "", message_name)).lower()


def __getattr__(name: str) -> Any:
    """Imports the file of a message class, and returns the class."""
    if not re.fullmatch(r"[A-Z]\w+(Request|Response|Data)", name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{module_name(name)}")
    except ModuleNotFoundError as error:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from error
    value = globals()[name] = getattr(module, name)
    return value
