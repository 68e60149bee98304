"""DescribeDelegationToken (key 41, versions 1-3): refused, because this node has no tokens (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.delegation_tokens import refusal
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.protocol.error_codes import ErrorCode
    from kcore.runtime.api import RequestContext


class DescribeDelegationTokenApi(Api[DescribeDelegationTokenRequest, DescribeDelegationTokenResponse]):
    """Handler of DescribeDelegationToken requests. It refuses them, because this node issues no delegation tokens."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_DELEGATION_TOKEN
    request_type: ClassVar[type] = DescribeDelegationTokenRequest
    response_type: ClassVar[type] = DescribeDelegationTokenResponse
    versions: ClassVar[tuple[int, int]] = (1, 3)
    differs: ClassVar[str] = "kcore responds like a Kafka broker whose delegation tokens are disabled."

    def handle(
        self, context: RequestContext, request: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse:
        """Refuses the request."""
        return self.error(context, request, refusal(context))

    def error(
        self,
        context: RequestContext,
        request: DescribeDelegationTokenRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> DescribeDelegationTokenResponse:
        """Makes a response with the error code and without tokens."""
        return DescribeDelegationTokenResponse(error_code=code)
