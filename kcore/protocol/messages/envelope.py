"""Envelope (API key 58): a client's request that a broker forwards to the controller (KIP-590)."""

from kcore.protocol.schema import Bytes, Int16, Message, NullableBytes, Request


class EnvelopeRequest(Request["EnvelopeResponse"], api_key=58, versions="0", flexible="0+"):
    """The forwarded request, with the principal and the address of its client."""

    request_data: Bytes = b""
    request_principal: NullableBytes = b""
    client_host_address: Bytes = b""


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    """The response to the forwarded request; null if the error code is set."""

    response_data: NullableBytes = None
    error_code: Int16 = 0
