"""ElectLeaders (API key 43): electing partition leaders (KIP-183, KIP-460)."""

from kcore.protocol.schema import Array, Int8, Int16, Int32, Message, NullableString, Request, String, Struct, field


class TopicPartitions(Struct):
    """One entry of `topic_partitions` of ElectLeadersRequest."""

    topic: String = ""
    partitions: Array[Int32] = ()


class ElectLeadersRequest(Request["ElectLeadersResponse"], api_key=43, versions="0-2", flexible="2+"):
    """Partitions in which to elect a leader, null for all; v1 adds the election type (KIP-460)."""

    election_type: Int8 = field("1+", default=0)
    topic_partitions: Array[TopicPartitions] | None = ()
    timeout_ms: Int32 = 60000


class PartitionResult(Struct):
    """One entry of `partition_result` of ReplicaElectionResult."""

    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""


class ReplicaElectionResult(Struct):
    """One entry of `replica_election_results` of ElectLeadersResponse."""

    topic: String = ""
    partition_result: Array[PartitionResult] = ()


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    """One result per partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("1+", default=0)
    replica_election_results: Array[ReplicaElectionResult] = ()
