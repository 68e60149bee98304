"""Random requests about access control lists, for the comparison with Apache Kafka.

The requests come from a super user, so the authorizer refuses none of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import create_acls, delete_acls, describe_acls
from tools.differential.program import Call, Step
from tools.differential.side import CLIENT_IDS, Side

RESOURCES: Final = (2, 3, 4, 5, 6, 7, 0, 1, 9)
"""Numbers of resource types: topic, group, cluster, transactional id, token, user, and types that no ACL may have."""
PATTERNS: Final = (3, 4, 0, 1, 2, 5)
"""Numbers of pattern types: literal, prefixed, and types that no ACL may have."""
OPERATIONS: Final = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0, 1, 15)
PERMISSIONS: Final = (2, 3, 0, 1, 4)
MATCH: Final = 2
"""The pattern type with which a filter selects all ACLs whose pattern applies to a name."""
ANY: Final = 1


def _filter_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "resource_type_filter": row["resource"],
        "resource_name_filter": row["name"],
        "pattern_type_filter": row["pattern"],
        "principal_filter": row["principal"],
        "host_filter": row["host"],
        "operation": row["operation"],
        "permission_type": row["permission"],
    }


def _create(side: Side, rows: list[dict[str, Any]], version: int) -> tuple[Any, int]:
    creations = [
        create_acls.AclCreation(
            resource_type=row["resource"],
            resource_name=row["name"],
            resource_pattern_type=row["pattern"],
            principal=row["principal"],
            host=row["host"],
            operation=row["operation"],
            permission_type=row["permission"],
        )
        for row in rows
    ]
    return create_acls.CreateAclsRequest(creations=creations), version


def _describe(side: Side, row: dict[str, Any], version: int) -> tuple[Any, int]:
    return describe_acls.DescribeAclsRequest(**_filter_fields(row)), version


def _delete(side: Side, rows: list[dict[str, Any]], version: int) -> tuple[Any, int]:
    filters = [delete_acls.DeleteAclsFilter(**_filter_fields(row)) for row in rows]
    return delete_acls.DeleteAclsRequest(filters=filters), version


class Acls:
    """Lists of random requests that create, describe and delete ACLs of two principals."""

    NAME = "acls"
    CALLS: Mapping[str, Call] = {
        "create": Call(_create, changes_metadata=True),
        "describe": Call(_describe),
        "delete": Call(_delete, changes_metadata=True),
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns 10 to 20 random requests."""
        drawer = _Drawer(chance, name)
        return [drawer.step() for _ in range(chance.randrange(10, 20))]


class _Drawer:
    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.principals = [f"{name}-one", f"{name}-two"]
        self.names = [f"{name}-a", f"{name}-ab", f"{name}-b", name]

    def step(self) -> Step:
        (kind,) = self.chance.choices([self._create, self._describe, self._delete], [5, 5, 2])
        call, arguments = kind()
        return Step(self.chance.randrange(len(CLIENT_IDS)), call, arguments)

    def _one_of_first(self, values: tuple[int, ...], count: int) -> int:
        """Returns a random value, nearly always one of the first `count` of `values`.

        The other values are rare. Most of them cause a documented difference, and a test program ends at its first
        difference.
        """
        return self.chance.choice(values[:count] if self.chance.random() < 0.99 else values)

    def _row(self) -> dict[str, Any]:
        resource = self._one_of_first(RESOURCES, 4)
        name = "kafka-cluster" if resource == 4 and self.chance.random() < 0.8 else self.chance.choice(self.names)
        if self.chance.random() < 0.06:
            name = self.chance.choice(["", "*", "kafka-cluster"])
        principal = f"User:{self.chance.choice(self.principals)}"
        if self.chance.random() < 0.04:
            principal = self.chance.choice(["", "User:", self.names[0], f"Group:{self.principals[0]}"])
        return {
            "resource": resource,
            "name": name,
            "pattern": self._one_of_first(PATTERNS, 2),
            "principal": principal,
            "host": self.chance.choice(["*", "*", "10.0.0.1", ""]),
            "operation": self._one_of_first(OPERATIONS, 13),
            "permission": self._one_of_first(PERMISSIONS, 2),
        }

    def _create(self) -> tuple[str, dict[str, Any]]:
        rows = [self._row() for _ in range(self.chance.choice([1, 1, 2, 3]))]
        if self.chance.random() < 0.1:
            rows.append(rows[0])
        return "create", {"rows": rows, "version": self.chance.choice([1, 2, 3])}

    def _filter(self) -> dict[str, Any]:
        """Returns a filter that matches no ACL of another test program."""
        return {
            "resource": self._one_of_first((ANY, *RESOURCES), 5),
            "name": self.chance.choice([None, None, *self.names, "*"]),
            "pattern": self.chance.choice([ANY, MATCH, 3, 4, ANY, MATCH, 0]),
            "principal": f"User:{self.chance.choice(self.principals)}",
            "host": self.chance.choice([None, None, "*", "10.0.0.1"]),
            "operation": self._one_of_first((ANY, ANY, ANY, *OPERATIONS), 12),
            "permission": self._one_of_first((ANY, ANY, *PERMISSIONS), 4),
        }

    def _describe(self) -> tuple[str, dict[str, Any]]:
        return "describe", {"row": self._filter(), "version": self.chance.choice([1, 2, 3])}

    def _delete(self) -> tuple[str, dict[str, Any]]:
        rows = [self._filter() for _ in range(self.chance.choice([1, 1, 2]))]
        return "delete", {"rows": rows, "version": self.chance.choice([1, 2, 3])}
