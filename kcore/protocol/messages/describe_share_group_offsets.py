"""DescribeShareGroupOffsets (API key 90): start offsets of share groups (KIP-932)."""

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


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """One entry of `topics` of DescribeShareGroupOffsetsRequestGroup."""

    topic_name: String = ""
    partitions: Array[Int32] = ()


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """One entry of `groups` of DescribeShareGroupOffsetsRequest."""

    group_id: String = ""
    topics: Array[DescribeShareGroupOffsetsRequestTopic] | None = ()


class DescribeShareGroupOffsetsRequest(
    Request["DescribeShareGroupOffsetsResponse"], api_key=90, versions="0-1", flexible="0+"
):
    """The groups to describe and optionally their topics; default: all topics."""

    groups: Array[DescribeShareGroupOffsetsRequestGroup] = ()


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """One entry of `partitions` of DescribeShareGroupOffsetsResponseTopic."""

    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Int64 = field("1+", default=-1, ignorable=True)
    error_code: Int16 = 0
    error_message: NullableString = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """One entry of `topics` of DescribeShareGroupOffsetsResponseGroup."""

    topic_name: String = ""
    topic_id: Uuid = ZERO_UUID
    partitions: Array[DescribeShareGroupOffsetsResponsePartition] = ()


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """One entry of `groups` of DescribeShareGroupOffsetsResponse."""

    group_id: String = ""
    topics: Array[DescribeShareGroupOffsetsResponseTopic] = ()
    error_code: Int16 = 0
    error_message: NullableString = None


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions="0-1", flexible="0+"):
    """The start offset of each partition; v1 adds the lag (KIP-1226)."""

    throttle_time_ms: Int32 = 0
    groups: Array[DescribeShareGroupOffsetsResponseGroup] = ()
