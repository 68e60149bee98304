"""AlterShareGroupOffsets (API key 91): moving start offsets of a share group (KIP-932)."""

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
)


class AlterShareGroupOffsetsRequestPartition(Struct):
    """One entry of `partitions` of AlterShareGroupOffsetsRequestTopic."""

    partition_index: Int32 = 0
    start_offset: Int64 = 0


class AlterShareGroupOffsetsRequestTopic(Struct):
    """One entry of `topics` of AlterShareGroupOffsetsRequest."""

    topic_name: String = ""
    partitions: Array[AlterShareGroupOffsetsRequestPartition] = ()


class AlterShareGroupOffsetsRequest(Request["AlterShareGroupOffsetsResponse"], api_key=91, versions="0", flexible="0+"):
    """New start offsets of an empty group."""

    group_id: String = ""
    topics: Array[AlterShareGroupOffsetsRequestTopic] = ()


class AlterShareGroupOffsetsResponsePartition(Struct):
    """One entry of `partitions` of AlterShareGroupOffsetsResponseTopic."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


class AlterShareGroupOffsetsResponseTopic(Struct):
    """One entry of `responses` of AlterShareGroupOffsetsResponse."""

    topic_name: String = ""
    topic_id: Uuid = ZERO_UUID
    partitions: Array[AlterShareGroupOffsetsResponsePartition] = ()


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions="0", flexible="0+"):
    """One error code per partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    responses: Array[AlterShareGroupOffsetsResponseTopic] = ()
