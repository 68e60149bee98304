"""OffsetDelete (API key 47): deleting committed offsets."""

from kcore.protocol.schema import Array, Int16, Int32, Message, Request, String, Struct


class OffsetDeleteRequestPartition(Struct):
    """One entry of `partitions` of OffsetDeleteRequestTopic."""

    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Struct):
    """One entry of `topics` of OffsetDeleteRequest."""

    name: String = ""
    partitions: Array[OffsetDeleteRequestPartition] = ()


class OffsetDeleteRequest(Request["OffsetDeleteResponse"], api_key=47, versions="0"):
    """Partitions whose offsets are to be deleted (KIP-496)."""

    group_id: String = ""
    topics: Array[OffsetDeleteRequestTopic] = ()


class OffsetDeleteResponsePartition(Struct):
    """One entry of `partitions` of OffsetDeleteResponseTopic."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Struct):
    """One entry of `topics` of OffsetDeleteResponse."""

    name: String = ""
    partitions: Array[OffsetDeleteResponsePartition] = ()


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    """One error code per partition."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: Array[OffsetDeleteResponseTopic] = ()
