"""Parses `max.connections.per.ip.overrides`, the connection limits of particular client addresses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address

from kcore.config.setting import INT_MAX


@lru_cache(maxsize=4)
def connection_overrides(text: str) -> Mapping[str, int]:
    """Returns the maximum number of connections of each address.

    Args:
        text: ADDRESS:COUNT, separated by commas.

    Raises:
        ValueError: an entry is not of the form ADDRESS:COUNT, or an address is named twice.
    """
    overrides: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = part.rpartition(":")
        host, count = host.strip().removeprefix("[").removesuffix("]"), count.strip()
        if not (host and count.isascii() and count.isdigit() and len(count) < 20 and int(count) <= INT_MAX):
            raise ValueError(f"{part!r} is not ADDRESS:COUNT")
        try:
            address = str(ip_address(host))
        except ValueError:
            raise ValueError(f"{host!r} is not an IP address; host names are not allowed here") from None
        if address in overrides:
            raise ValueError(f"{address} is in the list twice")
        overrides[address] = int(count)
    return overrides


def overrides_fault(text: str) -> str | None:
    """Describes the problem of a value of `max.connections.per.ip.overrides`; None if it is valid."""
    try:
        connection_overrides(text)
    except ValueError as error:
        return f"is not valid: {error}"
    return None
