"""API keys with their message classes, flexible versions and header versions."""

from enum import IntEnum
from functools import cache

from kcore.late_imports import import_late
from kcore.protocol.schema import Message
from kcore_ext.codec import frames


class ApiKey(IntEnum):
    """The number of each API, under Kafka's own name.

    Some of these APIs have no message classes, because only Kafka's brokers and controllers use them.
    """

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


def api_name(api_key: int) -> str:
    """Returns Kafka's name of an API, such as JoinGroup. Raises ValueError if the key is unknown."""
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))


@cache
def _message_class(api_key: int, suffix: str) -> type[Message]:
    """Imports the API's module and returns its message class."""
    try:
        module = import_late(f"kcore.protocol.messages.{ApiKey(api_key).name.lower()}")
    except (ValueError, ModuleNotFoundError):
        raise KeyError(f"no messages are declared for API key {api_key}") from None
    found: type[Message] = getattr(module, api_name(api_key) + suffix)
    return found


def request_class(api_key: int) -> type[Message]:
    """Returns the class of an API's requests; its module is imported at the first use.

    Raises:
        KeyError: the key is unknown, or kcore does not declare its messages.
    """
    return _message_class(api_key, "Request")


def response_class(api_key: int) -> type[Message]:
    """Returns the class of an API's responses; its module is imported at the first use.

    Raises:
        KeyError: the key is unknown, or kcore does not declare its messages.
    """
    return _message_class(api_key, "Response")


def flexible_since(api_key: int) -> int:
    """Returns the first version of an API with compact lengths and tag sections (KIP-482); 32768 if no version has
    them.
    """
    return request_class(api_key).FLEXIBLE_SINCE


def request_header_version(api_key: int, version: int) -> int:
    """Returns 2 in flexible versions, else 1. Also accepts versions above the newest declared version."""
    return 2 if version >= flexible_since(api_key) else 1


def response_header_version(api_key: int, version: int) -> int:
    """Returns 1 in flexible versions, else 0. Returns 0 for ApiVersions, because the client may not know the version of
    the response.
    """
    return int(api_key != ApiKey.API_VERSIONS and version >= flexible_since(api_key))


frames.set_flexible_versions(flexible_since)
