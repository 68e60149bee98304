"""Client quotas (KIP-546): the names and maximum values of all quotas, and checks of requested entities and values."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING

from kcore.config.setting import INT_MAX, LONG_MAX
from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.broker.metadata.image import QuotaEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"

CLIENT_QUOTAS: Mapping[str, int | None] = {
    "producer_byte_rate": LONG_MAX,
    "consumer_byte_rate": LONG_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
"""Quota of a user or client id -> its largest value. None: the quota may be any number above 0, including fractions."""

IP_QUOTAS: Mapping[str, int | None] = {"connection_creation_rate": INT_MAX}
"""Quota of an IP address -> its largest value."""


def check_entity(parts: Mapping[str, str | None]) -> tuple[QuotaEntity, Mapping[str, int | None]]:
    """Checks an entity. Returns the entity, and the quotas that it can have.

    Args:
        parts: type -> name; None: the default entity of the type.

    Raises:
        KafkaError: INVALID_REQUEST for an entity that cannot have quotas.
    """

    def refused(reason: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REQUEST, reason)

    if not parts:
        raise refused("an entity needs a type")
    for kind, name in parts.items():
        if kind not in {USER, CLIENT_ID, IP}:
            raise refused(f"unknown entity type {kind!r}")
        if name == "":
            raise refused(f"the name of a {kind} is empty")
    if IP not in parts:
        return tuple(sorted(parts.items())), CLIENT_QUOTAS
    if len(parts) > 1:
        raise refused("an ip entity cannot be combined with user or client-id")
    address = parts[IP]
    if address is not None:
        try:
            # An IPv6 address has many spellings. The addresses of connections have the shortest one.
            address = str(ip_address(address))
        except ValueError:
            raise refused(f"{address!r} is not an IP address") from None
    return ((IP, address),), IP_QUOTAS


def check_quota(known: Mapping[str, int | None], key: str, value: float) -> None:
    """Checks the value of a quota.

    Raises:
        KafkaError: INVALID_REQUEST for an unknown quota or a value out of range.
    """
    if key not in known:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this entity has no quota {key!r}")
    if not value > 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key}={value}: the value must be above 0")
    limit = known[key]
    if limit is not None and (value > limit or abs(value % 1) > 1e-6):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{key}={value}: the value must be a whole number of at most {limit}"
        )
