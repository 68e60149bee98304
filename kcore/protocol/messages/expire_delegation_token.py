"""ExpireDelegationToken (API key 40): ending a delegation token (KIP-48)."""

from kcore.protocol.schema import Bytes, Int16, Int32, Int64, Message, Request


class ExpireDelegationTokenRequest(Request["ExpireDelegationTokenResponse"], api_key=40, versions="1-2", flexible="2+"):
    """The token's HMAC, and the number of milliseconds until the token expires."""

    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(Message, api_key=40, versions="1-2", flexible="2+"):
    """The time at which the token expires."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
