"""CreateDelegationToken (API key 38): creating a delegation token (KIP-48)."""

from kcore.protocol.schema import (
    Array,
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    field,
)


class CreatableRenewers(Struct):
    """One entry of `renewers` of CreateDelegationTokenRequest."""

    principal_type: String = ""
    principal_name: String = ""


class CreateDelegationTokenRequest(Request["CreateDelegationTokenResponse"], api_key=38, versions="1-3", flexible="2+"):
    """Renewers and lifetime of a new token; v3 can name another owner (KIP-373)."""

    owner_principal_type: NullableString = field("3+", default="")
    owner_principal_name: NullableString = field("3+", default="")
    renewers: Array[CreatableRenewers] = ()
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    """The token."""

    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0
