"""Security protocols of listeners, and the settings that are given for one listener alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from kcore.errors import ConfigError


class SecurityProtocol(Enum):
    """What is spoken on a listener in front of Kafka's protocol; the value is Kafka's name."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether TLS comes before the first byte."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def has_sasl(self) -> bool:
        """Whether a peer has to authenticate with SASL."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


_NUMBERED = re.compile(r"PLAINTEXT\d+")


def protocol_of(listener: str, entries: Iterable[str]) -> SecurityProtocol:
    """The protocol of a listener.

    Args:
        listener: its name.
        entries: `listener.security.protocol.map`: NAME:PROTOCOL each.

    Raises:
        ConfigError: an entry is malformed, or there is none for the listener. A listener without one is not taken for
            an unprotected one: only PLAINTEXT2, PLAINTEXT3 and so on are.
    """
    found: dict[str, SecurityProtocol] = {}
    for entry in entries:
        name, _, protocol = entry.partition(":")
        try:
            found[name.strip().upper()] = SecurityProtocol(protocol.strip().upper())
        except ValueError:
            valid = ", ".join(one.value for one in SecurityProtocol)
            raise ConfigError(
                f"listener.security.protocol.map: {entry!r} is no NAME:PROTOCOL; protocols are {valid}"
            ) from None
    if listener in found:
        return found[listener]
    if _NUMBERED.fullmatch(listener):
        return SecurityProtocol.PLAINTEXT
    raise ConfigError(f"listener.security.protocol.map says no security protocol for the listener {listener}")
