"""CreateDelegationToken (key 38, versions 1-3): refused, because this node issues no tokens (KIP-48, KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.delegation_tokens import principal_parts, refusal
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.protocol.error_codes import ErrorCode
    from kcore.runtime.api import RequestContext


class CreateDelegationTokenApi(Api[CreateDelegationTokenRequest, CreateDelegationTokenResponse]):
    """Handler of CreateDelegationToken requests. It refuses them, because this node issues no delegation tokens."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.CREATE_DELEGATION_TOKEN
    request_type: ClassVar[type] = CreateDelegationTokenRequest
    response_type: ClassVar[type] = CreateDelegationTokenResponse
    versions: ClassVar[tuple[int, int]] = (1, 3)
    differs: ClassVar[str] = "kcore responds like a Kafka broker whose delegation tokens are disabled."

    def handle(self, context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
        """Refuses the request."""
        return self.error(context, request, refusal(context))

    def error(
        self,
        context: RequestContext,
        request: CreateDelegationTokenRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> CreateDelegationTokenResponse:
        """Makes a response with the error code and the requested token's owner."""
        kind, name = principal_parts(context)
        owner = (kind, name)
        response = CreateDelegationTokenResponse(
            error_code=code, issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1
        )
        if context.api_version >= 3:
            if request.owner_principal_name:
                owner = (request.owner_principal_type or "", request.owner_principal_name)
            response.token_requester_principal_type, response.token_requester_principal_name = kind, name
        response.principal_type, response.principal_name = owner
        return response
