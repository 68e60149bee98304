"""OffsetForLeaderEpoch (API key 23): the end offset of a leader epoch (KIP-101)."""

from kcore.protocol.schema import Array, Int16, Int32, Int64, Message, Request, String, Struct, field


class OffsetForLeaderPartition(Struct):
    """One entry of `partitions` of OffsetForLeaderTopic."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    """One entry of `topics` of OffsetForLeaderEpochRequest."""

    topic: String = ""
    partitions: Array[OffsetForLeaderPartition] = ()


class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"], api_key=23, versions="2-4", flexible="4+"):
    """Epochs to look up; from v3, consumers can also send the request (KIP-320)."""

    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: Array[OffsetForLeaderTopic] = ()


class EpochEndOffset(Struct):
    """One entry of `partitions` of OffsetForLeaderTopicResult."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    """One entry of `topics` of OffsetForLeaderEpochResponse."""

    topic: String = ""
    partitions: Array[EpochEndOffset] = ()


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    """The end offset of each epoch."""

    throttle_time_ms: Int32 = 0
    topics: Array[OffsetForLeaderTopicResult] = ()
