"""What the APIs of access control lists have in common (KIP-140)."""

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
    """An API that reads or changes the lists."""

    __slots__ = ()

    operation: ClassVar[Operation]
    """What one must be allowed to do to the cluster."""

    def check(self, context: RequestContext) -> None:
        """Raises a KafkaError for one who may not ask, and where the lists mean nothing."""
        if not self.allowed(context, self.operation, ResourceType.CLUSTER):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if not isinstance(self.authorizer, AclAuthorizer):
            raise KafkaError(ErrorCode.SECURITY_DISABLED)


def refuse_zeroes(resource_type: int, pattern_type: int, operation: int, permission: int) -> None:
    """Raises a CloseConnectionError for an entry or filter with the number of "unknown": Kafka cannot read those."""
    if (
        resource_type == ResourceType.UNKNOWN
        or pattern_type == PatternType.UNKNOWN
        or operation == Operation.UNKNOWN
        or permission == Permission.UNKNOWN
    ):
        raise CloseConnectionError("an access control entry of an unknown kind")


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter | Any) -> AclFilter:
    """A filter as the wire has it."""
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
