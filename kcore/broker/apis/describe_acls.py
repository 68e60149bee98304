"""DescribeAcls (key 29, versions 1-3): the entries that a filter selects, by resource (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.acls import AclApi, filter_of, refuse_zeroes
from kcore.broker.apis.control import SlicedReadApi, client_code
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.protocol.error_codes import ErrorCode
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work

STEP_ENTRIES = 1_000
"""Number of entries that one step compares with the filter. Each comparison takes about a microsecond."""
MATCH_COST_US = 3
"""The cost of describing an entry, in microseconds."""


class DescribeAclsApi(
    AclApi[DescribeAclsRequest, DescribeAclsResponse], SlicedReadApi[DescribeAclsRequest, DescribeAclsResponse]
):
    """Handler of DescribeAcls requests."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_ACLS
    request_type: ClassVar[type] = DescribeAclsRequest
    response_type: ClassVar[type] = DescribeAclsResponse
    versions: ClassVar[tuple[int, int]] = (1, 3)
    operation: ClassVar[Operation] = Operation.DESCRIBE

    def handle(self, context: RequestContext, request: DescribeAclsRequest) -> Any:
        """Refuses filters that Kafka cannot parse, then decides in the metadata shard."""
        refuse_zeroes(
            request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
        )
        return super().handle(context, request)

    def steps(self, machine: MetadataMachine, context: RequestContext, request: DescribeAclsRequest) -> Work:
        """Lists the selected entries, grouped by resource."""
        self.check(context)
        resources: dict[tuple[int, str, int], list[AclDescription]] = {}
        acl_filter, entries = filter_of(request), list(machine.image.acls.by_id.values())
        for first in range(0, len(entries), STEP_ENTRIES):
            some = entries[first : first + STEP_ENTRIES]
            matching = [acl for acl in some if acl_filter.matches(acl)]
            for acl in matching:
                description = AclDescription(
                    principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
                )
                resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(description)
            yield len(some) + MATCH_COST_US * len(matching)
        return DescribeAclsResponse(
            error_message=None,
            resources=[
                DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
                for (kind, name, pattern), acls in resources.items()
            ],
        )

    def error(
        self, context: RequestContext, request: DescribeAclsRequest, code: ErrorCode, message: str | None = None
    ) -> DescribeAclsResponse:
        """Makes a response with the error code and its text."""
        code = client_code(code)
        return DescribeAclsResponse(error_code=code, error_message=message or code.message)
