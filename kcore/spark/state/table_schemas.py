"""The tables of a rebuild: names, columns and their meanings, as data for tests and documentation.

Types are Spark's, in its DDL. Every table begins with `coordinator_partition`, the partition of the internal topic that
contains the records of the row. Ids of topics are strings of 32 hexadecimal digits, which are easy to join, unlike the
base64 that clients print. Process ids of streams members are texts, as the clients sent them. Opaque bytes stay bytes.
"""

from __future__ import annotations

from typing import Final

Columns = tuple[tuple[str, str, str], ...]
"""(name, type, meaning) of each column of a table."""

PARTITION: Final = ("coordinator_partition", "int", "the partition of the internal topic that holds the record")
GROUP: Final = ("group_id", "string", "the group")
MEMBER: Final = ("member_id", "string", "the member")
TOPIC: Final = ("topic", "string", "the topic")
NUMBER: Final = ("partition", "int", "its partition")
INTERNAL_TOPIC: Final = ("topic", "string", "the internal topic")

TABLES: Final[dict[str, Columns]] = {
    "groups": (
        PARTITION,
        GROUP,
        ("group_type", "string", "classic, consumer, share or streams"),
        ("state", "string", "the group's state under Kafka's name, as far as the log shows"),
        ("protocol_type", "string", "consumer, connect, ...; empty for offsets without a group"),
        ("protocol_name", "string", "classic: the protocol of the generation"),
        ("generation_id", "int", "classic: the generation"),
        ("leader_id", "string", "classic: the member that assigns partitions"),
        ("state_timestamp_ms", "bigint", "classic: when it entered its state; null if unknown"),
        ("group_epoch", "int", "others: the group epoch"),
        ("assignment_epoch", "int", "others: the epoch of the target assignment"),
        ("assigned_timestamp_ms", "bigint", "others: when the target was computed; 0 if unknown"),
        ("assignor_name", "string", "others: the assignor that most members prefer, or the default"),
        ("metadata_hash", "bigint", "others: hash of the metadata of the subscribed topics"),
        ("validated_topology_epoch", "int", "streams: the topology epoch whose topics were validated"),
        ("last_assignment_configs", "map<string,string>", "streams: the configuration of the last assignment"),
        ("member_count", "int", "number of members"),
        ("offset_count", "int", "number of committed offsets"),
    ),
    "members": (
        PARTITION,
        GROUP,
        ("group_type", "string", "the type of its group"),
        MEMBER,
        ("group_instance_id", "string", "static members: the instance id, which survives restarts (KIP-345)"),
        ("rack_id", "string", "its rack"),
        ("client_id", "string", "its client id"),
        ("client_host", "string", "its address"),
        ("rebalance_timeout_ms", "int", "its rebalance timeout"),
        ("session_timeout_ms", "int", "classic protocol: its session timeout"),
        ("is_classic", "boolean", "whether it uses the classic protocol"),
        ("protocols", "array<struct<name:string,metadata:binary>>", "classic protocol: its protocols"),
        ("assignment", "binary", "classic groups: its assignment by the leader, opaque"),
        ("member_epoch", "int", "others: its epoch"),
        ("previous_member_epoch", "int", "others: its previous epoch"),
        (
            "member_state",
            "int",
            "others: Kafka's number of its state: stable (0; streams: 1), must revoke (1; streams: 2), or waits for "
            "other members (2; streams: 3); 127: unknown",
        ),
        ("subscribed_topic_names", "array<string>", "others: subscribed topics by name, sorted"),
        ("subscribed_topic_regex", "string", "consumer: the pattern; empty for none"),
        ("server_assignor", "string", "consumer: its preferred assignor"),
        ("topology_epoch", "int", "streams: the topology epoch that it uses"),
        ("process_id", "string", "streams: its process"),
        ("user_endpoint", "struct<host:string,port:int>", "streams: its endpoint for interactive queries"),
        ("client_tags", "map<string,string>", "streams: its tags"),
    ),
    "assignments": (
        PARTITION,
        GROUP,
        MEMBER,
        ("kind", "string", "assigned, revoking (must be revoked, still in use) or target"),
        ("topic_id", "string", "consumer and share groups: the topic"),
        ("task_type", "string", "streams groups: active, standby or warmup"),
        ("subtopology_id", "string", "streams groups: the subtopology"),
        ("partitions", "array<int>", "the partitions, ascending"),
        ("assignment_epochs", "array<int>", "consumer groups: the member epoch that assigned each (KIP-1251)"),
    ),
    "regexes": (
        PARTITION,
        GROUP,
        ("regex", "string", "a pattern that members subscribe to"),
        ("topics", "array<string>", "the matched topics, sorted"),
        ("version", "bigint", "the version of the metadata at the match"),
        ("timestamp_ms", "bigint", "the time of the match"),
    ),
    "topologies": (
        PARTITION,
        GROUP,
        ("epoch", "int", "streams groups: the topology's epoch"),
        ("subtopologies", "string", "the subtopologies as JSON, under Kafka's names"),
    ),
    "offsets": (
        PARTITION,
        GROUP,
        TOPIC,
        NUMBER,
        ("pending", "boolean", "whether it waits for a transaction's end; a committed offset may exist as well"),
        ("producer_id", "bigint", "pending offsets: the producer of the transaction; else null"),
        ("offset", "bigint", "the offset"),
        ("leader_epoch", "int", "the leader epoch of the record before the offset, -1 if unknown (KIP-320)"),
        ("metadata", "string", "the client's metadata"),
        ("commit_timestamp_ms", "bigint", "when it was committed"),
        ("expire_timestamp_ms", "bigint", "when it expires, -1 for the group's retention"),
        ("topic_id", "string", "the topic's id, null if unknown"),
        ("record_offset", "bigint", "the offset of its record in the log"),
    ),
    "transactions": (
        PARTITION,
        ("transactional_id", "string", "the id"),
        ("state", "string", "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort"),
        ("producer_id", "bigint", "the producer id in use"),
        ("producer_epoch", "int", "its epoch"),
        ("previous_producer_id", "bigint", "the previous producer id, -1 if unknown"),
        ("next_producer_id", "bigint", "the id to use when the epoch is exhausted, -1 for none (KIP-890)"),
        ("timeout_ms", "int", "the transaction timeout"),
        ("start_timestamp_ms", "bigint", "when the transaction began, -1 before the first"),
        ("last_update_timestamp_ms", "bigint", "when the state last changed"),
        ("client_version", "int", "transaction.version of the last transition (KIP-890)"),
        ("partitions", "array<struct<topic:string,partition:int>>", "the partitions of the transaction, sorted"),
    ),
    "producers": (
        PARTITION,
        INTERNAL_TOPIC,
        ("producer_id", "bigint", "the producer id"),
        ("producer_epoch", "int", "its newest epoch"),
        ("last_sequence", "int", "the sequence of its last record, -1 for a coordinator or if a marker followed"),
        ("last_timestamp_ms", "bigint", "when it last wrote"),
        ("coordinator_epoch", "int", "the coordinator epoch of its last marker, -1 for none"),
        ("current_txn_start_offset", "bigint", "the start of its open transaction, -1 without one"),
    ),
    "share_topics": (
        PARTITION,
        GROUP,
        ("topic_id", "string", "a topic with share partitions of the group"),
        ("topic", "string", "its name at that time"),
        ("stage", "string", "initializing, initialized or deleting"),
        ("partitions", "array<int>", "the partitions, ascending; empty while deleting"),
    ),
    "share_states": (
        PARTITION,
        GROUP,
        ("topic_id", "string", "the topic"),
        NUMBER,
        ("snapshot_epoch", "int", "the number of the snapshot"),
        ("state_epoch", "int", "the number of the initialization"),
        ("leader_epoch", "int", "the partition leader's epoch at the last write"),
        ("start_offset", "bigint", "the start of the share partition"),
        ("delivery_complete_count", "int", "number of completed records beyond the start, -1 if unknown"),
        ("create_timestamp_ms", "bigint", "when the state was created"),
        ("write_timestamp_ms", "bigint", "when the last snapshot was written"),
        (
            "state_batches",
            "array<struct<first_offset:bigint,last_offset:bigint,delivery_state:int,delivery_count:int>>",
            "in-flight records: disjoint, ascending, merged",
        ),
    ),
    "partitions": (
        PARTITION,
        INTERNAL_TOPIC,
        ("first_offset", "bigint", "the first offset in the log; -1 if no record up to the moment was read"),
        ("next_offset", "bigint", "the offset of the state: everything below was applied; -1 as for `first_offset`"),
        ("last_stable_offset", "bigint", "below it every transaction is decided; -1 as for `first_offset`"),
        ("last_timestamp_ms", "bigint", "the timestamp of the last applied row; -1 as for `first_offset`"),
        ("cleaned_to", "bigint", "an upper bound of compaction's progress; null if unknown"),
        (
            "holes_to",
            "bigint",
            "compaction removed records below it, where the loss of a segment would go unnoticed; null: none",
        ),
        ("complete", "boolean", "whether the log contained all records of this state"),
        (
            "lost",
            "boolean",
            "whether records are missing that compaction did not remove: damage, gaps, a front, all",
        ),
        ("records", "bigint", "number of applied records"),
        ("unknown", "bigint", "number of records of unknown types"),
        ("faults", "bigint", "number of records or parts that could not be read or applied"),
    ),
    "faults": (
        PARTITION,
        INTERNAL_TOPIC,
        ("offset", "bigint", "the offset, -1 if unknown"),
        ("kind", "string", "decode, replay, truncated, corrupt, duplicate, missing, front or absent"),
        ("detail", "string", "a description for people"),
    ),
}
"""Table -> its columns."""


CHECKPOINT: Final = "checkpoint"
"""The name of the table with the checkpoints of all partitions."""
COMMITTED_COLUMNS: Final = (
    "group_id",
    "topic",
    "partition",
    "offset",
    "leader_epoch",
    "metadata",
    "commit_timestamp_ms",
    "expire_timestamp_ms",
    "topic_id",
    "record_offset",
)
"""Names of the columns of the table `offsets` that a checkpoint stores for a committed offset."""
_COMMITTED_DDL: Final = ", ".join(
    f"{column}: {kind}" for column, kind, _ in TABLES["offsets"] if column in COMMITTED_COLUMNS
)
CHECKPOINT_DDL: Final = (
    "topic string, partition int, number bigint, key binary, value binary, offset bigint, timestamp_ms bigint, "
    "producer_id bigint, producer_epoch int, last_sequence int, transactional boolean, "
    f"committed struct<{_COMMITTED_DDL}>"
)
"""The columns of a checkpoint, in Spark's DDL.

A row is a committed offset or a record. In a row with a committed offset, only `number` and `committed` have values.
"""


def table_ddl(name: str) -> str:
    """Returns the schema of a table, or of the checkpoints, in Spark's DDL."""
    if name == CHECKPOINT:
        return CHECKPOINT_DDL
    return ", ".join(f"`{column}` {kind}" for column, kind, _ in TABLES[name])
