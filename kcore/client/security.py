"""How a client comes in: TLS and SASL, from settings with Kafka's names (and librdkafka's, where they differ)."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kcore.client.sasl import MECHANISMS
from kcore.config.properties import read_properties
from kcore.errors import ConfigError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

NAMES: Final = {
    "security.protocol": "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
    "sasl.mechanism": "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    "sasl.mechanisms": "the same, as librdkafka calls it",
    "sasl.jaas.config": 'a login module with username="…" password="…"',
    "sasl.username": "the user",
    "sasl.password": "and its password",
    "ssl.truststore.location": "a PEM file with the authorities that are believed; none: those of the system",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": "the authorities themselves, in PEM",
    "ssl.ca.location": "the same as ssl.truststore.location",
    "ssl.keystore.location": "a PEM file with the client's certificate and key",
    "ssl.keystore.type": "PEM",
    "ssl.certificate.location": "the certificate alone",
    "ssl.key.location": "the key alone",
    "ssl.key.password": "the key's password",
    "ssl.endpoint.identification.algorithm": "https: the certificate must be the host's; empty or none: any",
}
"""Setting -> what it may be."""

_OURS = ("security.", "sasl.", "ssl.")
_JAAS = re.compile(r'\b(?P<name>username|password)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s;"]+))')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """What is said before Kafka's protocol. Its text shows no secret.

    Attributes:
        tls: the TLS context; None: no TLS.
        mechanism: the SASL mechanism; "" for none.
        user: who.
        password: its password.
    """

    tls: ssl.SSLContext | None = field(default=None, repr=False)
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> ClientSecurity:
        """From settings; names that are not of security are somebody else's, and left alone.

        Raises:
            ConfigError: one is not known, or not valid, or missing; a file cannot be read.
        """
        for name in settings:
            if name.startswith(_OURS) and name not in NAMES:
                raise ConfigError(f"{name} is not known here; known are {', '.join(NAMES)}")
        for name in ("ssl.truststore.type", "ssl.keystore.type"):
            if settings.get(name, "PEM").upper() != "PEM":
                raise ConfigError(f"{name}={settings[name]}: only PEM can be read")
        protocol = settings.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise ConfigError(f"security.protocol={protocol}; valid: {', '.join(PROTOCOLS)}")
        tls = _context(settings) if protocol.endswith("SSL") else None
        if not protocol.startswith("SASL"):
            return cls(tls)
        mechanism = (settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "").upper()
        if mechanism not in MECHANISMS:
            raise ConfigError(f"sasl.mechanism={mechanism}; valid: {', '.join(MECHANISMS)}")
        user, password = _credentials(settings)
        return cls(tls, mechanism, user, password)

    @classmethod
    def of_file(cls, path: str | Path) -> ClientSecurity:
        """From a properties file, as Kafka's own tools take it. See `of`."""
        try:
            return cls.of({name: value for name, (value, _) in read_properties(Path(path)).items()})
        except ConfigError as error:
            raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def _credentials(settings: Mapping[str, str]) -> tuple[str, str]:
    said = {
        found["name"]: _ESCAPED.sub(r"\1", found["quoted"]) if found["bare"] is None else found["bare"]
        for found in _JAAS.finditer(settings.get("sasl.jaas.config", ""))
    }
    user = settings.get("sasl.username") or said.get("username", "")
    password = settings.get("sasl.password") or said.get("password", "")
    if not user or not password:
        raise ConfigError("SASL needs sasl.username and sasl.password, or both in sasl.jaas.config")
    return user, password


def _context(settings: Mapping[str, str]) -> ssl.SSLContext:
    authorities = settings.get("ssl.truststore.location") or settings.get("ssl.ca.location")
    inline = settings.get("ssl.truststore.certificates")
    certificate = settings.get("ssl.keystore.location") or settings.get("ssl.certificate.location")
    try:
        context = ssl.create_default_context(cafile=authorities or None, cadata=inline or None)
        if certificate:
            context.load_cert_chain(certificate, settings.get("ssl.key.location"), settings.get("ssl.key.password", ""))
    except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
        raise ConfigError(f"TLS: {authorities or ''} {certificate or ''} cannot be used: {error}") from error
    if settings.get("ssl.endpoint.identification.algorithm", "https").lower() in ("", "none"):
        context.check_hostname = False
    return context
