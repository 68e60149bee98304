"""ShareGroupHeartbeat (API key 76): the membership of a share group (KIP-932)."""

from kcore.protocol.schema import ZERO_UUID, Array, Int16, Int32, Message, NullableString, Request, String, Struct, Uuid


class ShareGroupHeartbeatRequest(Request["ShareGroupHeartbeatResponse"], api_key=76, versions="1", flexible="0+"):
    """A heartbeat, whose member epoch determines if the member joins, stays or leaves."""

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: NullableString = None
    subscribed_topic_names: Array[String] | None = None


class TopicPartitions(Struct):
    """One entry of `topic_partitions` of Assignment."""

    topic_id: Uuid = ZERO_UUID
    partitions: Array[Int32] = ()


class Assignment(Struct):
    """The value of `assignment` of ShareGroupHeartbeatResponse."""

    topic_partitions: Array[TopicPartitions] = ()


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    """The member's epoch and, when it changed, its assignment."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
