"""RenewDelegationToken (API key 39): renewing a delegation token (KIP-48)."""

from kcore.protocol.schema import Bytes, Int16, Int32, Int64, Message, Request


class RenewDelegationTokenRequest(Request["RenewDelegationTokenResponse"], api_key=39, versions="1-2", flexible="2+"):
    """The token's HMAC, and the number of milliseconds for which the token remains valid after the renewal."""

    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    """The time at which the token expires."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
