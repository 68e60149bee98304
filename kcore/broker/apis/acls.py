"""Common parts of the APIs of access control lists (KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kcore.broker.acl.authorizer import AclAuthorizer
from kcore.broker.acl.entries import AclFilter, PatternType, Permission
from kcore.broker.apis.control import ControlApi
from kcore.errors import CloseConnectionError, KafkaError
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.protocol.messages.delete_acls import DeleteAclsFilter
    from kcore.protocol.messages.describe_acls import DescribeAclsRequest
    from kcore.runtime.api import RequestContext

Request = TypeVar("Request")
Response = TypeVar("Response")


class AclApi(ControlApi[Request, Response]):
    """Base of the APIs that read or change the access control lists."""

    __slots__ = ()

    operation: ClassVar[Operation]
    """The operation on the cluster for which the client needs permission."""

    def check(self, context: RequestContext) -> None:
        """Checks that the client has the required permission, and that the authorizer uses access control lists.

        Raises:
            KafkaError: CLUSTER_AUTHORIZATION_FAILED without the permission; SECURITY_DISABLED for every client if the
                authorizer does not use access control lists.
        """
        if not self.allowed(context, self.operation, ResourceType.CLUSTER):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if not isinstance(self.authorizer, AclAuthorizer):
            raise KafkaError(ErrorCode.SECURITY_DISABLED)


def refuse_zeroes(resource_type: int, pattern_type: int, operation: int, permission: int) -> None:
    """Refuses an entry or filter in which a field has the number of UNKNOWN, which Kafka cannot parse.

    Raises:
        CloseConnectionError: one of the fields is UNKNOWN.
    """
    if (
        resource_type == ResourceType.UNKNOWN
        or pattern_type == PatternType.UNKNOWN
        or operation == Operation.UNKNOWN
        or permission == Permission.UNKNOWN
    ):
        raise CloseConnectionError("an access control entry has an unknown type, operation or permission")


def filter_of(requested: DescribeAclsRequest | DeleteAclsFilter | Any) -> AclFilter:
    """Makes a filter from a request's fields."""
    return AclFilter(
        requested.resource_type_filter,
        requested.resource_name_filter,
        requested.pattern_type_filter,
        requested.principal_filter,
        requested.host_filter,
        requested.operation,
        requested.permission_type,
    )
