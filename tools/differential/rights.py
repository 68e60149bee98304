"""The area of permissions: a user with random access control lists sends requests of any shape.

The first client of a test program is a super user, who creates the objects of the test program and the user's access
control lists. The other clients log in as the user.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import create_acls
from tools.differential.program import Call, Step
from tools.differential.shapes import Shapes, ShapesDrawer
from tools.differential.side import CLIENT_IDS, Side

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
CLUSTER: Final = 4
GRANTS: Final[Mapping[int, tuple[tuple[str, ...], tuple[int, ...]]]] = {
    2: (("~-a", "~-a", "~-b", "~-c", "~-none", "~"), (2, 3, 4, 5, 6, 7, 8, 8, 10, 11)),
    3: (("~-g", "~-c", "~-s", "~-k", "~-none", "~"), (2, 3, 6, 8, 8, 10, 11)),
    CLUSTER: (("kafka-cluster",), (2, 5, 7, 8, 9, 10, 11, 12)),
    5: (("~-t", "~-u", "~"), (2, 4, 8)),
    7: (("~-u", "~"), (13, 14)),
}
"""Resource type -> the names of its access control lists, and its operations. `~` is the test program's name."""


def _grant(side: Side, rows: list[tuple[int, str, int, int, int]]) -> tuple[Any, int]:
    creations = [
        create_acls.AclCreation(
            resource_type=resource,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=f"User:{side.user}",
            host="*",
            operation=operation,
            permission_type=permission,
        )
        for resource, name, pattern, operation, permission in rows
    ]
    return create_acls.CreateAclsRequest(creations=creations), 3


class Rights:
    """Programs in which a user with some permissions sends requests of any shape."""

    NAME = "rights"
    CALLS: Mapping[str, Call] = {**Shapes.CALLS, "grant": Call(_grant, changes_metadata=True)}

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns the requests of the super user, and then 8 to 16 requests of the user or about permissions."""
        drawer = ShapesDrawer(chance, name, count=chance.choice([3, 6, 10]))
        drawer.unusual = chance.choice([0.0, 0.02, 0.08])
        steps = [*drawer.setup(0.8), _grants(chance, name, chance.choice([1, 3, 6, 12, 25]))]
        for _ in range(chance.randrange(8, 16)):
            if chance.random() < 0.1:
                steps.append(_grants(chance, name, 1))
            steps.append(drawer.step()._replace(client=chance.randrange(1, len(CLIENT_IDS))))
        return steps


def _grants(chance: random.Random, name: str, count: int) -> Step:
    rows = []
    for _ in range(count):
        resource = chance.choices(list(GRANTS), [8, 5, 3, 3, 1])[0]
        names, operations = GRANTS[resource]
        named = chance.choice(names)
        pattern = PREFIXED if named == "~" or (resource != CLUSTER and chance.random() < 0.1) else LITERAL
        permission = ALLOW if chance.random() < 0.88 else DENY
        rows.append((resource, named.replace("~", name), pattern, chance.choice(operations), permission))
    return Step(0, "grant", {"rows": rows})
