"""TLS of a listener: creates an `ssl.SSLContext` from Kafka's settings."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING

from kcore.errors import ConfigError
from kcore.server.key_material import load_keystore, load_truststore
from kcore.server.tls_session import BoundedContext

if TYPE_CHECKING:
    from kcore.config.security import SecuritySettings

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_IANA = re.compile(r"TLS_(?:(?P<exchange>[A-Z_0-9]+)_WITH_)?(?P<cipher>[A-Z0-9_]+)")


def server_context(settings: SecuritySettings, listener: str) -> ssl.SSLContext:
    """Creates the TLS context of a listener.

    Args:
        settings: the listener's settings (`Config.for_listener`).
        listener: the listener's name, for error messages.

    Raises:
        ConfigError: a file is missing or unreadable, the key does not match the certificate, or a version or cipher
            suite is unknown.
    """
    location = settings.ssl_keystore_location
    if not (location or settings.ssl_keystore_key or settings.ssl_keystore_certificate_chain):
        raise ConfigError(f"listener {listener} uses TLS: ssl.keystore.location must name a PEM or PKCS12 file")
    context = BoundedContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION  # each renegotiation would cost a signature
    versions = [_VERSIONS[name] for name in settings.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if settings.ssl_cipher_suites:
        _choose_ciphers(context, settings.ssl_cipher_suites)
    try:
        load_keystore(context, settings)
    except ConfigError as error:
        raise ConfigError(f"listener {listener}: {error}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"listener {listener}: {_keystore(settings, error)}: {_reason(error)}") from None
    context.verify_mode = _CLIENT_AUTH[settings.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, settings, listener)
    return context


def _keystore(settings: SecuritySettings, error: Exception) -> str:
    """Returns the settings of the files or texts that an error of the key store may be about."""
    location, key = settings.ssl_keystore_location, settings.kcore_ssl_key_location
    if not location:
        return "ssl.keystore.key"
    names = {location: f"ssl.keystore.location={location}"}
    if key:
        names.setdefault(key, f"kcore.ssl.key.location={key}")
    return names.get(getattr(error, "filename", None) or "") or ", ".join(names.values())


def _trust(context: ssl.SSLContext, settings: SecuritySettings, listener: str) -> None:
    location = settings.ssl_truststore_location
    if not (location or settings.ssl_truststore_certificates):
        raise ConfigError(
            f"listener {listener} requests client certificates: ssl.truststore.location must name a PEM or PKCS12 file "
            "with the certificates of their issuers"
        )
    try:
        load_truststore(context, settings)
    except ConfigError as error:
        raise ConfigError(f"listener {listener}: {error}") from None
    except (OSError, ValueError) as error:
        source = f"ssl.truststore.location={location}" if location else "ssl.truststore.certificates"
        raise ConfigError(f"listener {listener}: {source}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Returns the cause of an error, without any content of the certificate or key file."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "not a PEM file with a certificate and its key, or the password is wrong"
    return getattr(error, "strerror", None) or "cannot read the file"


def _choose_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    try:
        context.set_ciphers(":".join(map(openssl_name, suites)))
    except ssl.SSLError:
        raise ConfigError(f"ssl.cipher.suites={','.join(suites)}: OpenSSL supports none of them") from None


def openssl_name(suite: str) -> str:
    """Returns OpenSSL's name of a TLS 1.2 cipher suite.

    Args:
        suite: the name of Java and IANA, e.g. TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, or OpenSSL's name.

    Raises:
        ConfigError: the suite is a TLS 1.3 suite. OpenSSL always offers all three of its TLS 1.3 suites, which are all
            secure.
    """
    match = _IANA.fullmatch(suite)
    if match is None:
        return suite  # already OpenSSL's name
    if match["exchange"] is None:
        raise ConfigError(
            f"ssl.cipher.suites: {suite} is a TLS 1.3 suite, and suites of TLS 1.3 cannot be configured; remove it"
        )
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    cipher = re.sub(r"(AES|CAMELLIA|ARIA)_(\d+)", r"\1\2", match["cipher"])
    cipher = cipher.replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305").replace("_", "-")
    return exchange + cipher
