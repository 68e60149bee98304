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
"""The name of the cluster as a resource. Type CLUSTER has no other resource."""

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
"""Resource type -> the operations that exist for it. Each operation is a bit in the authorized operations (KIP-430)."""

OPERATIONS_NOT_REQUESTED = -(1 << 31)
"""The authorized operations in a response if the client did not request them (KIP-430)."""


class Authorizer(Protocol):
    """The interface that allows or denies operations of principals on resources."""

    def allowed(self, context: Any, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
        """Returns True if the request's principal may perform the operation.

        Args:
            context: the request's context, with principal and client host.
            operation: the requested operation.
            resource_type: the resource's type.
            resource_name: the resource's name; `CLUSTER_NAME` for the cluster.
        """
        ...


def authorized_operations(
    authorizer: Authorizer | None, context: Any, resource_type: ResourceType, resource_name: str
) -> int:
    """Returns the authorized operations on a resource, one bit each (KIP-430).

    Args:
        authorizer: the authorizer; None allows all.
        context: the request's context.
        resource_type: TOPIC, GROUP or CLUSTER.
        resource_name: the resource.
    """
    bits = 0
    for operation in SUPPORTED_OPERATIONS[resource_type]:
        if authorizer is None or authorizer.allowed(context, operation, resource_type, resource_name):
            bits |= 1 << operation
    return bits
