"""TxnOffsetCommit (API key 28): committing offsets inside a transaction (KIP-98)."""

from kcore.protocol.schema import Array, Int16, Int32, Int64, Message, NullableString, Request, String, Struct, field


class TxnOffsetCommitRequestPartition(Struct):
    """One entry of `partitions` of TxnOffsetCommitRequestTopic."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: NullableString = ""


class TxnOffsetCommitRequestTopic(Struct):
    """One entry of `topics` of TxnOffsetCommitRequest."""

    name: String = ""
    partitions: Array[TxnOffsetCommitRequestPartition] = ()


class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"], api_key=28, versions="0-5", flexible="3+"):
    """Offsets that become visible when the transaction commits.

    v3 adds the member's ids and generation, so that the coordinator can fence the member (KIP-447). From v5, the
    request also adds the group to the transaction, so that no AddOffsetsToTxn request is necessary (KIP-890).
    """

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: NullableString = field("3+", default=None)
    topics: Array[TxnOffsetCommitRequestTopic] = ()


class TxnOffsetCommitResponsePartition(Struct):
    """One entry of `partitions` of TxnOffsetCommitResponseTopic."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    """One entry of `topics` of TxnOffsetCommitResponse."""

    name: String = ""
    partitions: Array[TxnOffsetCommitResponsePartition] = ()


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    """One error code per partition."""

    throttle_time_ms: Int32 = 0
    topics: Array[TxnOffsetCommitResponseTopic] = ()
