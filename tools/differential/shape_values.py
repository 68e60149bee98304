"""The values of fields in the test programs of `shapes.py`: for each field, sensible values and unusual ones.

A `~` in a text stands for the name of the test program. The value of a topic id is the name of a topic, and the value
of a producer id may be a transactional id.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from kcore.protocol.api_keys import ApiKey, request_class
from kcore_ext.codec.plan import WIRE_KINDS
from tools.differential.admin import GROUP_SETTINGS, TOPIC_SETTINGS
from tools.differential.data import _batch
from tools.differential.side import NOW_MS

Choices = tuple[list[Any], list[Any]]

EXCLUDED: Final = frozenset(
    {
        "ENVELOPE", "ALTER_PARTITION", "BROKER_HEARTBEAT", "ALLOCATE_PRODUCER_IDS", "ADD_RAFT_VOTER",
        "REMOVE_RAFT_VOTER", "UNREGISTER_BROKER", "GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY", "SASL_HANDSHAKE",
        "SASL_AUTHENTICATE", "VOTE", "BEGIN_QUORUM_EPOCH", "END_QUORUM_EPOCH", "FETCH_SNAPSHOT",
        "BROKER_REGISTRATION", "CONTROLLER_REGISTRATION", "ASSIGN_REPLICAS_TO_DIRS", "UPDATE_RAFT_VOTER",
        "CREATE_ACLS", "DELETE_ACLS", "DESCRIBE_ACLS", "UPDATE_FEATURES",
    }
)  # fmt: skip
"""APIs that only brokers use, that change a whole server, or that other areas test with any value."""


def _served(name: str) -> bool:
    try:
        return name not in EXCLUDED and bool(request_class(ApiKey[name]))
    except (KeyError, LookupError):
        return False


APIS: Final = frozenset(key.name for key in ApiKey if _served(key.name))
NEVER_NULL: Final = frozenset({"records"})
"""Fields without null values in the test programs, because Kafka does not respond to a request with null."""
CALLS: Final[dict[str, frozenset[str]]] = {
    "waiting_request": frozenset({"JOIN_GROUP", "SYNC_GROUP", "FETCH", "SHARE_FETCH"}),
    "writing_request": frozenset(
        {
            "CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS", "ALTER_CONFIGS", "INCREMENTAL_ALTER_CONFIGS",
            "ALTER_CLIENT_QUOTAS", "ALTER_USER_SCRAM_CREDENTIALS", "ALTER_PARTITION_REASSIGNMENTS",
        }
    ),
    "transaction_request": frozenset({"INIT_PRODUCER_ID", "END_TXN"}),
}  # fmt: skip
"""The call of `Shapes` for the requests of each API. Other APIs have the call `request`."""

TOPICS: Final[Choices] = (
    ["~-a", "~-a", "~-b", "~-none"],
    ["", "~ x", "~/", "~" + "x" * 250, ".", "..", "~.é"],
)
GROUPS: Final[Choices] = (["~-g", "~-c", "~-s", "~-k", "~-none"], ["", "~" + "x" * 300, "~ é"])
TIDS: Final[Choices] = (["~-t", "~-t", "~-u"], ["", "~" + "x" * 300])
PARTITIONS: Final[Choices] = ([0, 0, 1], [2, -1, 2**31 - 1, -(2**31)])
LONG_MS: Final[Choices] = ([60_000], [60_000])
COUNTS: Final[Choices] = ([0, 1, 2], [-1, -2, 2**31 - 1])
MEMBERS: Final[Choices] = (["consumer-one", "nobody", ""], ["share-one", "streams-one"])
BATCH: Final[dict[str, Any]] = {"keys": [None], "size": 1, "stamps": [NOW_MS]}

VALUES: Final[dict[str, Choices]] = {
    "topic": TOPICS, "topic_name": TOPICS, "topic_names": TOPICS, "topic_id": TOPICS, "name": TOPICS,
    "subscribed_topic_names": TOPICS, "source_topics": TOPICS, "repartition_sink_topics": TOPICS,
    "group_id": GROUPS, "group_ids": GROUPS, "groups": GROUPS, "groups_names": GROUPS,
    "transactional_id": TIDS, "transactional_ids": TIDS, "v3_and_below_transactional_id": TIDS,
    "producer_id": (["~-t"], [-1, 0, 1 << 41]), "v3_and_below_producer_id": (["~-t"], [-1, 0, 1 << 41]),
    "producer_id_filters": (["~-t"], [-1, 0, 1 << 41]),
    "producer_epoch": ([0], [-1, 1, 32767, -2]), "v3_and_below_producer_epoch": ([0], [-1, 1, 32767]),
    "transactional_id_pattern": (["~-.*", "~-t", ".*"], ["", "(", "[", "~-[tu]", "(?i)~-T", "a{2,1}", "\\p{L}"]),
    "state_filters": (["Ongoing", "Empty", "CompleteAbort"], ["", "ongoing", "Nothing", "Dead"]),
    "states_filter": (["Stable", "Empty", "stable"], ["", "Nothing", "Assigning", "Not_Ready", "NotReady", "Dead"]),
    "types_filter": (["classic", "consumer", "share", "streams"], ["", "Classic", "nothing", "unknown"]),
    "duration_filter": ([-1, 0], [-2, 2**62, 1]),
    "coordinator_keys": (
        ["~-g", "~-t", "~-s:AAAAAAAAAAAAAAAAAAAAAQ:0"],
        ["", "~", ":", "~-s:AAAA:0", "~-s:AAAAAAAAAAAAAAAAAAAAAQ:-1"],
    ),
    "key": (["~-g", "~-t"], ["", ":"]), "key_type": ([0, 1], [2, 3, -1]),
    "partition": PARTITIONS, "partitions": PARTITIONS, "partition_index": PARTITIONS, "partition_indexes": PARTITIONS,
    "index": PARTITIONS,
    # The other values have documented differences.
    "ALTER_SHARE_GROUP_OFFSETS.partition_index": ([0, 0, 1], [2, 2**31 - 1]),
    "DESCRIBE_SHARE_GROUP_OFFSETS.partitions": ([0], []),
    "timeout_ms": ([5_000], [5_000]), "session_timeout_ms": ([60_000], [1, -1, 2**31 - 1]),
    "rebalance_timeout_ms": ([60_000, -1], [0, 1, -2]), "transaction_timeout_ms": ([60_000], [0, -1, 2**31 - 1]),
    "member_id": MEMBERS, "group_instance_id": ([None, "i"], ["", " "]), "instance_id": ([None], ["i", "", " "]),
    "member_epoch": ([-1, 0, 1], [-2, -3, 7]), "generation_id": ([-1, 1], [0, -2]),
    "generation_id_or_member_epoch": ([-1, -1, 1], [0, -2]),
    "current_leader_epoch": ([-1, 0], [1, -2]), "leader_epoch": ([0, -1], [1, -2]), "replica_id": ([-1], [-1]),
    "committed_leader_epoch": ([-1, 0], [5, -2]), "retention_time_ms": ([-1], [0, 1000]),
    "committed_offset": ([3, 0], [-1, 2**62, -2]),
    "committed_metadata": (["", "note"], ["x" * 4_096, "x" * 4_097, "é"]),
    "timestamp": ([-1, -2, -3, NOW_MS], [-4, -5, -6, -7, 0, 2**62]), "isolation_level": ([0, 1], [0]),
    "max_wait_ms": ([0], [0]), "min_bytes": ([0], [0]), "max_bytes": ([1 << 20], [0, 1]),
    "partition_max_bytes": ([1 << 20], [0, 1]), "fetch_offset": ([0, 1, 2], [3, -1, 2**62]),
    "FETCH.session_id": ([0], [0, 77]), "session_epoch": ([-1, 0], [1]), "rack_id": (["", "rack"], ["x" * 100]),
    "last_fetched_epoch": ([-1], [0, 1]), "log_start_offset": ([-1], [0, 5]), "cluster_id": ([None], [None]),
    "replica_epoch": ([-1], [-1]), "high_watermark": ([2**63 - 1], [2**63 - 1]),
    "DELETE_RECORDS.offset": ([1, 0, -1], [2, 3, -2, 2**62]),
    "PRODUCE.acks": ([-1, 1], [5, -2]), "PRODUCE.transactional_id": ([None], ["~-t"]),
    "PRODUCE.records": (
        [_batch(**BATCH, damage="")],
        [_batch(**BATCH, damage=each) for each in ("empty", "crc", "cut", "magic", "twice", "length", "offset")],
    ),
    "num_partitions": ([1, 2, -1], [0, -2, 3]), "CREATE_TOPICS.partition_index": ([0, 1], [2, -1, 0]),
    "replication_factor": ([1, -1, -1], [0, 2, -2]), "broker_ids": ([1], [5, -1]), "replicas": ([1], [5, -1]),
    "CREATE_TOPICS.name": (["~-c", "~-d", "~-a"], TOPICS[1]), "count": ([2, 3, 4], [1, 0, -1]),
    "allow_auto_topic_creation": ([False], [True]),
    "Cursor.partition_index": ([0, 1], [2, -1]),  # Kafka adds to the number, which overflows
    "response_partition_limit": ([2_000, 1, 2, 3], [0, -1, 2_001]),
    "election_type": ([0, 1], [2, -1]),
    "path": (["/no/such/folder"], ["", "relative"]),
    "acks": ([1], [1]),
    "entity_type": (["user", "client-id"], ["ip", "nobody", ""]), "entity_name": (["~-1"], ["~", "~ x"]),
    "ALTER_CLIENT_QUOTAS.key": (
        ["producer_byte_rate", "consumer_byte_rate", "request_percentage"],
        ["", "nothing", "connection_creation_rate", "controller_mutation_rate"],
    ),
    "ALTER_CLIENT_QUOTAS.value": ([100.0, 2.5, 1e9], [0.0, -1.0, 1e300, float("inf")]),
    "DESCRIBE_CLIENT_QUOTAS.match": (["~-1"], ["~-none"]), "match_type": ([0], [0, 3, -1]),
    "owner_principal_type": ([None, "User"], ["", "Group"]), "owner_principal_name": ([None, "~-u"], [""]),
    "principal_type": (["User"], ["", "Group"]), "principal_name": (["~-u", "ANONYMOUS"], [""]),
    "mechanism": ([1, 2], [0, 3, -1]), "iterations": ([4096, 8192], [4095, 16384, 16385, 0, -1]),
    "ALTER_USER_SCRAM_CREDENTIALS.name": (["~-one", "~-two"], ["", "~ x"]),
    "DESCRIBE_USER_SCRAM_CREDENTIALS.name": (["~-one", "~-two"], ["", "~ x"]),
    "salt": ([b"salt"], [b""]), "salted_password": ([bytes(32), bytes(64)], [b"", b"abc"]),
    "configuration_keys": (["no.such.setting"], []),
    "endpoint_type": ([1], [0, 2, 3]),
    "client_software_name": (["kcore"], ["", "-x", "a b", "a." * 50]),
    "client_software_version": (["1.0"], ["", " ", "é"]),
    "producer_name": TIDS,
    "coordinator_epoch": ([0], [1, -1]), "transaction_version": ([0, 2], [1]),
    "enable2_pc": ([False], [False]), "keep_prepared_txn": ([False], [False]),
    "protocol_type": (["consumer"], ["", "connect"]), "protocol_name": (["range"], ["", "other"]),
    "JOIN_GROUP.rebalance_timeout_ms": ([60_000], [60_000]),  # with -1, the result depends on time
    "JoinGroupRequestProtocol.name": (["range", "roundrobin"], [""]),
    "metadata": ([b"\0\1\0\0\0\1\0\4none" + bytes(8)], [b""]), "assignment": ([b"\0\1" + bytes(8)], [b""]),
    "SYNC_GROUP.member_id": MEMBERS, "reason": ([None, "why"], ["x" * 300]),
    "subscribed_topic_regex": ([None], ["~-.*", "", "("]), "server_assignor": ([None], ["range", "uniform", "", "x"]),
    "state_epoch": ([0, 1], [-1, 5]), "start_offset": ([0, 1, 3], [-1, 2**62]),
    "delivery_complete_count": ([0], [-1, 3]),
    "first_offset": ([0, 1], [2, -1]), "last_offset": ([1, 2], [3]), "delivery_state": ([0, 2], [4, 1, 9]),
    "delivery_count": ([1], [0, 2]), "acknowledge_types": ([1], [0, 2, 3]),
    "share_session_epoch": ([0], [-1, 1]), "max_records": ([100, 1], [0, -1]), "batch_size": ([100, 1], [0, -1]),
    "share_acquire_mode": ([0, 1], [0]), "is_renew_ack": ([False], [True]),
    "SHARE_FETCH.max_wait_ms": ([1_000], [0]),
    "SHARE_FETCH.group_id": (["~-s"], ["~-none", "~-c", ""]), "SHARE_FETCH.member_id": (["share-one"], ["nobody", ""]),
    "SHARE_ACKNOWLEDGE.group_id": (["~-s"], ["~-none", "~-c", ""]),
    "SHARE_ACKNOWLEDGE.member_id": (["share-one"], ["nobody", ""]),
    # One topic with one partition: Kafka divides several partitions among members in the order of hashes.
    "SHARE_GROUP_HEARTBEAT.subscribed_topic_names": (["~-b"], ["~-none", ""]),
    "SHARE_GROUP_HEARTBEAT.member_id": (["share-one", "share-two"], ["nobody", ""]),
    "STREAMS_GROUP_HEARTBEAT.member_id": (["streams-one", "streams-two"], ["nobody", ""]),
    "subtopology_id": (["0", "1"], [""]), "Topology.epoch": ([0], [1, -1]), "process_id": (["p-one"], ["", "p"]),
    "host": (["here"], [""]), "port": ([1_000], [0, 65_535]), "user_endpoint": ([None], [None]),
    "STREAMS_GROUP_HEARTBEAT.key": (["zone"], [""]), "STREAMS_GROUP_HEARTBEAT.value": (["a"], [""]),
    "source_topic_regex": (["~-.*"], []), "STREAMS_GROUP_HEARTBEAT.offset": ([0], [-1]),
    "CopartitionGroup.source_topics": ([0], [1, -1]), "CopartitionGroup.source_topic_regex": ([0], [1]),
    "CopartitionGroup.repartition_source_topics": ([0], [1]),
    "TopicInfo.partitions": ([0, 2], [1, -1]),
    "DESCRIBE_QUORUM.topic_name": (["~-a", "__cluster_metadata"], [""]),
    "resource_types": ([2, 32, 16], [0, 1, 4, 8, 64, -1]),
}  # fmt: skip

FLAGS: Final[Choices] = ([False, True], [])
NUMBERS: Final[Choices] = ([0, 1], [-1, 2])
KINDS: Final[dict[int, Choices]] = {
    **{WIRE_KINDS[name]: NUMBERS for name in ("int8", "int16", "int32", "int64")},
    **{WIRE_KINDS[name]: ([0, 1], [2]) for name in ("uint16", "uint32")},
    WIRE_KINDS["bool"]: FLAGS,
    WIRE_KINDS["float64"]: ([1.0], [0.0]),
    WIRE_KINDS["uuid"]: ([bytes(16)], []),
    WIRE_KINDS["string"]: (["~"], ["", "~ x"]),
    WIRE_KINDS["bytes"]: ([b"x"], [b""]),
    WIRE_KINDS["records"]: ([b""], []),
}
"""The values of fields that `VALUES` lacks."""

CLIENT_METRICS: Final = {
    "interval.ms": ["1000", "99", "x", "3600001"],
    "metrics": ["org.apache.kafka", "*", "", "a,b"],
    "match": ["client_id=a.*", "client_id", "client_id=(", "x=y"],
    "no.such.setting": ["1"],
}
RESOURCES: Final[tuple[tuple[int, str, dict[str, list[str]]], ...]] = (
    (2, "~-a", TOPIC_SETTINGS),
    (2, "~-a", TOPIC_SETTINGS),
    (2, "~-none", TOPIC_SETTINGS),
    (2, "", TOPIC_SETTINGS),
    (32, "~-g", GROUP_SETTINGS),
    (32, "~-none", GROUP_SETTINGS),
    (32, "", GROUP_SETTINGS),
    (16, "~-m", CLIENT_METRICS),
    (16, "~-none", CLIENT_METRICS),
    (16, "", CLIENT_METRICS),
    (0, "~-a", TOPIC_SETTINGS),
    (64, "~", TOPIC_SETTINGS),
)


def _row(row: dict[str, Any], chance: random.Random, name: str) -> None:
    """Gives a resource of a request about settings a type, a name, and keys that go together."""
    kind, resource, known = chance.choice(RESOURCES)
    row["resource_type"] = kind
    row["resource_name"] = resource.replace("~", name)
    if row.get("configuration_keys") is not None:
        row["configuration_keys"] = chance.choice([[], chance.sample(sorted(known), 2), [sorted(known)[0]] * 2])
    for config in row.get("configs", ()):
        config["name"] = chance.choice(sorted(known)) if chance.random() < 0.97 else chance.choice(["", " "])
        config["value"] = None if config["value"] is None else chance.choice(known.get(config["name"], ["1"]))
        if "config_operation" in config:
            config["config_operation"] = chance.choices([0, 1, 2, 3], [6, 2, 1, 1])[0]


def _resources(tree: dict[str, Any], chance: random.Random, name: str) -> None:
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for row in tree["resources"]:
        _row(row, chance, name)
        rows.setdefault((row["resource_type"], row["resource_name"]), row)
    tree["resources"] = list(rows.values())


def _topics(tree: dict[str, Any], chance: random.Random, name: str) -> None:
    """Makes most topics of a CreateTopics request valid."""
    for topic in tree["topics"]:
        if chance.random() < 0.7:
            topic["assignments"] = []
        if topic["assignments"] and chance.random() < 0.8:
            topic["num_partitions"] = topic["replication_factor"] = -1
        topic["configs"] = [] if chance.random() < 0.7 else topic["configs"]
        for config in topic["configs"]:
            config["name"] = chance.choice(sorted(TOPIC_SETTINGS))
            config["value"] = None if config["value"] is None else chance.choice(TOPIC_SETTINGS[config["name"]])


def _partitions(tree: dict[str, Any], chance: random.Random, name: str) -> None:
    for topic in tree["topics"]:
        if chance.random() < 0.7:
            topic["assignments"] = None


def _quotas(tree: dict[str, Any], chance: random.Random, name: str) -> None:
    """Makes a DescribeClientQuotas request ask for the quotas of one test program only."""
    for row in tree["components"]:
        if row["match"] is None and not row["match_type"]:
            row["match"] = f"{name}-1"
    if not tree["components"]:
        tree["components"] = [{"entity_type": "user", "match_type": 0, "match": f"{name}-1"}]


def _entities(tree: dict[str, Any], chance: random.Random, name: str) -> None:
    """Makes an AlterClientQuotas request change no default quota, which other test programs would see."""
    for entry in tree["entries"]:
        for row in entry["entity"]:
            row["entity_name"] = row["entity_name"] or f"{name}-1"


def _transactions(tree: dict[str, Any], chance: random.Random, name: str) -> None:
    """Makes an AddPartitionsToTxn request have a transaction."""
    if "transactions" in tree and not tree["transactions"]:
        topics = [{"name": f"{name}-a", "partitions": [0]}]
        tree["transactions"] = [
            {"transactional_id": f"{name}-t", "producer_id": f"{name}-t", "producer_epoch": 0, "topics": topics}
        ]


def _described(tree: dict[str, Any], chance: random.Random, name: str) -> None:
    """Makes every topic of a DescribeShareGroupOffsets request have a partition."""
    for topic in (each for group in tree["groups"] for each in group["topics"] or ()):
        topic["partitions"] = topic["partitions"] or [0]


def _users(tree: dict[str, Any], chance: random.Random, name: str) -> None:
    """Makes a DescribeUserScramCredentials request have users. Kafka does not refuse a request with null."""
    tree["users"] = tree["users"] or [{"name": f"{name}-one"}]


def _owner(tree: dict[str, Any], chance: random.Random, name: str) -> None:
    """Gives the owner of a delegation token a type, unless the owner has no name."""
    if tree.get("owner_principal_name") and not tree["owner_principal_type"]:
        tree["owner_principal_type"] = "User"


def _markers(tree: dict[str, Any], chance: random.Random, name: str) -> None:
    """Leaves one marker in a WriteTxnMarkers request. Kafka combines the results of several markers."""
    del tree["markers"][1:]


SETTINGS: Final[dict[str, Callable[[dict[str, Any], random.Random, str], None]]] = {
    "ALTER_CONFIGS": _resources,
    "INCREMENTAL_ALTER_CONFIGS": _resources,
    "DESCRIBE_CONFIGS": _resources,
    "CREATE_TOPICS": _topics,
    "CREATE_PARTITIONS": _partitions,
    "DESCRIBE_CLIENT_QUOTAS": _quotas,
    "ALTER_CLIENT_QUOTAS": _entities,
    "WRITE_TXN_MARKERS": _markers,
    "ADD_PARTITIONS_TO_TXN": _transactions,
    "CREATE_DELEGATION_TOKEN": _owner,
    "DESCRIBE_USER_SCRAM_CREDENTIALS": _users,
    "DESCRIBE_SHARE_GROUP_OFFSETS": _described,
}
"""API -> a function that makes the fields of a request agree with each other. It changes the tree of fields."""
