"""SaslAuthenticate (key 36, versions 0-2) where nobody has to: without SASL, or once it is done (KIP-152)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.runtime.api import RequestContext


class SaslAuthenticateApi(Api[SaslAuthenticateRequest, SaslAuthenticateResponse]):
    """Answers that no token is wanted; the connection goes on. A connection that has to authenticate never comes here:
    whoever reads its socket answers it.
    """

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.SASL_AUTHENTICATE
    request_type: ClassVar[type] = SaslAuthenticateRequest
    response_type: ClassVar[type] = SaslAuthenticateResponse
    versions: ClassVar[tuple[int, int]] = (0, 2)

    def handle(self, context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        """ILLEGAL_SASL_STATE with a text."""
        return self.error(context, request, ErrorCode.ILLEGAL_SASL_STATE)

    def error(
        self, context: RequestContext, request: SaslAuthenticateRequest, code: ErrorCode, message: str | None = None
    ) -> SaslAuthenticateResponse:
        """The code with a text."""
        return SaslAuthenticateResponse(error_code=code, error_message=message or code.message)
