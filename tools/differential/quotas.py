"""Random requests about client quotas, for the comparison with Apache Kafka.

They name users, client ids and addresses, alone, together and with a default part. A user with some permissions sends
most of them.
"""

from __future__ import annotations

import random
from binascii import crc32
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import alter_client_quotas, describe_client_quotas
from tools.differential.member_rights import CHANGES
from tools.differential.program import Call, Step
from tools.differential.rights import ALLOW, CLUSTER, DENY, LITERAL
from tools.differential.side import Side

Entity = list[tuple[str, str | None]]

EXACT, DEFAULT, ANY_NAME = 0, 1, 2
QUOTAS: Final = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate", "nothing", "",
)  # fmt: skip
OF_ADDRESS: Final = "connection_creation_rate"
VALUES: Final = (100.0, 1.0, 0.5, 2.5, 0.0, -1.0, 1e10, 2.0**53, 1e300)
RIGHTS: Final = (2, 7, 8, 10, 11)
"""Operations on the cluster."""


def address_of(name: str) -> str:
    """Returns the address that stands for a name of a test program."""
    number = crc32(name.encode())
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _name(kind: str, name: str | None) -> str | None:
    return address_of(name) if kind == "ip" and name else name


def _alter(
    side: Side, rows: list[tuple[Entity, list[tuple[str, float, bool]]]], check: bool, version: int
) -> tuple[Any, int]:
    entries = [
        alter_client_quotas.EntryData(
            entity=[
                alter_client_quotas.EntityData(entity_type=kind, entity_name=_name(kind, name)) for kind, name in entity
            ],
            ops=[alter_client_quotas.OpData(key=key, value=value, remove=remove) for key, value, remove in changes],
        )
        for entity, changes in rows
    ]
    return alter_client_quotas.AlterClientQuotasRequest(entries=entries, validate_only=check), version


def _describe(side: Side, parts: list[tuple[str, int, str | None]], strict: bool, version: int) -> tuple[Any, int]:
    components = [
        describe_client_quotas.ComponentData(entity_type=kind, match_type=match, match=_name(kind, name))
        for kind, match, name in parts
    ]
    return describe_client_quotas.DescribeClientQuotasRequest(components=components, strict=strict), version


class Quotas:
    """Lists of requests about the quotas of two users, two client ids and two addresses."""

    NAME = "quotas"
    CALLS: Mapping[str, Call] = CHANGES | {
        "alter": Call(_alter, changes_metadata=True),
        "describe": Call(_describe),
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns the permissions of the user, and 10 to 25 random requests."""
        names = [f"{name}-1", f"{name}-2"]
        rights = chance.sample(RIGHTS, chance.choice([1, 2, 4]))
        steps = [Step(0, "grant", {"rows": [(CLUSTER, "kafka-cluster", LITERAL, each, ALLOW) for each in rights]})]
        for _ in range(chance.randrange(10, 25)):
            if chance.random() < 0.05:
                row = (CLUSTER, "kafka-cluster", LITERAL, chance.choice(RIGHTS), chance.choice([ALLOW, DENY]))
                steps.append(Step(0, "grant", {"rows": [row]}))
            client = 0 if chance.random() < 0.6 else 1
            call, arguments = _change(chance, names) if chance.random() < 0.6 else _filter(chance, names)
            steps.append(Step(client, call, arguments))
        return steps


def _entity(chance: random.Random, names: list[str]) -> Entity:
    """Returns a user, a client id, both, an address, or sometimes an entity that is not valid.

    At least one part has a name of the test program, because all test programs would see another entity.
    """
    kinds = chance.choices(
        [["user"], ["client-id"], ["user", "client-id"], ["ip"], ["ip", "user"], ["nobody"], [""], ["user", "user"]],
        [4, 3, 7, 3, 1, 0.5, 0.5, 0.5],
    )[0]
    entity: Entity = [(kind, chance.choice(names)) for kind in kinds]
    if len(kinds) > 1 and chance.random() < 0.4:
        position = chance.randrange(len(kinds))
        entity[position] = kinds[position], None if chance.random() < 0.8 else ""
    return entity


def _change(chance: random.Random, names: list[str]) -> tuple[str, dict[str, Any]]:
    rows = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        entity = _entity(chance, names)
        keys = [chance.choice(QUOTAS) for _ in range(chance.choice([0, 1, 1, 1, 2, 2]))]
        if entity[0][0] == "ip" and chance.random() < 0.7:
            keys = [OF_ADDRESS]
        rows.append((entity, [(key, chance.choice(VALUES), chance.random() < 0.3) for key in keys]))
    different = {repr(sorted(map(repr, row[0]))): row for row in rows}
    return "alter", {
        "rows": list(different.values()), "check": chance.random() < 0.15, "version": chance.choice([0, 1]),
    }  # fmt: skip


def _filter(chance: random.Random, names: list[str]) -> tuple[str, dict[str, Any]]:
    kinds = chance.choices(
        [
            ["user"],
            ["client-id"],
            ["user", "client-id"],
            ["ip"],
            ["ip", "user"],
            ["nobody"],
            [""],
            ["user", "user"],
            [],
        ],
        [4, 3, 7, 3, 1, 0.5, 0.5, 0.5, 2],
    )[0]
    parts: list[tuple[str, int, str | None]] = []
    for kind in kinds:
        match = chance.choices([EXACT, DEFAULT, ANY_NAME, 3, -1], [6, 2, 4, 0.3, 0.3])[0]
        name = chance.choice(names) if match == EXACT else None
        if chance.random() < 0.06:
            name = chance.choice([None, "", names[0]])
        parts.append((kind, match, name))
    return "describe", {"parts": parts, "strict": chance.random() < 0.5, "version": chance.choice([0, 1])}
