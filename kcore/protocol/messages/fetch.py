"""Fetch (API key 1): reading records."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableRecords,
    NullableString,
    Request,
    String,
    Struct,
    Uuid,
    field,
)


class ReplicaState(Struct):
    """The value of `replica_state` of FetchRequest."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    """One entry of `partitions` of FetchTopic."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32 = 0
    replica_directory_id: Uuid = field("17+", default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: Int64 = field("18+", default=0x7FFFFFFFFFFFFFFF, tag=1, ignorable=True)


class FetchTopic(Struct):
    """One entry of `topics` of FetchRequest."""

    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: Array[FetchPartition] = ()


class ForgottenTopic(Struct):
    """One entry of `forgotten_topics_data` of FetchRequest."""

    topic: String = field("7-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: Array[Int32] = ()


class FetchRequest(Request["FetchResponse"], api_key=1, versions="4-18", flexible="12+"):
    """Positions to read from; v7 adds fetch sessions (KIP-227), v12 the epoch of the last fetched record (KIP-595), v13
    topic ids, v15 the replica state (KIP-903).
    """

    cluster_id: NullableString = field("12+", default=None, tag=0, ignorable=True)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", default_factory=ReplicaState, tag=1)
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: Array[FetchTopic] = ()
    forgotten_topics_data: Array[ForgottenTopic] = field("7+", default=())
    rack_id: String = field("11+", default="", ignorable=True)


class EpochEndOffset(Struct):
    """The value of `diverging_epoch` of PartitionData."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    """The value of `current_leader` of PartitionData."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    """The value of `snapshot_id` of PartitionData."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    """One entry of `aborted_transactions` of PartitionData."""

    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Struct):
    """One entry of `partitions` of FetchableTopicResponse."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field("12+", default_factory=EpochEndOffset, tag=0)
    current_leader: LeaderIdAndEpoch = field("12+", default_factory=LeaderIdAndEpoch, tag=1)
    snapshot_id: SnapshotId = field("12+", default_factory=SnapshotId, tag=2)
    aborted_transactions: Array[AbortedTransaction] | None = ()
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: NullableRecords = None


class FetchableTopicResponse(Struct):
    """One entry of `responses` of FetchResponse."""

    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: Array[PartitionData] = ()


class NodeEndpoint(Struct):
    """One entry of `node_endpoints` of FetchResponse."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    """Batches per partition; v12 adds diverging epochs and leaders (KIP-595), v16 the leaders' addresses (KIP-951)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: Array[FetchableTopicResponse] = ()
    node_endpoints: Array[NodeEndpoint] = field("16+", default=(), tag=0)
