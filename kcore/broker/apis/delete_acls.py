"""DeleteAcls (key 31, versions 1-3): deletes the entries that filters select (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.acl.entries import Acl
from kcore.broker.apis.acls import AclApi, filter_of, refuse_zeroes
from kcore.broker.apis.control import client_code
from kcore.broker.metadata.records import acl_removal_record
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.api import RequestContext


class DeleteAclsApi(AclApi[DeleteAclsRequest, DeleteAclsResponse]):
    """Deletes entries. An entry that two filters select is in both results and is deleted once."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.DELETE_ACLS
    request_type: ClassVar[type] = DeleteAclsRequest
    response_type: ClassVar[type] = DeleteAclsResponse
    versions: ClassVar[tuple[int, int]] = (1, 3)
    operation: ClassVar[Operation] = Operation.ALTER

    def handle(self, context: RequestContext, request: DeleteAclsRequest) -> Any:
        """Refuses filters that Kafka cannot parse, then decides in the metadata shard."""
        for requested in request.filters:
            refuse_zeroes(
                requested.resource_type_filter,
                requested.pattern_type_filter,
                requested.operation,
                requested.permission_type,
            )
        return self.shard.run(self, context, request)

    def decide(self, machine: MetadataMachine, context: RequestContext, request: DeleteAclsRequest) -> Any:
        """Finds the entries of all filters before it deletes any."""
        self.check(context)
        deleted: dict[bytes, None] = {}
        results = []
        for requested in request.filters:
            acl_filter = filter_of(requested)
            if acl_filter.unknown:
                results.append(
                    DeleteAclsFilterResult(
                        error_code=ErrorCode.INVALID_REQUEST,
                        error_message="the filter has an unknown type, operation or permission",
                    )
                )
                continue
            matching = machine.image.acls.matching(acl_filter)
            deleted.update((acl_id, None) for acl_id, _ in matching)
            results.append(
                DeleteAclsFilterResult(error_message=None, matching_acls=[_described(acl) for _, acl in matching])
            )
        records = [acl_removal_record(acl_id) for acl_id in deleted]
        return machine.outcome(records, DeleteAclsResponse(filter_results=results))

    def error(
        self, context: RequestContext, request: DeleteAclsRequest, code: ErrorCode, message: str | None = None
    ) -> DeleteAclsResponse:
        """Makes a response with the same code for each filter."""
        code = client_code(code)
        result = DeleteAclsFilterResult(error_code=code, error_message=message or code.message)
        return DeleteAclsResponse(filter_results=[result for _ in request.filters])


def _described(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
