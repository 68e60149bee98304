"""A client's TLS and SASL, configured by Kafka's settings. If librdkafka has another name for a setting, this name is
accepted, too.
"""

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
    "sasl.mechanisms": "librdkafka's name of sasl.mechanism",
    "sasl.jaas.config": 'a login module with username="…" password="…"',
    "sasl.username": "the user",
    "sasl.password": "the user's password",
    "ssl.truststore.location": "a PEM file with the trusted authorities; none: those of the system",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": "the trusted authorities as a text, in PEM",
    "ssl.ca.location": "the same as ssl.truststore.location",
    "ssl.keystore.location": "a PEM file with the client's certificate and key",
    "ssl.keystore.type": "PEM",
    "ssl.certificate.location": "the certificate alone",
    "ssl.key.location": "the key alone",
    "ssl.key.password": "the key's password",
    "ssl.endpoint.identification.algorithm": "https: the certificate must name the host; empty or none: no check",
}
"""Setting -> its valid values."""

_PREFIXES = ("security.", "sasl.", "ssl.")
_JAAS = re.compile(r'\b(?P<name>username|password)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s;"]+))')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The TLS and SASL configuration of a client. The `repr` of the object shows no secret.

    Attributes:
        tls: the TLS context; None: no TLS.
        mechanism: the SASL mechanism; "" for none.
        user: the user's name.
        password: the user's password.
    """

    tls: ssl.SSLContext | None = field(default=None, repr=False)
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> ClientSecurity:
        """Reads the security settings; ignores other settings.

        Raises:
            ConfigError: a setting is unknown, invalid or missing, or a file cannot be read.
        """
        for name in settings:  # names with underscores are those of kafka-python and aiokafka
            if name.replace("_", ".").startswith(_PREFIXES) and name not in NAMES:
                raise ConfigError(f"unknown setting {name}; valid: {', '.join(NAMES)}")
        for name in ("ssl.truststore.type", "ssl.keystore.type"):
            if settings.get(name, "PEM").upper() != "PEM":
                raise ConfigError(f"{name}={settings[name]}: only PEM is supported")
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
        """Reads the security settings of a properties file, in the format of Kafka's tools; see `of`."""
        try:
            return cls.of({name: value for name, (value, _) in read_properties(Path(path)).items()})
        except ConfigError as error:
            raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def _credentials(settings: Mapping[str, str]) -> tuple[str, str]:
    jaas = {
        match["name"]: _ESCAPED.sub(r"\1", match["quoted"]) if match["bare"] is None else match["bare"]
        for match in _JAAS.finditer(settings.get("sasl.jaas.config", ""))
    }
    user = settings.get("sasl.username") or jaas.get("username", "")
    password = settings.get("sasl.password") or jaas.get("password", "")
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
        files = " and ".join(filter(None, (authorities, certificate))) or "the authorities"
        raise ConfigError(f"TLS: {files} cannot be used: {error}") from error
    if settings.get("ssl.endpoint.identification.algorithm", "https").lower() in ("", "none"):
        context.check_hostname = False
    return context
