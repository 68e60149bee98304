"""Heartbeat (API key 12): keeping the membership in a classic group."""

from kcore.protocol.schema import Int16, Int32, Message, NullableString, Request, String, field


class HeartbeatRequest(Request["HeartbeatResponse"], api_key=12, versions="0-4", flexible="4+"):
    """The heartbeat of a member of a classic group; v3 adds the group instance id (KIP-345)."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: NullableString = field("3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    """An error code: NONE, or the reason why the member has to rejoin."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = 0
