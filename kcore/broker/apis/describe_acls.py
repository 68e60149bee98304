"""DescribeAcls (key 29, versions 1-3): a node without access lists has none to show (KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.runtime.api import RequestContext


class DescribeAclsApi(Api[DescribeAclsRequest, DescribeAclsResponse]):
    """Answers that there is no access control here."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_ACLS
    request_type: ClassVar[type] = DescribeAclsRequest
    response_type: ClassVar[type] = DescribeAclsResponse
    versions: ClassVar[tuple[int, int]] = (1, 3)
    differs: ClassVar[str] = "Answers as Kafka does without an authorizer."

    def handle(self, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
        """SECURITY_DISABLED."""
        return self.error(context, request, ErrorCode.SECURITY_DISABLED)

    def error(
        self, context: RequestContext, request: DescribeAclsRequest, code: ErrorCode, message: str | None = None
    ) -> DescribeAclsResponse:
        """The code with a text."""
        return DescribeAclsResponse(error_code=code, error_message=message or code.message)
