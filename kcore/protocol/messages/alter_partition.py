"""AlterPartition (API key 56): a leader reports the in-sync replicas of partitions to the controller (KIP-497)."""

from kcore.protocol.schema import ZERO_UUID, Array, Int8, Int16, Int32, Int64, Message, Request, Struct, Uuid, field


class BrokerState(Struct):
    """One entry of `new_isr_with_epochs` of PartitionData."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class PartitionData(Struct):
    """One entry of `partitions` of TopicData; v3 adds the broker epochs of the replicas."""

    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: Array[Int32] = field("0-2", default=())
    new_isr_with_epochs: Array[BrokerState] = field("3+", default=())
    leader_recovery_state: Int8 = field("1+", default=0)
    partition_epoch: Int32 = 0


class TopicData(Struct):
    """One entry of `topics` of AlterPartitionRequest."""

    topic_id: Uuid = field("2+", default=ZERO_UUID, ignorable=True)
    partitions: Array[PartitionData] = ()


class AlterPartitionRequest(Request["AlterPartitionResponse"], api_key=56, versions="2-3", flexible="0+"):
    """The leader, and the new in-sync replicas of its partitions."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: Array[TopicData] = ()


class PartitionResult(Struct):
    """One entry of `partitions` of TopicResult."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: Array[Int32] = ()
    leader_recovery_state: Int8 = field("1+", default=0, ignorable=True)
    partition_epoch: Int32 = 0


class TopicResult(Struct):
    """One entry of `topics` of AlterPartitionResponse."""

    topic_id: Uuid = field("2+", default=ZERO_UUID, ignorable=True)
    partitions: Array[PartitionResult] = ()


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="0+"):
    """One result per partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: Array[TopicResult] = ()
