"""RenewDelegationToken (key 39, versions 1-2): refused, because this node has no tokens (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.delegation_tokens import refusal, timestamp_of
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.protocol.error_codes import ErrorCode
    from kcore.runtime.api import RequestContext


class RenewDelegationTokenApi(Api[RenewDelegationTokenRequest, RenewDelegationTokenResponse]):
    """Handler of RenewDelegationToken requests. It refuses them, because this node issues no delegation tokens."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.RENEW_DELEGATION_TOKEN
    request_type: ClassVar[type] = RenewDelegationTokenRequest
    response_type: ClassVar[type] = RenewDelegationTokenResponse
    versions: ClassVar[tuple[int, int]] = (1, 2)
    differs: ClassVar[str] = "kcore responds like a Kafka broker whose delegation tokens are disabled."

    def handle(self, context: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
        """Refuses the request."""
        return self.error(context, request, refusal(context))

    def error(
        self, context: RequestContext, request: RenewDelegationTokenRequest, code: ErrorCode, message: str | None = None
    ) -> RenewDelegationTokenResponse:
        """Makes a response with the error code and without an expiry time."""
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=timestamp_of(code))
