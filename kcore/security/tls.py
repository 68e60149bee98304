"""TLS of a listener: an `ssl.SSLContext` made of Kafka's settings, with PEM files."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING

from kcore.errors import ConfigError

if TYPE_CHECKING:
    from kcore.config.security import SecuritySettings

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_IANA = re.compile(r"TLS_(?:(?P<exchange>[A-Z_0-9]+)_WITH_)?(?P<cipher>[A-Z0-9_]+)")


def server_context(settings: SecuritySettings, listener: str) -> ssl.SSLContext:
    """What a listener speaks before Kafka's protocol.

    Args:
        settings: those of the listener (`Config.for_listener`).
        listener: its name, for the texts of errors.

    Raises:
        ConfigError: a file is missing or unreadable, the key does not belong to the certificate, or a version or suite
            of ciphers is not known.
    """
    location = settings.ssl_keystore_location
    if not location:
        raise ConfigError(f"listener {listener} speaks TLS: ssl.keystore.location must name a PEM file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in settings.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if settings.ssl_cipher_suites:
        _choose_ciphers(context, settings.ssl_cipher_suites)
    try:
        # A function, because without one OpenSSL prompts on the terminal for the password of an encrypted key.
        context.load_cert_chain(
            location, settings.kcore_ssl_key_location or None, password=lambda: settings.ssl_key_password or ""
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"listener {listener}: ssl.keystore.location={location}: {_reason(error)}") from None
    context.verify_mode = _CLIENT_AUTH[settings.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, settings.ssl_truststore_location, listener)
    return context


def _trust(context: ssl.SSLContext, location: str, listener: str) -> None:
    if not location:
        raise ConfigError(
            f"listener {listener} asks clients for certificates: ssl.truststore.location must name a PEM file with "
            "those that sign them"
        )
    try:
        context.load_verify_locations(location)
    except (OSError, ValueError) as error:
        raise ConfigError(f"listener {listener}: ssl.truststore.location={location}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """What went wrong, without anything of the file."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "no PEM with a certificate and its key, or the password does not fit"
    return getattr(error, "strerror", None) or "it cannot be read"


def _choose_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    try:
        context.set_ciphers(":".join(map(openssl_name, suites)))
    except ssl.SSLError:
        raise ConfigError(f"ssl.cipher.suites={','.join(suites)}: none of them is known to OpenSSL") from None


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2, which Java and IANA call TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.

    Raises:
        ConfigError: it is a suite of TLS 1.3: OpenSSL always offers its own three, all of them sound.
    """
    match = _IANA.fullmatch(suite)
    if match is None:
        return suite  # OpenSSL's name already
    if match["exchange"] is None:
        raise ConfigError(f"ssl.cipher.suites: {suite} is of TLS 1.3, whose suites cannot be chosen")
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    cipher = re.sub(r"(AES|CAMELLIA|ARIA)_(\d+)", r"\1\2", match["cipher"])
    cipher = cipher.replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305").replace("_", "-")
    return exchange + cipher
