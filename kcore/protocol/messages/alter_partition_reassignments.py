"""AlterPartitionReassignments (API key 45): moving replicas (KIP-455)."""

from kcore.protocol.schema import Array, Bool, Int16, Int32, Message, NullableString, Request, String, Struct, field


class ReassignablePartition(Struct):
    """One entry of `partitions` of ReassignableTopic."""

    partition_index: Int32 = 0
    replicas: Array[Int32] | None = None


class ReassignableTopic(Struct):
    """One entry of `topics` of AlterPartitionReassignmentsRequest."""

    name: String = ""
    partitions: Array[ReassignablePartition] = ()


class AlterPartitionReassignmentsRequest(
    Request["AlterPartitionReassignmentsResponse"], api_key=45, versions="0-1", flexible="0+"
):
    """The target replicas of partitions; v1 can forbid a change of the replication factor (KIP-860)."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: Array[ReassignableTopic] = ()


class ReassignablePartitionResponse(Struct):
    """One entry of `partitions` of ReassignableTopicResponse."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""


class ReassignableTopicResponse(Struct):
    """One entry of `responses` of AlterPartitionReassignmentsResponse."""

    name: String = ""
    partitions: Array[ReassignablePartitionResponse] = ()


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    """One result per partition."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=True)
    error_code: Int16 = 0
    error_message: NullableString = ""
    responses: Array[ReassignableTopicResponse] = ()
