"""ListOffsets (API key 2): offsets by timestamp."""

from kcore.protocol.schema import Array, Int8, Int16, Int32, Int64, Message, Request, String, Struct, field


class ListOffsetsPartition(Struct):
    """One entry of `partitions` of ListOffsetsTopic."""

    partition_index: Int32 = 0
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
    timestamp: Int64 = 0


class ListOffsetsTopic(Struct):
    """One entry of `topics` of ListOffsetsRequest."""

    name: String = ""
    partitions: Array[ListOffsetsPartition] = ()


class ListOffsetsRequest(Request["ListOffsetsResponse"], api_key=2, versions="1-11", flexible="6+"):
    """A request for offsets at timestamps, or for the earliest or latest offset. v2 adds the isolation level (KIP-98),
    v4 leader epochs (KIP-320).
    """

    replica_id: Int32 = 0
    isolation_level: Int8 = field("2+", default=0)
    topics: Array[ListOffsetsTopic] = ()
    timeout_ms: Int32 = field("10+", default=0, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """One entry of `partitions` of ListOffsetsTopicResponse."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = field("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """One entry of `topics` of ListOffsetsResponse."""

    name: String = ""
    partitions: Array[ListOffsetsPartitionResponse] = ()


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    """The requested offset of each partition, with its timestamp; v4 adds the leader epoch."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: Array[ListOffsetsTopicResponse] = ()
