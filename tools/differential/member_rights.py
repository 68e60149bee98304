"""The area of members' permissions: the random requests of other areas, sent by a user with some permissions.

Members join, commit offsets, run transactions and read share partitions, while a super user grants, denies and removes
permissions. The area shows in which order a server checks permissions, and which part of a request it refuses.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kcore.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tools.differential.admin import Admin
from tools.differential.cluster import ClusterArea
from tools.differential.data import Data
from tools.differential.exactly_once import ExactlyOnce
from tools.differential.groups import Groups
from tools.differential.members import Members
from tools.differential.program import Area, Call, Step
from tools.differential.rights import ALLOW, CLUSTER, DENY, LITERAL, PREFIXED, Rights
from tools.differential.sessions import Sessions
from tools.differential.share import Share
from tools.differential.share_state import ShareState
from tools.differential.side import Side
from tools.differential.streams import Streams
from tools.differential.topologies import Topologies
from tools.differential.transactions import Transactions

TOPIC, GROUP, TRANSACTION = 2, 3, 5
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
ANY: Final = 1
NEEDED: Final = (
    (TOPIC, READ), (TOPIC, WRITE), (TOPIC, DESCRIBE), (GROUP, READ), (GROUP, DESCRIBE), (GROUP, DELETE),
    (TRANSACTION, WRITE), (TRANSACTION, DESCRIBE), (CLUSTER, IDEMPOTENT_WRITE), (CLUSTER, DESCRIBE),
)  # fmt: skip
"""Resource types and the operations on them that members need."""
FURTHER: Final = (
    (TOPIC, CREATE), (TOPIC, DELETE), (TOPIC, ALTER), (TOPIC, DESCRIBE_CONFIGS), (TOPIC, ALTER_CONFIGS),
    (GROUP, DESCRIBE_CONFIGS), (GROUP, ALTER_CONFIGS), (CLUSTER, CLUSTER_ACTION), (CLUSTER, CREATE), (CLUSTER, ALTER),
    (CLUSTER, DESCRIBE_CONFIGS), (CLUSTER, ALTER_CONFIGS),
)  # fmt: skip
"""Resource types and the operations on them that operators and brokers need."""
ENDS: Final[Mapping[int, tuple[str, ...]]] = {
    TOPIC: ("-a", "-b", "-a-none"), GROUP: ("-g", "-h"), TRANSACTION: ("-t", "-u"), CLUSTER: (),
}  # fmt: skip
"""Resource type -> the ends of the names that the other areas use."""
KNOWN_S: Final = 0.15
OF_SUPER_USER: Final = frozenset({"create_topic", "configure", "delete_topic", "partitions"})
"""Calls that the super user makes. In programs of `OTHERS`, the user makes some of them."""
MEMBERS: Final[tuple[Area, ...]] = (
    Groups(),
    ExactlyOnce(),
    Transactions(),
    Members(),
    Share(),
    Streams(),
    Topologies(),
)
OTHERS: Final[tuple[Area, ...]] = (Data(), Sessions(), Admin(), ShareState(), ClusterArea())


def _revoke(side: Side, resource: int) -> tuple[Any, int]:
    """Builds a DeleteAcls request for all permissions of the user on resources of one type."""
    each = DeleteAclsFilter(
        resource_type_filter=resource,
        pattern_type_filter=ANY,
        principal_filter=f"User:{side.user}",
        operation=ANY,
        permission_type=ANY,
    )
    return DeleteAclsRequest(filters=[each]), 3


def _await_known(side: Side, **_: Any) -> None:
    """Waits until Kafka's authorizer knows a change, which takes long on a busy machine."""
    time.sleep(KNOWN_S)


CHANGES: Final = {
    "grant": Rights.CALLS["grant"]._replace(settle=_await_known),
    "revoke": Call(_revoke, changes_metadata=True, settle=_await_known),
}
"""Calls that change permissions."""


class MemberRights:
    """Programs of another area, whose requests a user sends while the user's permissions change."""

    NAME = "member_rights"
    CALLS: Mapping[str, Call] = CHANGES | {
        f"{area.NAME}.{name}": call for area in (*MEMBERS, *OTHERS) for name, call in area.CALLS.items()
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns a test program of another area with a few changes of permissions."""
        area = chance.choice(MEMBERS if chance.random() < 0.6 else OTHERS)
        operations = NEEDED if area in MEMBERS and area.NAME != Topologies.NAME else NEEDED + FURTHER
        frequency = chance.choice([0.03, 0.1, 0.2])
        steps = [needed_grants(chance, name, chance.choice([1.0, 0.95, 0.8]), operations)]
        for number, step in enumerate(area.draw(chance, name)):
            by_super_user = step.call in OF_SUPER_USER and (area in MEMBERS or not number or chance.random() < 0.4)
            if not by_super_user and chance.random() < frequency:
                steps += change(chance, name, operations)
            # The super user sends the requests of the last client.
            client = 0 if by_super_user else (step.client + 1) % 4
            steps.append(Step(client, f"{area.NAME}.{step.call}", step.arguments))
        return steps


def needed_grants(
    chance: random.Random, name: str, frequency: float, operations: Sequence[tuple[int, int]] = NEEDED
) -> Step:
    """Returns a step that grants each permission with a frequency."""
    rows = []
    for resource, operation in operations:
        if chance.random() < frequency:
            rows.append(_row(resource, name, operation, ALLOW))
    return Step(0, "grant", {"rows": rows or [_row(TOPIC, name, DESCRIBE, ALLOW)]})


def change(chance: random.Random, name: str, operations: Sequence[tuple[int, int]] = NEEDED) -> list[Step]:
    """Returns a step that grants or denies one permission, or the steps that replace all permissions of one type."""
    resource, operation = chance.choice(operations)
    if chance.random() < 0.25:
        rows = [
            _row(kind, name, each, ALLOW) for kind, each in operations if kind == resource and chance.random() < 0.7
        ]
        return [Step(0, "revoke", {"resource": resource}), *([Step(0, "grant", {"rows": rows})] if rows else [])]
    permission = DENY if chance.random() < 0.6 else ALLOW
    ends = ENDS[resource]
    if not ends or chance.random() < 0.2:
        return [Step(0, "grant", {"rows": [_row(resource, name, operation, permission)]})]
    row = (resource, name + chance.choice(ends), LITERAL, operation, permission)
    return [Step(0, "grant", {"rows": [row]})]


def _row(resource: int, name: str, operation: int, permission: int) -> tuple[int, str, int, int, int]:
    """Returns an access control list for all names of the test program, or for the cluster."""
    if resource == CLUSTER:
        return resource, "kafka-cluster", LITERAL, operation, permission
    return resource, name, PREFIXED, operation, permission
