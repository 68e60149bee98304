"""DeleteRecords (API key 21): deleting records up to an offset (KIP-107)."""

from kcore.protocol.schema import Array, Int16, Int32, Int64, Message, Request, String, Struct


class DeleteRecordsPartition(Struct):
    """One entry of `partitions` of DeleteRecordsTopic."""

    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Struct):
    """One entry of `topics` of DeleteRecordsRequest."""

    name: String = ""
    partitions: Array[DeleteRecordsPartition] = ()


class DeleteRecordsRequest(Request["DeleteRecordsResponse"], api_key=21, versions="0-2", flexible="2+"):
    """The offset before which records are deleted."""

    topics: Array[DeleteRecordsTopic] = ()
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Struct):
    """One entry of `partitions` of DeleteRecordsTopicResult."""

    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Struct):
    """One entry of `topics` of DeleteRecordsResponse."""

    name: String = ""
    partitions: Array[DeleteRecordsPartitionResult] = ()


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    """The new low watermark per partition."""

    throttle_time_ms: Int32 = 0
    topics: Array[DeleteRecordsTopicResult] = ()
