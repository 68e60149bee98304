"""The authorizer interface, and the operations of Kafka's access control (KIP-11, KIP-430)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol


class Operation(IntEnum):
    """An operation that a principal requests; the number is Kafka's `AclOperation` code."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """The type of a resource; the number is Kafka's `ResourceType` code."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME = "kafka-cluster"
"""The resource name of the cluster. It is the only resource of type CLUSTER."""

SUPPORTED_OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""Resource type -> the operations that Kafka defines for it. `authorized_operations` reports these operations."""

OPERATIONS_NOT_REQUESTED = -(1 << 31)
"""The value of the field `authorized_operations` of a response whose client did not request the field (KIP-430)."""


class Authorizer(Protocol):
    """The interface that allows or denies operations of principals on resources."""

    def allowed(self, context: Any, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
        """Returns True if the request's principal may perform the operation.

        Args:
            context: the request's context, with principal and client host.
            operation: the requested operation.
            resource_type: the type of the resource, for example GROUP.
            resource_name: the resource's name; `CLUSTER_NAME` for the cluster.
        """
        ...


def authorized_operations(
    authorizer: Authorizer | None, context: Any, resource_type: ResourceType, resource_name: str
) -> int:
    """Returns the operations that a client may perform on a resource, as a bit field (KIP-430).

    The bit with the number of an `Operation` is set if the client may perform the operation.

    Args:
        authorizer: the authorizer; None allows all.
        context: the request's context.
        resource_type: TOPIC, GROUP or CLUSTER.
        resource_name: the resource's name; `CLUSTER_NAME` for the cluster.
    """
    bits = 0
    for operation in SUPPORTED_OPERATIONS[resource_type]:
        if authorizer is None or authorizer.allowed(context, operation, resource_type, resource_name):
            bits |= 1 << operation
    return bits


def cluster_operations(authorizer: Authorizer | None, context: Any) -> int:
    """Returns the operations that a client may perform on the cluster, as a bit field (KIP-430).

    As in Kafka, a client without the permission DESCRIBE gets 0, even if it may perform other operations.
    """
    if authorizer is None or authorizer.allowed(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return authorized_operations(authorizer, context, ResourceType.CLUSTER, CLUSTER_NAME)
    return 0
