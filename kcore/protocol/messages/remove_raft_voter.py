"""RemoveRaftVoter (API key 81): removing a voter of the KRaft quorum (KIP-853)."""

from kcore.protocol.schema import ZERO_UUID, Int16, Int32, Message, NullableString, Request, Uuid, field


class RemoveRaftVoterRequest(Request["RemoveRaftVoterResponse"], api_key=81, versions="0", flexible="0+"):
    """The voter to remove."""

    cluster_id: NullableString = ""
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    """The error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = field("0+", default="", ignorable=True)
