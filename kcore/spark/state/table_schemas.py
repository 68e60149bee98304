"""The tables of a rebuild: names, columns and what they mean. Plain data, so that documentation can be made of it.

Types are Spark's, in its DDL. Every table begins with `coordinator_partition`: the partition of the internal topic that
the row's facts stand in. Ids of topics and the like are texts of 32 hexadecimal digits, as in no client's output but as
joins like them; opaque bytes stay bytes.
"""

from __future__ import annotations

from typing import Final

Columns = tuple[tuple[str, str, str], ...]
"""(name, type, meaning)."""

PARTITION: Final = ("coordinator_partition", "int", "partition of the internal topic that says so")
GROUP: Final = ("group_id", "string", "the group")
MEMBER: Final = ("member_id", "string", "the member")

TABLES: Final[dict[str, Columns]] = {
    "groups": (
        PARTITION,
        GROUP,
        ("group_type", "string", "classic, consumer, share or streams"),
        ("state", "string", "Kafka's name of it, as far as the log says"),
        ("protocol_type", "string", "consumer, connect, ...; empty for offsets without a group"),
        ("protocol_name", "string", "classic: what the generation speaks"),
        ("generation_id", "int", "classic: the generation"),
        ("leader_id", "string", "classic: the member that assigns"),
        ("state_timestamp_ms", "bigint", "classic: since when it is in its state; null if no record says"),
        ("group_epoch", "int", "others: the group epoch"),
        ("assignment_epoch", "int", "others: the epoch of the target assignment"),
        ("assigned_timestamp_ms", "bigint", "others: when the target was computed; 0 if no record says"),
        ("assignor_name", "string", "others: the assignor that most members want, or the default"),
        ("metadata_hash", "bigint", "others: of the topics that are read"),
        ("validated_topology_epoch", "int", "streams: the topology epoch whose topics were found right"),
        ("last_assignment_configs", "map<string,string>", "streams: what the last assignment was made with"),
        ("member_count", "int", "how many members there are"),
        ("offset_count", "int", "how many committed offsets there are"),
    ),
    "members": (
        PARTITION,
        GROUP,
        ("group_type", "string", "the kind of its group"),
        MEMBER,
        ("group_instance_id", "string", "static members: the name that outlives restarts (KIP-345)"),
        ("rack_id", "string", "where it stands"),
        ("client_id", "string", "the client's name for itself"),
        ("client_host", "string", "its address"),
        ("rebalance_timeout_ms", "int", "how long a rebalance waits for it"),
        ("session_timeout_ms", "int", "classic protocol: how long it may be silent"),
        ("is_classic", "boolean", "whether it speaks the classic protocol"),
        ("protocols", "array<struct<name:string,metadata:binary>>", "classic protocol: what it can do"),
        ("assignment", "binary", "classic groups: what the leader gave it, opaque"),
        ("member_epoch", "int", "others: its epoch"),
        ("previous_member_epoch", "int", "others: the one before"),
        ("member_state", "int", "others: Kafka's number of its state"),
        ("subscribed_topic_names", "array<string>", "others: topics by name, sorted"),
        ("subscribed_topic_regex", "string", "consumer: the pattern; empty for none"),
        ("server_assignor", "string", "consumer: the assignor it wants"),
        ("topology_epoch", "int", "streams: the topology that it knows"),
        ("process_id", "string", "streams: the process that it runs in"),
        ("user_endpoint", "struct<host:string,port:int>", "streams: where its state can be asked"),
        ("client_tags", "map<string,string>", "streams: its tags"),
    ),
    "assignments": (
        PARTITION,
        GROUP,
        MEMBER,
        ("kind", "string", "assigned, revoking (told to give up, still in use) or target"),
        ("topic_id", "string", "consumer and share groups: the topic"),
        ("task_type", "string", "streams groups: active, standby or warmup"),
        ("subtopology_id", "string", "streams groups: the subtopology"),
        ("partitions", "array<int>", "the partitions, ascending"),
        ("assignment_epochs", "array<int>", "consumer groups: in which member epoch each was given out (KIP-1251)"),
    ),
    "regexes": (
        PARTITION,
        GROUP,
        ("regex", "string", "a pattern that members subscribe to"),
        ("topics", "array<string>", "the topics that it matched, sorted"),
        ("version", "bigint", "of the metadata that was looked at"),
        ("timestamp_ms", "bigint", "when it was looked at"),
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
        ("topic", "string", "the topic"),
        ("partition", "int", "its partition"),
        ("pending", "boolean", "whether it waits for the end of a transaction; there may be a committed one beside it"),
        ("producer_id", "bigint", "pending ones: in whose transaction; else null"),
        ("offset", "bigint", "the offset"),
        ("leader_epoch", "int", "of the record before it, -1 if unknown (KIP-320)"),
        ("metadata", "string", "the client's remark"),
        ("commit_timestamp_ms", "bigint", "when it was committed"),
        ("expire_timestamp_ms", "bigint", "when it expires, -1 for the group's retention"),
        ("topic_id", "string", "the topic's id, null if unknown"),
        ("record_offset", "bigint", "where its record stands in the log"),
    ),
    "transactions": (
        PARTITION,
        ("transactional_id", "string", "the id"),
        ("state", "string", "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort"),
        ("producer_id", "bigint", "the producer id in use"),
        ("producer_epoch", "int", "its epoch"),
        ("previous_producer_id", "bigint", "the id before, -1 if unknown"),
        ("next_producer_id", "bigint", "the id that takes over when the epoch is exhausted, -1 for none (KIP-890)"),
        ("timeout_ms", "int", "how long a transaction may take"),
        ("start_timestamp_ms", "bigint", "when the transaction began, -1 before the first"),
        ("last_update_timestamp_ms", "bigint", "when anything happened last"),
        ("client_version", "int", "transaction.version behind the last transition (KIP-890)"),
        ("partitions", "array<struct<topic:string,partition:int>>", "what takes part, sorted"),
    ),
    "producers": (
        PARTITION,
        ("topic", "string", "the internal topic that was written to"),
        ("producer_id", "bigint", "who"),
        ("producer_epoch", "int", "its newest epoch"),
        ("last_sequence", "int", "of its last record, -1 where a coordinator wrote it or a marker came since"),
        ("last_timestamp_ms", "bigint", "when it last wrote"),
        ("coordinator_epoch", "int", "of the coordinator behind its last marker, -1 for none"),
        ("current_txn_start_offset", "bigint", "where its open transaction begins, -1 without one"),
    ),
    "share_topics": (
        PARTITION,
        GROUP,
        ("topic_id", "string", "a topic whose share partitions the group keeps state of"),
        ("topic", "string", "its name then"),
        ("stage", "string", "initializing, initialized or deleting"),
        ("partitions", "array<int>", "the partitions, ascending; empty while deleting"),
    ),
    "share_states": (
        PARTITION,
        GROUP,
        ("topic_id", "string", "the topic"),
        ("partition", "int", "its partition"),
        ("snapshot_epoch", "int", "counts snapshots"),
        ("state_epoch", "int", "counts initialisations"),
        ("leader_epoch", "int", "of the partition's leader that wrote last"),
        ("start_offset", "bigint", "where the share partition begins"),
        ("delivery_complete_count", "int", "how many beyond the start are done with, -1 if unknown"),
        ("create_timestamp_ms", "bigint", "when the state was made"),
        ("write_timestamp_ms", "bigint", "when it was last written as a whole"),
        (
            "state_batches",
            "array<struct<first_offset:bigint,last_offset:bigint,delivery_state:int,delivery_count:int>>",
            "what is in flight: disjoint, ascending, merged",
        ),
    ),
    "partitions": (
        PARTITION,
        ("topic", "string", "the internal topic"),
        ("first_offset", "bigint", "the first offset that was there, -1 for an empty log"),
        ("next_offset", "bigint", "the state is as of this offset: everything below was applied"),
        ("last_stable_offset", "bigint", "below it every transaction is decided"),
        ("last_timestamp_ms", "bigint", "of the last row that was applied"),
        ("cleaned_to", "bigint", "compaction had not come beyond this offset; null if that is not known"),
        (
            "holes_to",
            "bigint",
            "below it compaction took offsets away, and a lost segment would not show; null: nowhere",
        ),
        ("complete", "boolean", "whether the log still held all that this state is made of"),
        ("lost", "boolean", "whether anything is missing that compaction did not take: damage, gaps, a front, all"),
        ("records", "bigint", "how many records were applied"),
        ("unknown", "bigint", "how many were of types that are not known"),
        ("faults", "bigint", "how many could not be applied"),
    ),
    "faults": (
        PARTITION,
        ("topic", "string", "the internal topic"),
        ("offset", "bigint", "where, -1 if unknown"),
        ("kind", "string", "decode, replay, truncated, corrupt, duplicate, missing, front or absent"),
        ("detail", "string", "for people"),
    ),
}
"""Table -> its columns."""


def table_ddl(name: str) -> str:
    """A table's schema in Spark's DDL."""
    return ", ".join(f"`{column}` {kind}" for column, kind, _ in TABLES[name])
