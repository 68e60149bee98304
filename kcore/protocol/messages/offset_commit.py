"""OffsetCommit (API key 8): committing offsets of a group."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    Uuid,
    field,
)


class OffsetCommitRequestPartition(Struct):
    """One entry of `partitions` of OffsetCommitRequestTopic."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
    committed_metadata: NullableString = ""


class OffsetCommitRequestTopic(Struct):
    """One entry of `topics` of OffsetCommitRequest."""

    name: String = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetCommitRequestPartition] = ()


class OffsetCommitRequest(Request["OffsetCommitResponse"], api_key=8, versions="2-10", flexible="8+"):
    """Offsets to commit; v7 adds the group instance id (KIP-345), v9 the member epoch (KIP-848), v10 topic ids."""

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: NullableString = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: Array[OffsetCommitRequestTopic] = ()


class OffsetCommitResponsePartition(Struct):
    """One entry of `partitions` of OffsetCommitResponseTopic."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    """One entry of `topics` of OffsetCommitResponse."""

    name: String = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetCommitResponsePartition] = ()


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    """One error code per partition."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: Array[OffsetCommitResponseTopic] = ()
