"""SaslHandshake (key 17, versions 0-1): refused without SASL, and after authentication (KIP-43)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.runtime.api import RequestContext


class SaslHandshakeApi(Api[SaslHandshakeRequest, SaslHandshakeResponse]):
    """Handler of SaslHandshake requests. It refuses the handshake and keeps the connection open. While a connection
    must authenticate, the server's connection handles its handshake before this API.
    """

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.SASL_HANDSHAKE
    request_type: ClassVar[type] = SaslHandshakeRequest
    response_type: ClassVar[type] = SaslHandshakeResponse
    versions: ClassVar[tuple[int, int]] = (0, 1)

    def handle(self, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        """Responds with ILLEGAL_SASL_STATE and no mechanisms."""
        return self.error(context, request, ErrorCode.ILLEGAL_SASL_STATE)

    def error(
        self, context: RequestContext, request: SaslHandshakeRequest, code: ErrorCode, message: str | None = None
    ) -> SaslHandshakeResponse:
        """Makes a response with the error code and no mechanisms."""
        return SaslHandshakeResponse(error_code=code)
