"""DescribeClientQuotas (key 48, versions 0-1): always empty, as quotas are not supported (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext

EXACT, DEFAULT, ANY = 0, 1, 2
ENTITY_TYPES = frozenset({"user", "client-id", "ip"})


class DescribeClientQuotasApi(Api[DescribeClientQuotasRequest, DescribeClientQuotasResponse]):
    """Checks the filter and responds with an empty list.

    Args:
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_authorizer",)

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLIENT_QUOTAS
    request_type: ClassVar[type] = DescribeClientQuotasRequest
    response_type: ClassVar[type] = DescribeClientQuotasResponse
    versions: ClassVar[tuple[int, int]] = (0, 1)
    differs: ClassVar[str] = "Quotas are not supported: the list is empty."

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
        """Responds with an empty list, or with the error of an invalid filter."""
        if self._authorizer is not None and not self._authorizer.allowed(
            context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        try:
            _check(request.components)
        except KafkaError as error:
            return self.error(context, request, error.code, error.message)
        return DescribeClientQuotasResponse()

    def error(
        self, context: RequestContext, request: DescribeClientQuotasRequest, code: ErrorCode, message: str | None = None
    ) -> DescribeClientQuotasResponse:
        """Makes a response with the code, its text and null entries."""
        return DescribeClientQuotasResponse(error_code=code, error_message=message or code.message, entries=None)


def _check(components: Sequence[ComponentData]) -> None:
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity needs a type")
        if kind in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind} is in the filter more than once")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no entity type {kind!r}")
        if component.match_type not in {EXACT, DEFAULT, ANY}:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no match type {component.match_type}")
        if (component.match is None) == (component.match_type == EXACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an exact match needs a name, and other matches have none")
        seen.add(kind)
    if "ip" in seen and len(seen) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an ip entity cannot be combined with user or client-id")
