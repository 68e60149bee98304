"""SyncGroup (API key 14): distributing a classic group's assignments."""

from kcore.protocol.schema import Array, Bytes, Int16, Int32, Message, NullableString, Request, String, Struct, field


class SyncGroupRequestAssignment(Struct):
    """One entry of `assignments` of SyncGroupRequest."""

    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Request["SyncGroupResponse"], api_key=14, versions="0-5", flexible="4+"):
    """The assignments that the leader computed; the request of any other member has none. v3 adds the group instance id
    (KIP-345), v5 the protocol (KIP-559).
    """

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: NullableString = field("3+", default=None)
    protocol_type: NullableString = field("5+", default=None, ignorable=True)
    protocol_name: NullableString = field("5+", default=None, ignorable=True)
    assignments: Array[SyncGroupRequestAssignment] = ()


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    """The member's assignment; v5 adds the group's protocol type and protocol name (KIP-559)."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = 0
    protocol_type: NullableString = field("5+", default=None, ignorable=True)
    protocol_name: NullableString = field("5+", default=None, ignorable=True)
    assignment: Bytes = b""
