"""AddRaftVoter (API key 80): adding a voter to the KRaft quorum (KIP-853)."""

from kcore.protocol.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
)


class Listener(Struct):
    """One entry of `listeners` of AddRaftVoterRequest."""

    name: String = ""
    host: String = ""
    port: UInt16 = 0


class AddRaftVoterRequest(Request["AddRaftVoterResponse"], api_key=80, versions="0-1", flexible="0+"):
    """The new voter; v1 can request a response before the change is committed."""

    cluster_id: NullableString = ""
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: Array[Listener] = ()
    ack_when_committed: Bool = field("1+", default=True)


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    """The error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = field("0+", default="", ignorable=True)
