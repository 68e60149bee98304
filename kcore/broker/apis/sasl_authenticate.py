"""SaslAuthenticate (key 36, versions 0-2): refused without SASL, and after authentication (KIP-152)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.runtime.api import RequestContext


class SaslAuthenticateApi(Api[SaslAuthenticateRequest, SaslAuthenticateResponse]):
    """Handler of SaslAuthenticate requests. It refuses tokens and keeps the connection open. While a connection must
    authenticate, the server's connection handles its tokens before this API.
    """

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.SASL_AUTHENTICATE
    request_type: ClassVar[type] = SaslAuthenticateRequest
    response_type: ClassVar[type] = SaslAuthenticateResponse
    versions: ClassVar[tuple[int, int]] = (0, 2)

    def handle(self, context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        """Responds with ILLEGAL_SASL_STATE and its text."""
        return self.error(context, request, ErrorCode.ILLEGAL_SASL_STATE)

    def error(
        self, context: RequestContext, request: SaslAuthenticateRequest, code: ErrorCode, message: str | None = None
    ) -> SaslAuthenticateResponse:
        """Makes a response with the error code and its text."""
        return SaslAuthenticateResponse(error_code=code, error_message=message or code.message)
