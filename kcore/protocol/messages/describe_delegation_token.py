"""DescribeDelegationToken (API key 41): delegation tokens by owner (KIP-48)."""

from kcore.protocol.schema import Array, Bytes, Int16, Int32, Int64, Message, Request, String, Struct, field


class DescribeDelegationTokenOwner(Struct):
    """One entry of `owners` of DescribeDelegationTokenRequest."""

    principal_type: String = ""
    principal_name: String = ""


class DescribeDelegationTokenRequest(
    Request["DescribeDelegationTokenResponse"], api_key=41, versions="1-3", flexible="2+"
):
    """The owners whose tokens are described, null for all."""

    owners: Array[DescribeDelegationTokenOwner] | None = ()


class DescribedDelegationTokenRenewer(Struct):
    """One entry of `renewers` of DescribedDelegationToken."""

    principal_type: String = ""
    principal_name: String = ""


class DescribedDelegationToken(Struct):
    """One entry of `tokens` of DescribeDelegationTokenResponse."""

    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    renewers: Array[DescribedDelegationTokenRenewer] = ()


class DescribeDelegationTokenResponse(Message, api_key=41, versions="1-3", flexible="2+"):
    """The tokens; v3 adds their requesters (KIP-373)."""

    error_code: Int16 = 0
    tokens: Array[DescribedDelegationToken] = ()
    throttle_time_ms: Int32 = 0
