"""SaslAuthenticate (API key 36): the exchange of SASL tokens (KIP-152)."""

from kcore.protocol.schema import Bytes, Int16, Int64, Message, NullableString, Request, field


class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"], api_key=36, versions="0-2", flexible="2+"):
    """The client's token."""

    auth_bytes: Bytes = b""

    def __repr__(self) -> str:
        # A PLAIN token contains the password, and an OAUTHBEARER token has the same value for an attacker.
        return "SaslAuthenticateRequest(auth_bytes=[hidden])"


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    """The server's token; v1 adds the session's lifetime (KIP-368)."""

    error_code: Int16 = 0
    error_message: NullableString = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)
