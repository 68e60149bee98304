"""Headers in front of requests and responses.

A server reads and writes them in `kcore_ext.codec.frames` (`decode_request_header`, `encode_response`). These classes
declare their fields for clients, tools and tests.
"""

from kcore.protocol.schema import Int16, Int32, Message, NullableString, field


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """The header of a request; v2, with tags, in flexible versions of the request (KIP-482).

    The client id keeps its two-byte length in v2.
    """

    request_api_key: Int16 = 0
    request_api_version: Int16 = 0
    correlation_id: Int32 = 0
    client_id: NullableString = field(default="", compact=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """The header of a response; always v0 for ApiVersions (KIP-511)."""

    correlation_id: Int32 = 0
