"""One exception class per error code of Kafka. Made by tools/generate_errors.py from `ErrorCode`."""

from __future__ import annotations

from typing import ClassVar, Final

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode


class _CodedError(KafkaError):
    """The base of the classes below: an error whose class determines its code."""

    CODE: ClassVar[ErrorCode]

    def __init__(self, message: str | None = None) -> None:
        super().__init__(self.CODE, message)
        self.args = (message,)


class UnknownServerError(_CodedError):
    """UNKNOWN_SERVER_ERROR, code -1, not retriable.

    The server failed for a reason that has no other error code; its log has the cause.
    """

    CODE = ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetOutOfRangeError(_CodedError):
    """OFFSET_OUT_OF_RANGE, code 1, not retriable.

    The offset lies outside of the partition's log.
    """

    CODE = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessageError(_CodedError):
    """CORRUPT_MESSAGE, code 2, retriable.

    The records are damaged or too large, or a record of a compacted topic has no key.
    """

    CODE = ErrorCode.CORRUPT_MESSAGE


class UnknownTopicOrPartitionError(_CodedError):
    """UNKNOWN_TOPIC_OR_PARTITION, code 3, retriable.

    The server has no such topic or partition.
    """

    CODE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class InvalidFetchSizeError(_CodedError):
    """INVALID_FETCH_SIZE, code 4, not retriable.

    The fetch size is not valid.
    """

    CODE = ErrorCode.INVALID_FETCH_SIZE


class LeaderNotAvailableError(_CodedError):
    """LEADER_NOT_AVAILABLE, code 5, retriable.

    The partition has no leader at the moment.
    """

    CODE = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollowerError(_CodedError):
    """NOT_LEADER_OR_FOLLOWER, code 6, retriable.

    This node does not lead the partition, or has no replica of it.
    """

    CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RequestTimedOutError(_CodedError):
    """REQUEST_TIMED_OUT, code 7, retriable.

    The request took longer than its timeout allows.
    """

    CODE = ErrorCode.REQUEST_TIMED_OUT


class BrokerNotAvailableError(_CodedError):
    """BROKER_NOT_AVAILABLE, code 8, not retriable.

    The broker cannot be reached.
    """

    CODE = ErrorCode.BROKER_NOT_AVAILABLE


class ReplicaNotAvailableError(_CodedError):
    """REPLICA_NOT_AVAILABLE, code 9, retriable.

    The replica cannot be reached.
    """

    CODE = ErrorCode.REPLICA_NOT_AVAILABLE


class MessageTooLargeError(_CodedError):
    """MESSAGE_TOO_LARGE, code 10, not retriable.

    A record batch is larger than the server accepts.
    """

    CODE = ErrorCode.MESSAGE_TOO_LARGE


class StaleControllerEpochError(_CodedError):
    """STALE_CONTROLLER_EPOCH, code 11, not retriable.

    The request comes from a former controller.
    """

    CODE = ErrorCode.STALE_CONTROLLER_EPOCH


class OffsetMetadataTooLargeError(_CodedError):
    """OFFSET_METADATA_TOO_LARGE, code 12, not retriable.

    The metadata of the committed offset is longer than offset.metadata.max.bytes.
    """

    CODE = ErrorCode.OFFSET_METADATA_TOO_LARGE


class NetworkError(_CodedError):
    """NETWORK_EXCEPTION, code 13, retriable.

    The connection broke before the response.
    """

    CODE = ErrorCode.NETWORK_EXCEPTION


class CoordinatorLoadInProgressError(_CodedError):
    """COORDINATOR_LOAD_IN_PROGRESS, code 14, retriable.

    The coordinator is still loading its state.
    """

    CODE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailableError(_CodedError):
    """COORDINATOR_NOT_AVAILABLE, code 15, retriable.

    The coordinator cannot be reached at the moment.
    """

    CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinatorError(_CodedError):
    """NOT_COORDINATOR, code 16, retriable.

    This node does not coordinate the group or transaction.
    """

    CODE = ErrorCode.NOT_COORDINATOR


class InvalidTopicError(_CodedError):
    """INVALID_TOPIC_EXCEPTION, code 17, not retriable.

    The topic's name is not allowed, or the topic is reserved.
    """

    CODE = ErrorCode.INVALID_TOPIC_EXCEPTION


class RecordListTooLargeError(_CodedError):
    """RECORD_LIST_TOO_LARGE, code 18, not retriable.

    The batches are larger than a log segment.
    """

    CODE = ErrorCode.RECORD_LIST_TOO_LARGE


class NotEnoughReplicasError(_CodedError):
    """NOT_ENOUGH_REPLICAS, code 19, retriable.

    Too few replicas are in sync, so the server wrote no records.
    """

    CODE = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(_CodedError):
    """NOT_ENOUGH_REPLICAS_AFTER_APPEND, code 20, retriable.

    Too few replicas were in sync after the records were written.
    """

    CODE = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class InvalidRequiredAcksError(_CodedError):
    """INVALID_REQUIRED_ACKS, code 21, not retriable.

    The setting acks must be -1, 0 or 1.
    """

    CODE = ErrorCode.INVALID_REQUIRED_ACKS


class IllegalGenerationError(_CodedError):
    """ILLEGAL_GENERATION, code 22, not retriable.

    The generation is not the group's current one.
    """

    CODE = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocolError(_CodedError):
    """INCONSISTENT_GROUP_PROTOCOL, code 23, not retriable.

    The member supports no protocol of the group, or its request names no protocol.
    """

    CODE = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupIdError(_CodedError):
    """INVALID_GROUP_ID, code 24, not retriable.

    The group id is not allowed.
    """

    CODE = ErrorCode.INVALID_GROUP_ID


class UnknownMemberIdError(_CodedError):
    """UNKNOWN_MEMBER_ID, code 25, not retriable.

    The group has no such member.
    """

    CODE = ErrorCode.UNKNOWN_MEMBER_ID


class InvalidSessionTimeoutError(_CodedError):
    """INVALID_SESSION_TIMEOUT, code 26, not retriable.

    The session timeout is outside of the server's group.{min,max}.session.timeout.ms.
    """

    CODE = ErrorCode.INVALID_SESSION_TIMEOUT


class RebalanceInProgressError(_CodedError):
    """REBALANCE_IN_PROGRESS, code 27, not retriable.

    The group is rebalancing: join again.
    """

    CODE = ErrorCode.REBALANCE_IN_PROGRESS


class InvalidCommitOffsetSizeError(_CodedError):
    """INVALID_COMMIT_OFFSET_SIZE, code 28, not retriable.

    The commit is too large to be stored.
    """

    CODE = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


class TopicAuthorizationFailedError(_CodedError):
    """TOPIC_AUTHORIZATION_FAILED, code 29, not retriable.

    Not authorized for the topic.
    """

    CODE = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailedError(_CodedError):
    """GROUP_AUTHORIZATION_FAILED, code 30, not retriable.

    Not authorized for the group.
    """

    CODE = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailedError(_CodedError):
    """CLUSTER_AUTHORIZATION_FAILED, code 31, not retriable.

    Not authorized for the cluster.
    """

    CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidTimestampError(_CodedError):
    """INVALID_TIMESTAMP, code 32, not retriable.

    A record's timestamp is outside of the allowed range.
    """

    CODE = ErrorCode.INVALID_TIMESTAMP


class UnsupportedSaslMechanismError(_CodedError):
    """UNSUPPORTED_SASL_MECHANISM, code 33, not retriable.

    The SASL mechanism is not enabled.
    """

    CODE = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class IllegalSaslStateError(_CodedError):
    """ILLEGAL_SASL_STATE, code 34, not retriable.

    The request does not fit the state of the authentication.
    """

    CODE = ErrorCode.ILLEGAL_SASL_STATE


class UnsupportedVersionError(_CodedError):
    """UNSUPPORTED_VERSION, code 35, not retriable.

    The version of the API is not supported.
    """

    CODE = ErrorCode.UNSUPPORTED_VERSION


class TopicAlreadyExistsError(_CodedError):
    """TOPIC_ALREADY_EXISTS, code 36, not retriable.

    A topic of this name exists.
    """

    CODE = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitionsError(_CodedError):
    """INVALID_PARTITIONS, code 37, not retriable.

    The number of partitions is not allowed.
    """

    CODE = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(_CodedError):
    """INVALID_REPLICATION_FACTOR, code 38, not retriable.

    The replication factor is below 1 or above the number of brokers.
    """

    CODE = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(_CodedError):
    """INVALID_REPLICA_ASSIGNMENT, code 39, not retriable.

    The replica assignment is not possible.
    """

    CODE = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfigError(_CodedError):
    """INVALID_CONFIG, code 40, not retriable.

    A setting is unknown, or its value is not allowed.
    """

    CODE = ErrorCode.INVALID_CONFIG


class NotControllerError(_CodedError):
    """NOT_CONTROLLER, code 41, retriable.

    This node is not the controller.
    """

    CODE = ErrorCode.NOT_CONTROLLER


class InvalidRequestError(_CodedError):
    """INVALID_REQUEST, code 42, not retriable.

    The request contradicts itself or the protocol.
    """

    CODE = ErrorCode.INVALID_REQUEST


class UnsupportedForMessageFormatError(_CodedError):
    """UNSUPPORTED_FOR_MESSAGE_FORMAT, code 43, not retriable.

    The format of the stored records does not allow the request.
    """

    CODE = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class PolicyViolationError(_CodedError):
    """POLICY_VIOLATION, code 44, not retriable.

    A policy of the server forbids the request.
    """

    CODE = ErrorCode.POLICY_VIOLATION


class OutOfOrderSequenceNumberError(_CodedError):
    """OUT_OF_ORDER_SEQUENCE_NUMBER, code 45, not retriable.

    The producer's sequence number is not the next one: earlier records are missing.
    """

    CODE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequenceNumberError(_CodedError):
    """DUPLICATE_SEQUENCE_NUMBER, code 46, not retriable.

    The server has already received the producer's sequence number.
    """

    CODE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class InvalidProducerEpochError(_CodedError):
    """INVALID_PRODUCER_EPOCH, code 47, not retriable.

    The producer's epoch is out of date.
    """

    CODE = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnStateError(_CodedError):
    """INVALID_TXN_STATE, code 48, not retriable.

    The transaction's state does not allow the request.
    """

    CODE = ErrorCode.INVALID_TXN_STATE


class InvalidProducerIdMappingError(_CodedError):
    """INVALID_PRODUCER_ID_MAPPING, code 49, not retriable.

    The producer id does not belong to the transactional id.
    """

    CODE = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeoutError(_CodedError):
    """INVALID_TRANSACTION_TIMEOUT, code 50, not retriable.

    The timeout is below 1 or above the server's transaction.max.timeout.ms.
    """

    CODE = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class ConcurrentTransactionsError(_CodedError):
    """CONCURRENT_TRANSACTIONS, code 51, retriable.

    Another operation on the transaction is not finished: try again.
    """

    CODE = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionCoordinatorFencedError(_CodedError):
    """TRANSACTION_COORDINATOR_FENCED, code 52, not retriable.

    The markers come from a former coordinator of the transaction.
    """

    CODE = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class TransactionalIdAuthorizationFailedError(_CodedError):
    """TRANSACTIONAL_ID_AUTHORIZATION_FAILED, code 53, not retriable.

    Not authorized for the transactional id.
    """

    CODE = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class SecurityDisabledError(_CodedError):
    """SECURITY_DISABLED, code 54, not retriable.

    The server runs without an authorizer.
    """

    CODE = ErrorCode.SECURITY_DISABLED


class OperationNotAttemptedError(_CodedError):
    """OPERATION_NOT_ATTEMPTED, code 55, not retriable.

    The server skipped this operation, because another part of the request failed.
    """

    CODE = ErrorCode.OPERATION_NOT_ATTEMPTED


class KafkaStorageError(_CodedError):
    """KAFKA_STORAGE_ERROR, code 56, retriable.

    The server's disk failed.
    """

    CODE = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirNotFoundError(_CodedError):
    """LOG_DIR_NOT_FOUND, code 57, not retriable.

    The server has no such log directory.
    """

    CODE = ErrorCode.LOG_DIR_NOT_FOUND


class SaslAuthenticationFailedError(_CodedError):
    """SASL_AUTHENTICATION_FAILED, code 58, not retriable.

    Authentication failed.
    """

    CODE = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnknownProducerIdError(_CodedError):
    """UNKNOWN_PRODUCER_ID, code 59, not retriable.

    The server no longer has the state of the producer id.
    """

    CODE = ErrorCode.UNKNOWN_PRODUCER_ID


class ReassignmentInProgressError(_CodedError):
    """REASSIGNMENT_IN_PROGRESS, code 60, not retriable.

    The partition's replicas are being moved.
    """

    CODE = ErrorCode.REASSIGNMENT_IN_PROGRESS


class DelegationTokenAuthDisabledError(_CodedError):
    """DELEGATION_TOKEN_AUTH_DISABLED, code 61, not retriable.

    Delegation tokens are not enabled.
    """

    CODE = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class DelegationTokenNotFoundError(_CodedError):
    """DELEGATION_TOKEN_NOT_FOUND, code 62, not retriable.

    There is no such delegation token.
    """

    CODE = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class DelegationTokenOwnerMismatchError(_CodedError):
    """DELEGATION_TOKEN_OWNER_MISMATCH, code 63, not retriable.

    The principal is neither the owner nor a renewer of the delegation token.
    """

    CODE = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


class DelegationTokenRequestNotAllowedError(_CodedError):
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, code 64, not retriable.

    Delegation tokens cannot be requested over this connection.
    """

    CODE = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class DelegationTokenAuthorizationFailedError(_CodedError):
    """DELEGATION_TOKEN_AUTHORIZATION_FAILED, code 65, not retriable.

    Not authorized for the delegation token.
    """

    CODE = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class DelegationTokenExpiredError(_CodedError):
    """DELEGATION_TOKEN_EXPIRED, code 66, not retriable.

    The delegation token has expired.
    """

    CODE = ErrorCode.DELEGATION_TOKEN_EXPIRED


class InvalidPrincipalTypeError(_CodedError):
    """INVALID_PRINCIPAL_TYPE, code 67, not retriable.

    The type of principal is not supported.
    """

    CODE = ErrorCode.INVALID_PRINCIPAL_TYPE


class NonEmptyGroupError(_CodedError):
    """NON_EMPTY_GROUP, code 68, not retriable.

    The group has members.
    """

    CODE = ErrorCode.NON_EMPTY_GROUP


class GroupIdNotFoundError(_CodedError):
    """GROUP_ID_NOT_FOUND, code 69, not retriable.

    There is no such group.
    """

    CODE = ErrorCode.GROUP_ID_NOT_FOUND


class FetchSessionIdNotFoundError(_CodedError):
    """FETCH_SESSION_ID_NOT_FOUND, code 70, retriable.

    There is no such fetch session.
    """

    CODE = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpochError(_CodedError):
    """INVALID_FETCH_SESSION_EPOCH, code 71, retriable.

    The epoch of the fetch session is not the expected one.
    """

    CODE = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class ListenerNotFoundError(_CodedError):
    """LISTENER_NOT_FOUND, code 72, retriable.

    The leader has no listener of the name that the request used.
    """

    CODE = ErrorCode.LISTENER_NOT_FOUND


class TopicDeletionDisabledError(_CodedError):
    """TOPIC_DELETION_DISABLED, code 73, not retriable.

    Topics cannot be deleted on this server.
    """

    CODE = ErrorCode.TOPIC_DELETION_DISABLED


class FencedLeaderEpochError(_CodedError):
    """FENCED_LEADER_EPOCH, code 74, retriable.

    The leader epoch of the request is older than the server's.
    """

    CODE = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(_CodedError):
    """UNKNOWN_LEADER_EPOCH, code 75, retriable.

    The leader epoch of the request is newer than the server's.
    """

    CODE = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionTypeError(_CodedError):
    """UNSUPPORTED_COMPRESSION_TYPE, code 76, not retriable.

    The client cannot read the partition's compression.
    """

    CODE = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class StaleBrokerEpochError(_CodedError):
    """STALE_BROKER_EPOCH, code 77, not retriable.

    The broker's epoch is out of date.
    """

    CODE = ErrorCode.STALE_BROKER_EPOCH


class OffsetNotAvailableError(_CodedError):
    """OFFSET_NOT_AVAILABLE, code 78, retriable.

    The new leader does not know the high watermark yet: try again.
    """

    CODE = ErrorCode.OFFSET_NOT_AVAILABLE


class MemberIdRequiredError(_CodedError):
    """MEMBER_ID_REQUIRED, code 79, not retriable.

    Join again with the member id of this response.
    """

    CODE = ErrorCode.MEMBER_ID_REQUIRED


class PreferredLeaderNotAvailableError(_CodedError):
    """PREFERRED_LEADER_NOT_AVAILABLE, code 80, retriable.

    The preferred leader is not available.
    """

    CODE = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class GroupMaxSizeReachedError(_CodedError):
    """GROUP_MAX_SIZE_REACHED, code 81, not retriable.

    The group already has the maximum number of members.
    """

    CODE = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedInstanceIdError(_CodedError):
    """FENCED_INSTANCE_ID, code 82, not retriable.

    Another member has taken over the group.instance.id.
    """

    CODE = ErrorCode.FENCED_INSTANCE_ID


class EligibleLeadersNotAvailableError(_CodedError):
    """ELIGIBLE_LEADERS_NOT_AVAILABLE, code 83, retriable.

    No replica is eligible to become the leader.
    """

    CODE = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ElectionNotNeededError(_CodedError):
    """ELECTION_NOT_NEEDED, code 84, retriable.

    The partition does not need another leader.
    """

    CODE = ErrorCode.ELECTION_NOT_NEEDED


class NoReassignmentInProgressError(_CodedError):
    """NO_REASSIGNMENT_IN_PROGRESS, code 85, not retriable.

    No replicas of the partition are being moved.
    """

    CODE = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class GroupSubscribedToTopicError(_CodedError):
    """GROUP_SUBSCRIBED_TO_TOPIC, code 86, not retriable.

    Members of the group are subscribed to the topic.
    """

    CODE = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class InvalidRecordError(_CodedError):
    """INVALID_RECORD, code 87, not retriable.

    A record did not pass the server's validation.
    """

    CODE = ErrorCode.INVALID_RECORD


class UnstableOffsetCommitError(_CodedError):
    """UNSTABLE_OFFSET_COMMIT, code 88, retriable.

    A transaction that commits these offsets is still open.
    """

    CODE = ErrorCode.UNSTABLE_OFFSET_COMMIT


class ThrottlingQuotaExceededError(_CodedError):
    """THROTTLING_QUOTA_EXCEEDED, code 89, retriable.

    The quota is used up for now.
    """

    CODE = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class ProducerFencedError(_CodedError):
    """PRODUCER_FENCED, code 90, not retriable.

    A newer producer has taken over the transactional id.
    """

    CODE = ErrorCode.PRODUCER_FENCED


class ResourceNotFoundError(_CodedError):
    """RESOURCE_NOT_FOUND, code 91, not retriable.

    The resource does not exist.
    """

    CODE = ErrorCode.RESOURCE_NOT_FOUND


class DuplicateResourceError(_CodedError):
    """DUPLICATE_RESOURCE, code 92, not retriable.

    The request names a resource twice.
    """

    CODE = ErrorCode.DUPLICATE_RESOURCE


class UnacceptableCredentialError(_CodedError):
    """UNACCEPTABLE_CREDENTIAL, code 93, not retriable.

    The credential does not meet the server's requirements.
    """

    CODE = ErrorCode.UNACCEPTABLE_CREDENTIAL


class InconsistentVoterSetError(_CodedError):
    """INCONSISTENT_VOTER_SET, code 94, not retriable.

    The sender or the receiver is not one of the expected voters.
    """

    CODE = ErrorCode.INCONSISTENT_VOTER_SET


class InvalidUpdateVersionError(_CodedError):
    """INVALID_UPDATE_VERSION, code 95, not retriable.

    The feature or its level is not supported.
    """

    CODE = ErrorCode.INVALID_UPDATE_VERSION


class FeatureUpdateFailedError(_CodedError):
    """FEATURE_UPDATE_FAILED, code 96, not retriable.

    The features could not be updated.
    """

    CODE = ErrorCode.FEATURE_UPDATE_FAILED


class PrincipalDeserializationFailureError(_CodedError):
    """PRINCIPAL_DESERIALIZATION_FAILURE, code 97, not retriable.

    The server could not decode the principal of a forwarded request.
    """

    CODE = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


class SnapshotNotFoundError(_CodedError):
    """SNAPSHOT_NOT_FOUND, code 98, not retriable.

    There is no such snapshot.
    """

    CODE = ErrorCode.SNAPSHOT_NOT_FOUND


class PositionOutOfRangeError(_CodedError):
    """POSITION_OUT_OF_RANGE, code 99, not retriable.

    The position lies outside of the snapshot.
    """

    CODE = ErrorCode.POSITION_OUT_OF_RANGE


class UnknownTopicIdError(_CodedError):
    """UNKNOWN_TOPIC_ID, code 100, retriable.

    No topic has this id.
    """

    CODE = ErrorCode.UNKNOWN_TOPIC_ID


class DuplicateBrokerRegistrationError(_CodedError):
    """DUPLICATE_BROKER_REGISTRATION, code 101, not retriable.

    Another broker uses this broker id.
    """

    CODE = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class BrokerIdNotRegisteredError(_CodedError):
    """BROKER_ID_NOT_REGISTERED, code 102, not retriable.

    No broker is registered under this id.
    """

    CODE = ErrorCode.BROKER_ID_NOT_REGISTERED


class InconsistentTopicIdError(_CodedError):
    """INCONSISTENT_TOPIC_ID, code 103, retriable.

    The log belongs to a topic with another id.
    """

    CODE = ErrorCode.INCONSISTENT_TOPIC_ID


class InconsistentClusterIdError(_CodedError):
    """INCONSISTENT_CLUSTER_ID, code 104, not retriable.

    The request is meant for another cluster.
    """

    CODE = ErrorCode.INCONSISTENT_CLUSTER_ID


class TransactionalIdNotFoundError(_CodedError):
    """TRANSACTIONAL_ID_NOT_FOUND, code 105, not retriable.

    There is no such transactional id.
    """

    CODE = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class FetchSessionTopicIdError(_CodedError):
    """FETCH_SESSION_TOPIC_ID_ERROR, code 106, retriable.

    The fetch session mixes topics with and without ids.
    """

    CODE = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class IneligibleReplicaError(_CodedError):
    """INELIGIBLE_REPLICA, code 107, not retriable.

    The new in-sync replicas contain a replica that is not eligible.
    """

    CODE = ErrorCode.INELIGIBLE_REPLICA


class NewLeaderElectedError(_CodedError):
    """NEW_LEADER_ELECTED, code 108, not retriable.

    The change was made, and a new leader was elected.
    """

    CODE = ErrorCode.NEW_LEADER_ELECTED


class OffsetMovedToTieredStorageError(_CodedError):
    """OFFSET_MOVED_TO_TIERED_STORAGE, code 109, not retriable.

    The offset is only in remote storage.
    """

    CODE = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


class FencedMemberEpochError(_CodedError):
    """FENCED_MEMBER_EPOCH, code 110, not retriable.

    The member was fenced: give up all partitions and join again.
    """

    CODE = ErrorCode.FENCED_MEMBER_EPOCH


class UnreleasedInstanceIdError(_CodedError):
    """UNRELEASED_INSTANCE_ID, code 111, not retriable.

    Another member still holds the instance id.
    """

    CODE = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignorError(_CodedError):
    """UNSUPPORTED_ASSIGNOR, code 112, not retriable.

    The group does not support the assignor.
    """

    CODE = ErrorCode.UNSUPPORTED_ASSIGNOR


class StaleMemberEpochError(_CodedError):
    """STALE_MEMBER_EPOCH, code 113, not retriable.

    The member epoch is out of date: send a heartbeat, then try again.
    """

    CODE = ErrorCode.STALE_MEMBER_EPOCH


class MismatchedEndpointTypeError(_CodedError):
    """MISMATCHED_ENDPOINT_TYPE, code 114, not retriable.

    The request was sent to a broker instead of a controller, or the reverse.
    """

    CODE = ErrorCode.MISMATCHED_ENDPOINT_TYPE


class UnsupportedEndpointTypeError(_CodedError):
    """UNSUPPORTED_ENDPOINT_TYPE, code 115, not retriable.

    The server does not support the endpoint type of the request.
    """

    CODE = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


class UnknownControllerIdError(_CodedError):
    """UNKNOWN_CONTROLLER_ID, code 116, not retriable.

    No controller has this id.
    """

    CODE = ErrorCode.UNKNOWN_CONTROLLER_ID


class UnknownSubscriptionIdError(_CodedError):
    """UNKNOWN_SUBSCRIPTION_ID, code 117, not retriable.

    The telemetry subscription is out of date.
    """

    CODE = ErrorCode.UNKNOWN_SUBSCRIPTION_ID


class TelemetryTooLargeError(_CodedError):
    """TELEMETRY_TOO_LARGE, code 118, not retriable.

    The metrics are larger than the server accepts.
    """

    CODE = ErrorCode.TELEMETRY_TOO_LARGE


class InvalidRegistrationError(_CodedError):
    """INVALID_REGISTRATION, code 119, not retriable.

    The broker's registration is not valid.
    """

    CODE = ErrorCode.INVALID_REGISTRATION


class TransactionAbortableError(_CodedError):
    """TRANSACTION_ABORTABLE, code 120, not retriable.

    The transaction failed: abort it, then begin another transaction.
    """

    CODE = ErrorCode.TRANSACTION_ABORTABLE


class InvalidRecordStateError(_CodedError):
    """INVALID_RECORD_STATE, code 121, not retriable.

    The state of the records does not permit this acknowledgement.
    """

    CODE = ErrorCode.INVALID_RECORD_STATE


class ShareSessionNotFoundError(_CodedError):
    """SHARE_SESSION_NOT_FOUND, code 122, retriable.

    There is no such share session.
    """

    CODE = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpochError(_CodedError):
    """INVALID_SHARE_SESSION_EPOCH, code 123, retriable.

    The epoch of the share session is not the expected one.
    """

    CODE = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class FencedStateEpochError(_CodedError):
    """FENCED_STATE_EPOCH, code 124, not retriable.

    The state epoch of the share partition is out of date.
    """

    CODE = ErrorCode.FENCED_STATE_EPOCH


class InvalidVoterKeyError(_CodedError):
    """INVALID_VOTER_KEY, code 125, not retriable.

    The voter's key does not match the receiver's key.
    """

    CODE = ErrorCode.INVALID_VOTER_KEY


class DuplicateVoterError(_CodedError):
    """DUPLICATE_VOTER, code 126, not retriable.

    The voter is already in the set of voters.
    """

    CODE = ErrorCode.DUPLICATE_VOTER


class VoterNotFoundError(_CodedError):
    """VOTER_NOT_FOUND, code 127, not retriable.

    The voter is not in the set of voters.
    """

    CODE = ErrorCode.VOTER_NOT_FOUND


class InvalidRegularExpressionError(_CodedError):
    """INVALID_REGULAR_EXPRESSION, code 128, not retriable.

    The regular expression cannot be compiled.
    """

    CODE = ErrorCode.INVALID_REGULAR_EXPRESSION


class RebootstrapRequiredError(_CodedError):
    """REBOOTSTRAP_REQUIRED, code 129, not retriable.

    The client's metadata is too old: start again from the bootstrap servers.
    """

    CODE = ErrorCode.REBOOTSTRAP_REQUIRED


class StreamsInvalidTopologyError(_CodedError):
    """STREAMS_INVALID_TOPOLOGY, code 130, not retriable.

    The topology is not valid.
    """

    CODE = ErrorCode.STREAMS_INVALID_TOPOLOGY


class StreamsInvalidTopologyEpochError(_CodedError):
    """STREAMS_INVALID_TOPOLOGY_EPOCH, code 131, not retriable.

    The topology's epoch is not valid.
    """

    CODE = ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH


class StreamsTopologyFencedError(_CodedError):
    """STREAMS_TOPOLOGY_FENCED, code 132, not retriable.

    The topology's epoch is out of date.
    """

    CODE = ErrorCode.STREAMS_TOPOLOGY_FENCED


class ShareSessionLimitReachedError(_CodedError):
    """SHARE_SESSION_LIMIT_REACHED, code 133, retriable.

    The server has no room for another share session.
    """

    CODE = ErrorCode.SHARE_SESSION_LIMIT_REACHED


BY_CODE: Final[dict[int, type[_CodedError]]] = {
    -1: UnknownServerError,
    1: OffsetOutOfRangeError,
    2: CorruptMessageError,
    3: UnknownTopicOrPartitionError,
    4: InvalidFetchSizeError,
    5: LeaderNotAvailableError,
    6: NotLeaderOrFollowerError,
    7: RequestTimedOutError,
    8: BrokerNotAvailableError,
    9: ReplicaNotAvailableError,
    10: MessageTooLargeError,
    11: StaleControllerEpochError,
    12: OffsetMetadataTooLargeError,
    13: NetworkError,
    14: CoordinatorLoadInProgressError,
    15: CoordinatorNotAvailableError,
    16: NotCoordinatorError,
    17: InvalidTopicError,
    18: RecordListTooLargeError,
    19: NotEnoughReplicasError,
    20: NotEnoughReplicasAfterAppendError,
    21: InvalidRequiredAcksError,
    22: IllegalGenerationError,
    23: InconsistentGroupProtocolError,
    24: InvalidGroupIdError,
    25: UnknownMemberIdError,
    26: InvalidSessionTimeoutError,
    27: RebalanceInProgressError,
    28: InvalidCommitOffsetSizeError,
    29: TopicAuthorizationFailedError,
    30: GroupAuthorizationFailedError,
    31: ClusterAuthorizationFailedError,
    32: InvalidTimestampError,
    33: UnsupportedSaslMechanismError,
    34: IllegalSaslStateError,
    35: UnsupportedVersionError,
    36: TopicAlreadyExistsError,
    37: InvalidPartitionsError,
    38: InvalidReplicationFactorError,
    39: InvalidReplicaAssignmentError,
    40: InvalidConfigError,
    41: NotControllerError,
    42: InvalidRequestError,
    43: UnsupportedForMessageFormatError,
    44: PolicyViolationError,
    45: OutOfOrderSequenceNumberError,
    46: DuplicateSequenceNumberError,
    47: InvalidProducerEpochError,
    48: InvalidTxnStateError,
    49: InvalidProducerIdMappingError,
    50: InvalidTransactionTimeoutError,
    51: ConcurrentTransactionsError,
    52: TransactionCoordinatorFencedError,
    53: TransactionalIdAuthorizationFailedError,
    54: SecurityDisabledError,
    55: OperationNotAttemptedError,
    56: KafkaStorageError,
    57: LogDirNotFoundError,
    58: SaslAuthenticationFailedError,
    59: UnknownProducerIdError,
    60: ReassignmentInProgressError,
    61: DelegationTokenAuthDisabledError,
    62: DelegationTokenNotFoundError,
    63: DelegationTokenOwnerMismatchError,
    64: DelegationTokenRequestNotAllowedError,
    65: DelegationTokenAuthorizationFailedError,
    66: DelegationTokenExpiredError,
    67: InvalidPrincipalTypeError,
    68: NonEmptyGroupError,
    69: GroupIdNotFoundError,
    70: FetchSessionIdNotFoundError,
    71: InvalidFetchSessionEpochError,
    72: ListenerNotFoundError,
    73: TopicDeletionDisabledError,
    74: FencedLeaderEpochError,
    75: UnknownLeaderEpochError,
    76: UnsupportedCompressionTypeError,
    77: StaleBrokerEpochError,
    78: OffsetNotAvailableError,
    79: MemberIdRequiredError,
    80: PreferredLeaderNotAvailableError,
    81: GroupMaxSizeReachedError,
    82: FencedInstanceIdError,
    83: EligibleLeadersNotAvailableError,
    84: ElectionNotNeededError,
    85: NoReassignmentInProgressError,
    86: GroupSubscribedToTopicError,
    87: InvalidRecordError,
    88: UnstableOffsetCommitError,
    89: ThrottlingQuotaExceededError,
    90: ProducerFencedError,
    91: ResourceNotFoundError,
    92: DuplicateResourceError,
    93: UnacceptableCredentialError,
    94: InconsistentVoterSetError,
    95: InvalidUpdateVersionError,
    96: FeatureUpdateFailedError,
    97: PrincipalDeserializationFailureError,
    98: SnapshotNotFoundError,
    99: PositionOutOfRangeError,
    100: UnknownTopicIdError,
    101: DuplicateBrokerRegistrationError,
    102: BrokerIdNotRegisteredError,
    103: InconsistentTopicIdError,
    104: InconsistentClusterIdError,
    105: TransactionalIdNotFoundError,
    106: FetchSessionTopicIdError,
    107: IneligibleReplicaError,
    108: NewLeaderElectedError,
    109: OffsetMovedToTieredStorageError,
    110: FencedMemberEpochError,
    111: UnreleasedInstanceIdError,
    112: UnsupportedAssignorError,
    113: StaleMemberEpochError,
    114: MismatchedEndpointTypeError,
    115: UnsupportedEndpointTypeError,
    116: UnknownControllerIdError,
    117: UnknownSubscriptionIdError,
    118: TelemetryTooLargeError,
    119: InvalidRegistrationError,
    120: TransactionAbortableError,
    121: InvalidRecordStateError,
    122: ShareSessionNotFoundError,
    123: InvalidShareSessionEpochError,
    124: FencedStateEpochError,
    125: InvalidVoterKeyError,
    126: DuplicateVoterError,
    127: VoterNotFoundError,
    128: InvalidRegularExpressionError,
    129: RebootstrapRequiredError,
    130: StreamsInvalidTopologyError,
    131: StreamsInvalidTopologyEpochError,
    132: StreamsTopologyFencedError,
    133: ShareSessionLimitReachedError,
}
"""Error code -> class."""
