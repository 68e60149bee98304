"""ConsumerGroupHeartbeat (API key 68): joining, keeping and leaving a KIP-848 group."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    Uuid,
    field,
)


class TopicPartitions(Struct):
    """One entry of `topic_partitions` of ConsumerGroupHeartbeatRequest and Assignment."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[Int32] = ()


class ConsumerGroupHeartbeatRequest(
    Request["ConsumerGroupHeartbeatResponse"], api_key=68, versions="0-1", flexible="0+"
):
    """A heartbeat, whose member epoch determines if the member joins, stays or leaves. It reports the member's
    partitions. v1 adds regular expressions, and member ids that the client generates.
    """

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: NullableString = None
    rack_id: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Array[String] | None = None
    subscribed_topic_regex: NullableString = field("1+", default=None)
    server_assignor: NullableString = None
    topic_partitions: Array[TopicPartitions] | None = None


class Assignment(Struct):
    """The value of `assignment` of ConsumerGroupHeartbeatResponse."""

    topic_partitions: Array[TopicPartitions] = ()


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
    """The member's epoch and, when it changed, its assignment."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
