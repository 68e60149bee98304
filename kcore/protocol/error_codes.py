"""Kafka's error codes, as of Kafka 4.3."""

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    """A Kafka error code, an int16 on the wire.

    Attributes:
        message: a short text for people. Only responses with a field for an error message contain it.
    """

    message: str

    def __new__(cls, code: int, message: str = "") -> "ErrorCode":
        """Creates an enum member from a code and its message. The member equals the code, so `ErrorCode(3)` works."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = -1, "The server failed for a reason that has no other error code; its log has the cause."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies outside of the partition's log."
    CORRUPT_MESSAGE = 2, "The records are damaged or too large, or a record of a compacted topic has no key."
    UNKNOWN_TOPIC_OR_PARTITION = 3, "The server has no such topic or partition."
    INVALID_FETCH_SIZE = 4, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, "This node does not lead the partition, or has no replica of it."
    REQUEST_TIMED_OUT = 7, "The request took longer than its timeout allows."
    BROKER_NOT_AVAILABLE = 8, "The broker cannot be reached."
    REPLICA_NOT_AVAILABLE = 9, "The replica cannot be reached."
    MESSAGE_TOO_LARGE = 10, "A record batch is larger than the server accepts."
    STALE_CONTROLLER_EPOCH = 11, "The request comes from a former controller."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata of the committed offset is longer than offset.metadata.max.bytes."
    NETWORK_EXCEPTION = 13, "The connection broke before the response."
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, "The coordinator cannot be reached at the moment."
    NOT_COORDINATOR = 16, "This node does not coordinate the group or transaction."
    INVALID_TOPIC_EXCEPTION = 17, "The topic's name is not allowed, or the topic is reserved."
    RECORD_LIST_TOO_LARGE = 18, "The batches are larger than a log segment."
    NOT_ENOUGH_REPLICAS = 19, "Too few replicas are in sync, so the server wrote no records."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "Too few replicas were in sync after the records were written."
    INVALID_REQUIRED_ACKS = 21, "The setting acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member supports no protocol of the group, or its request names no protocol."
    INVALID_GROUP_ID = 24, "The group id is not allowed."
    UNKNOWN_MEMBER_ID = 25, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside of the server's group.{min,max}.session.timeout.ms."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is outside of the allowed range."
    UNSUPPORTED_SASL_MECHANISM = 33, "The SASL mechanism is not enabled."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the authentication."
    UNSUPPORTED_VERSION = 35, "The version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists."
    INVALID_PARTITIONS = 37, "The number of partitions is not allowed."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not possible."
    INVALID_CONFIG = 40, "A setting is unknown, or its value is not allowed."
    NOT_CONTROLLER = 41, "This node is not the controller."
    INVALID_REQUEST = 42, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The format of the stored records does not allow the request."
    POLICY_VIOLATION = 44, "A policy of the server forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        "The producer's sequence number is not the next one: earlier records are missing.",
    )
    DUPLICATE_SEQUENCE_NUMBER = 46, "The server has already received the producer's sequence number."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is out of date."
    INVALID_TXN_STATE = 48, "The transaction's state does not allow the request."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The timeout is below 1 or above the server's transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, "Another operation on the transaction is not finished: try again."
    TRANSACTION_COORDINATOR_FENCED = 52, "The markers come from a former coordinator of the transaction."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, "The server runs without an authorizer."
    OPERATION_NOT_ATTEMPTED = 55, "The server skipped this operation, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The server's disk failed."
    LOG_DIR_NOT_FOUND = 57, "The server has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The server no longer has the state of the producer id."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition's replicas are being moved."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal is neither the owner nor a renewer of the delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens cannot be requested over this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The type of principal is not supported."
    NON_EMPTY_GROUP = 68, "The group has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "There is no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, "The epoch of the fetch session is not the expected one."
    LISTENER_NOT_FOUND = 72, "The leader has no listener of the name that the request used."
    TOPIC_DELETION_DISABLED = 73, "Topics cannot be deleted on this server."
    FENCED_LEADER_EPOCH = 74, "The leader epoch of the request is older than the server's."
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch of the request is newer than the server's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The client cannot read the partition's compression."
    STALE_BROKER_EPOCH = 77, "The broker's epoch is out of date."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know the high watermark yet: try again."
    MEMBER_ID_REQUIRED = 79, "Join again with the member id of this response."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, "The group already has the maximum number of members."
    FENCED_INSTANCE_ID = 82, "Another member has taken over the group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica is eligible to become the leader."
    ELECTION_NOT_NEEDED = 84, "The partition does not need another leader."
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No replicas of the partition are being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "Members of the group are subscribed to the topic."
    INVALID_RECORD = 87, "A record did not pass the server's validation."
    UNSTABLE_OFFSET_COMMIT = 88, "A transaction that commits these offsets is still open."
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is used up for now."
    PRODUCER_FENCED = 90, "A newer producer has taken over the transactional id."
    RESOURCE_NOT_FOUND = 91, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the server's requirements."
    INCONSISTENT_VOTER_SET = 94, "The sender or the receiver is not one of the expected voters."
    INVALID_UPDATE_VERSION = 95, "The feature or its level is not supported."
    FEATURE_UPDATE_FAILED = 96, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The server could not decode the principal of a forwarded request."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside of the snapshot."
    UNKNOWN_TOPIC_ID = 100, "No topic has this id."
    DUPLICATE_BROKER_REGISTRATION = 101, "Another broker uses this broker id."
    BROKER_ID_NOT_REGISTERED = 102, "No broker is registered under this id."
    INCONSISTENT_TOPIC_ID = 103, "The log belongs to a topic with another id."
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topics with and without ids."
    INELIGIBLE_REPLICA = 107, "The new in-sync replicas contain a replica that is not eligible."
    NEW_LEADER_ELECTED = 108, "The change was made, and a new leader was elected."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is only in remote storage."
    FENCED_MEMBER_EPOCH = 110, "The member was fenced: give up all partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds the instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The group does not support the assignor."
    STALE_MEMBER_EPOCH = 113, "The member epoch is out of date: send a heartbeat, then try again."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request was sent to a broker instead of a controller, or the reverse."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "The server does not support the endpoint type of the request."
    UNKNOWN_CONTROLLER_ID = 116, "No controller has this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is out of date."
    TELEMETRY_TOO_LARGE = 118, "The metrics are larger than the server accepts."
    INVALID_REGISTRATION = 119, "The broker's registration is not valid."
    TRANSACTION_ABORTABLE = 120, "The transaction failed: abort it, then begin another transaction."
    INVALID_RECORD_STATE = 121, "The state of the records does not permit this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, "The epoch of the share session is not the expected one."
    FENCED_STATE_EPOCH = 124, "The state epoch of the share partition is out of date."
    INVALID_VOTER_KEY = 125, "The voter's key does not match the receiver's key."
    DUPLICATE_VOTER = 126, "The voter is already in the set of voters."
    VOTER_NOT_FOUND = 127, "The voter is not in the set of voters."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression cannot be compiled."
    REBOOTSTRAP_REQUIRED = 129, "The client's metadata is too old: start again from the bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology's epoch is out of date."
    SHARE_SESSION_LIMIT_REACHED = 133, "The server has no room for another share session."


NO_ERROR: Final = ErrorCode.NONE
"""`ErrorCode.NONE` as a global variable. Hot paths use it, because CPython 3.11 takes 0.1 µs to look up an enum member.
"""

COORDINATOR_AWAY: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Errors that report a missing or loading coordinator. The client then looks up the coordinator again."""

NEW_TOPIC_ERRORS: Final = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Error codes of a topic that may be so new that the brokers do not have its metadata yet."""

RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Errors after which the same request may succeed later, as in Kafka's own clients."""


def code_name(code: int) -> str:
    """Returns Kafka's name of an error code, or the number of an unknown code of a newer server."""
    return next((known.name for known in ErrorCode if known == code), str(code))
