"""The security protocols of listeners, from `listener.security.protocol.map`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from kcore.errors import ConfigError


class SecurityProtocol(Enum):
    """The security protocol of a listener; the value is Kafka's name."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """True if the connection begins with TLS."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def has_sasl(self) -> bool:
        """True if a peer must authenticate with SASL."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


_NUMBERED = re.compile(r"PLAINTEXT\d+")


def protocol_of(listener: str, entries: Iterable[str]) -> SecurityProtocol:
    """Returns the protocol of a listener.

    Args:
        listener: the listener's name.
        entries: `listener.security.protocol.map`, as NAME:PROTOCOL.

    Raises:
        ConfigError: an entry is malformed, or the listener has no entry. Only PLAINTEXT2, PLAINTEXT3 and so on need no
            entry. Any other listener without an entry is refused, so that it is not unprotected by accident.
    """
    protocols: dict[str, SecurityProtocol] = {}
    for entry in entries:
        name, _, protocol = entry.partition(":")
        try:
            protocols[name.strip().upper()] = SecurityProtocol(protocol.strip().upper())
        except ValueError:
            valid = ", ".join(member.value for member in SecurityProtocol)
            raise ConfigError(
                f"listener.security.protocol.map: {entry!r} is not NAME:PROTOCOL; valid protocols: {valid}"
            ) from None
    if listener in protocols:
        return protocols[listener]
    if _NUMBERED.fullmatch(listener):
        return SecurityProtocol.PLAINTEXT
    raise ConfigError(f"listener.security.protocol.map has no entry for the listener {listener}")
