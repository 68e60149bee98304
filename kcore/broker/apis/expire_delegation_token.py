"""ExpireDelegationToken (key 40, versions 1-2): refused, because this node has no tokens (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.delegation_tokens import refusal, timestamp_of
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.protocol.error_codes import ErrorCode
    from kcore.runtime.api import RequestContext


class ExpireDelegationTokenApi(Api[ExpireDelegationTokenRequest, ExpireDelegationTokenResponse]):
    """Handler of ExpireDelegationToken requests. It refuses them, because this node issues no delegation tokens."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.EXPIRE_DELEGATION_TOKEN
    request_type: ClassVar[type] = ExpireDelegationTokenRequest
    response_type: ClassVar[type] = ExpireDelegationTokenResponse
    versions: ClassVar[tuple[int, int]] = (1, 2)
    differs: ClassVar[str] = "kcore responds like a Kafka broker whose delegation tokens are disabled."

    def handle(self, context: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
        """Refuses the request."""
        return self.error(context, request, refusal(context))

    def error(
        self,
        context: RequestContext,
        request: ExpireDelegationTokenRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> ExpireDelegationTokenResponse:
        """Makes a response with the error code and without an expiry time."""
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=timestamp_of(code))
