"""CreateDelegationToken (key 38, versions 1-3): refused, because this node issues no tokens (KIP-48, KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.delegation_tokens import principal_parts, refusal, timestamp_of
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext


class CreateDelegationTokenApi(Api[CreateDelegationTokenRequest, CreateDelegationTokenResponse]):
    """Handler of CreateDelegationToken requests. It refuses them, because this node issues no delegation tokens.

    Args:
        authorizer: decides if a client may create tokens for another user; None allows all.
    """

    __slots__ = ("_authorizer",)

    key: ClassVar[ApiKey] = ApiKey.CREATE_DELEGATION_TOKEN
    request_type: ClassVar[type] = CreateDelegationTokenRequest
    response_type: ClassVar[type] = CreateDelegationTokenResponse
    versions: ClassVar[tuple[int, int]] = (1, 3)
    differs: ClassVar[str] = "kcore responds like a Kafka broker whose delegation tokens are disabled."

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
        """Refuses the request, with the error of the first check that fails in Kafka."""
        return self.error(context, request, self._refusal(context, request))

    def _refusal(self, context: RequestContext, request: CreateDelegationTokenRequest) -> ErrorCode:
        code = refusal(context)
        if code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
            return code
        owner, authorizer = ":".join(_owner(context, request)), self._authorizer
        if (
            owner != context.principal
            and authorizer is not None
            and not authorizer.allowed(context, Operation.CREATE_TOKENS, ResourceType.USER, owner)
        ):
            return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        if any(renewer.principal_type != "User" for renewer in request.renewers):
            return ErrorCode.INVALID_PRINCIPAL_TYPE
        return code

    def error(
        self,
        context: RequestContext,
        request: CreateDelegationTokenRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> CreateDelegationTokenResponse:
        """Makes a response with the error code and the requested token's owner."""
        time_ms = timestamp_of(code)
        response = CreateDelegationTokenResponse(
            error_code=code, issue_timestamp_ms=time_ms, expiry_timestamp_ms=time_ms, max_timestamp_ms=time_ms
        )
        if context.api_version >= 3:
            requester = principal_parts(context)
            response.token_requester_principal_type, response.token_requester_principal_name = requester
        response.principal_type, response.principal_name = _owner(context, request)
        return response


def _owner(context: RequestContext, request: CreateDelegationTokenRequest) -> tuple[str, str]:
    """Returns the type and name of the token's owner: by default, the client."""
    if context.api_version >= 3 and request.owner_principal_name:
        return request.owner_principal_type or "", request.owner_principal_name
    return principal_parts(context)
