"""DescribeQuorum (API key 55): state of the KRaft quorum (KIP-595)."""

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
    UInt16,
    Uuid,
    field,
)


class PartitionData(Struct):
    """One entry of `partitions` of TopicData."""

    partition_index: Int32 = 0


class TopicData(Struct):
    """One entry of `topics` of DescribeQuorumRequest."""

    topic_name: String = ""
    partitions: Array[PartitionData] = ()


class DescribeQuorumRequest(Request["DescribeQuorumResponse"], api_key=55, versions="0-2", flexible="0+"):
    """The partitions of the metadata topic to describe."""

    topics: Array[TopicData] = ()


class ReplicaState(Struct):
    """One entry of `current_voters` or `observers` of DescribeQuorumResponsePartitionData."""

    replica_id: Int32 = 0
    replica_directory_id: Uuid = field("2+", default=ZERO_UUID)
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)


class DescribeQuorumResponsePartitionData(Struct):
    """One entry of `partitions` of DescribeQuorumResponseTopicData."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = field("2+", default="", ignorable=True)
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: Array[ReplicaState] = ()
    observers: Array[ReplicaState] = ()


class DescribeQuorumResponseTopicData(Struct):
    """One entry of `topics` of DescribeQuorumResponse."""

    topic_name: String = ""
    partitions: Array[DescribeQuorumResponsePartitionData] = ()


class Listener(Struct):
    """One entry of `listeners` of Node."""

    name: String = ""
    host: String = ""
    port: UInt16 = 0


class Node(Struct):
    """One entry of `nodes` of DescribeQuorumResponse."""

    node_id: Int32 = 0
    listeners: Array[Listener] = ()


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    """Leader, voters and observers. v1 adds the time of each replica's last fetch (KIP-836), v2 the replica's directory
    and the addresses of the nodes (KIP-853).
    """

    error_code: Int16 = 0
    error_message: NullableString = field("2+", default="", ignorable=True)
    topics: Array[DescribeQuorumResponseTopicData] = ()
    nodes: Array[Node] = field("2+", default=())
