"""CreateAcls (key 30, versions 1-3): new entries of the access control lists (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.acl.entries import Acl, fault
from kcore.broker.apis.acls import AclApi, refuse_zeroes
from kcore.broker.apis.control import client_code
from kcore.broker.metadata.records import acl_record
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Record
    from kcore.runtime.shard import Shard


class CreateAclsApi(AclApi[CreateAclsRequest, CreateAclsResponse]):
    """Handler of CreateAcls requests. For an existing entry, the result is success without a change. An invalid entry
    does not affect the other entries.

    Args:
        shard: the metadata shard.
        authorizer: decides about each operation; None: access control lists are disabled.
        new_id: returns sixteen random bytes.
    """

    __slots__ = ("_new_id",)

    key: ClassVar[ApiKey] = ApiKey.CREATE_ACLS
    request_type: ClassVar[type] = CreateAclsRequest
    response_type: ClassVar[type] = CreateAclsResponse
    versions: ClassVar[tuple[int, int]] = (1, 3)
    operation: ClassVar[Operation] = Operation.ALTER

    def __init__(
        self, shard: Shard[MetadataMachine], authorizer: Authorizer | None, new_id: Callable[[], bytes]
    ) -> None:
        super().__init__(shard, authorizer)
        self._new_id = new_id

    def handle(self, context: RequestContext, request: CreateAclsRequest) -> Any:
        """Refuses entries that Kafka cannot parse, then decides in the metadata shard."""
        self.require_parsable(request)
        return self.in_parts(
            context, request, request.creations, lambda some: CreateAclsRequest(creations=some), _merged
        )

    def require_parsable(self, request: CreateAclsRequest) -> None:
        """Refuses a request with an unknown type, operation or permission."""
        for entry in request.creations:
            refuse_zeroes(entry.resource_type, entry.resource_pattern_type, entry.operation, entry.permission_type)

    def decide(self, machine: MetadataMachine, context: RequestContext, request: CreateAclsRequest) -> Any:
        """Checks each entry and creates the entries that do not exist."""
        self.check(context)
        existing = machine.image.acls
        created: set[Acl] = set()
        records: list[Record] = []
        results = []
        for entry in request.creations:
            acl = Acl(
                entry.resource_type,
                entry.resource_name,
                entry.resource_pattern_type,
                entry.principal,
                entry.host,
                entry.operation,
                entry.permission_type,
            )
            message = fault(acl)
            if message is None and acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
                message = f"the only resource of type CLUSTER is {CLUSTER_NAME}"
            if message is not None:
                results.append(AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=message))
                continue
            if acl not in existing.ids and acl not in created:
                created.add(acl)
                records.append(acl_record(self._new_id(), acl))
            results.append(AclCreationResult(error_message=None))
        return machine.outcome(records, CreateAclsResponse(results=results))

    def error(
        self, context: RequestContext, request: CreateAclsRequest, code: ErrorCode, message: str | None = None
    ) -> CreateAclsResponse:
        """Makes a response with the same error code for each entry."""
        code = client_code(code)
        result = AclCreationResult(error_code=code, error_message=message or code.message)
        return CreateAclsResponse(results=[result for _ in request.creations])


def _merged(parts: list[CreateAclsResponse]) -> CreateAclsResponse:
    return CreateAclsResponse(results=[result for part in parts for result in part.results])
