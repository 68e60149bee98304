"""DeleteAcls (key 31, versions 1-3): a node without access lists has none to delete (KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.runtime.api import RequestContext


class DeleteAclsApi(Api[DeleteAclsRequest, DeleteAclsResponse]):
    """Answers that there is no access control here."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.DELETE_ACLS
    request_type: ClassVar[type] = DeleteAclsRequest
    response_type: ClassVar[type] = DeleteAclsResponse
    versions: ClassVar[tuple[int, int]] = (1, 3)
    differs: ClassVar[str] = "Answers as Kafka does without an authorizer."

    def handle(self, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """SECURITY_DISABLED for each."""
        return self.error(context, request, ErrorCode.SECURITY_DISABLED)

    def error(
        self, context: RequestContext, request: DeleteAclsRequest, code: ErrorCode, message: str | None = None
    ) -> DeleteAclsResponse:
        """The same for each filter."""
        result = DeleteAclsFilterResult(error_code=code, error_message=message or code.message)
        return DeleteAclsResponse(filter_results=[result for _ in request.filters])
