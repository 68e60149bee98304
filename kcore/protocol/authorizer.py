"""Who may do what: the face of an authorizer, and the operations of Kafka's access control (KIP-11, KIP-430)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol


class Operation(IntEnum):
    """What a principal wants to do; the number is Kafka's `AclOperation` code."""

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
    """What it is done to; the number is Kafka's `ResourceType` code."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

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
"""Which operations exist for a kind of resource: the bits that clients are told when they ask (KIP-430)."""

OPERATIONS_NOT_ASKED = -(1 << 31)
"""The field's value where the client did not ask for its operations."""


class Authorizer(Protocol):
    """Decides who may do what."""

    def allowed(self, context: Any, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
        """Whether the one who asks may do it.

        Args:
            context: the request's context: principal and client host count.
            operation: what is to be done.
            resource_type: to what kind of thing.
            resource_name: to which one; `CLUSTER_NAME` for the cluster.
        """
        ...


def authorized_operations(
    authorizer: Authorizer | None, context: Any, resource_type: ResourceType, resource_name: str
) -> int:
    """The operations that are allowed on a resource, one bit each (KIP-430).

    Args:
        authorizer: who decides; None allows all.
        context: the request's context.
        resource_type: TOPIC, GROUP or CLUSTER.
        resource_name: the resource.
    """
    bits = 0
    for operation in SUPPORTED_OPERATIONS[resource_type]:
        if authorizer is None or authorizer.allowed(context, operation, resource_type, resource_name):
            bits |= 1 << operation
    return bits
