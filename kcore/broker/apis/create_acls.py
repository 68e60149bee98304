"""CreateAcls (key 30, versions 1-3): a node without access lists takes none (KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.runtime.api import RequestContext


class CreateAclsApi(Api[CreateAclsRequest, CreateAclsResponse]):
    """Answers that there is no access control here."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.CREATE_ACLS
    request_type: ClassVar[type] = CreateAclsRequest
    response_type: ClassVar[type] = CreateAclsResponse
    versions: ClassVar[tuple[int, int]] = (1, 3)
    differs: ClassVar[str] = "Answers as Kafka does without an authorizer."

    def handle(self, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
        """SECURITY_DISABLED for each."""
        return self.error(context, request, ErrorCode.SECURITY_DISABLED)

    def error(
        self, context: RequestContext, request: CreateAclsRequest, code: ErrorCode, message: str | None = None
    ) -> CreateAclsResponse:
        """The same for each entry."""
        result = AclCreationResult(error_code=code, error_message=message or code.message)
        return CreateAclsResponse(results=[result for _ in request.creations])
