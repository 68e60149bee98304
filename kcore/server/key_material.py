"""Keys and certificates of TLS in Kafka's forms: PEM files, PKCS12 files, and PEM texts in settings (KIP-651)."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.errors import ConfigError
from kcore.server.key_cost import check_key_cost, check_store_cost

if TYPE_CHECKING:
    import ssl

    from kcore.config.security import SecuritySettings

NEEDS_CRYPTOGRAPHY = "PKCS12 needs the package cryptography: pip install 'kcore[security]', or convert the file to PEM"


MAX_STORE_BYTES: Final = 4 << 20
"""Maximum size of a key store or trust store. It exceeds the size of a bundle of all public authorities."""


def load_keystore(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    """Loads the server's certificate, its chain and its key into a TLS context.

    Raises:
        ConfigError: the settings contradict each other, or PKCS12 cannot be read.
        OSError, ValueError: a file cannot be read, or OpenSSL refuses its content.
    """
    # A function, because without one OpenSSL prompts on the terminal for the password of an encrypted key.
    password = lambda: settings.ssl_key_password or ""  # noqa: E731
    location = settings.ssl_keystore_location
    inline = settings.ssl_keystore_key, settings.ssl_keystore_certificate_chain
    if settings.ssl_keystore_type == "PKCS12":
        if any(inline):
            raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain need ssl.keystore.type=PEM")
        key, chain = _pkcs12(location, settings.ssl_keystore_password)
        if key is None or not chain:
            raise ConfigError(f"ssl.keystore.location={location} has no private key with a certificate")
        with _file_of(_key_bytes(key) + b"".join(map(_pem, chain))) as path:
            context.load_cert_chain(path)
        return
    if settings.ssl_keystore_password:
        raise ConfigError("ssl.keystore.password: a PEM store has no password; use ssl.key.password for the key")
    if any(inline):
        if not all(inline) or location:
            raise ConfigError(
                "ssl.keystore.key and ssl.keystore.certificate.chain must be set together, without "
                "ssl.keystore.location"
            )
        with _file_of("\n".join(map(str, inline)).encode()) as path:
            context.load_cert_chain(path, password=password)
        return
    with _copy_of(location) as chain_path, _copy_of(settings.kcore_ssl_key_location or location) as key_path:
        context.load_cert_chain(chain_path, key_path, password=password)


def check_key(settings: SecuritySettings) -> None:
    """Checks that OpenSSL can decrypt the server's key, key store and trust store in a short time.

    The check is necessary, because the event loop waits for the decryption.

    Raises:
        ConfigError: the decryption would take too long. The function ignores files that it cannot read.
    """
    stores: list[str | None] = []
    if settings.ssl_truststore_type == "PKCS12":
        stores.append(settings.ssl_truststore_location)
    if settings.ssl_keystore_type == "PKCS12":
        stores.append(settings.ssl_keystore_location)
        keys: list[str | None] = []
    else:
        check_key_cost((settings.ssl_keystore_key or "").encode())
        keys = [settings.ssl_keystore_location, settings.kcore_ssl_key_location]
    for check, locations in ((check_store_cost, stores), (check_key_cost, keys)):
        for location in filter(None, locations):
            with contextlib.suppress(OSError):
                check(_read(location))


def load_truststore(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    """Loads the authorities that sign clients' certificates into a TLS context.

    Raises:
        ConfigError: the settings contradict each other, or PKCS12 cannot be read.
        OSError, ValueError: a file cannot be read, or has no certificate.
    """
    location, inline = settings.ssl_truststore_location, settings.ssl_truststore_certificates
    if settings.ssl_truststore_type == "PKCS12":
        if inline:
            raise ConfigError("ssl.truststore.certificates needs ssl.truststore.type=PEM")
        _, chain = _pkcs12(location, settings.ssl_truststore_password)
        if not chain:
            raise ConfigError(f"ssl.truststore.location={location} has no certificate")
        context.load_verify_locations(cadata=b"".join(map(_pem, chain)).decode())
        return
    if settings.ssl_truststore_password:
        raise ConfigError("ssl.truststore.password: a PEM store has no password; remove the setting")
    if inline and location:
        raise ConfigError("ssl.truststore.certificates and ssl.truststore.location exclude each other")
    if inline:
        context.load_verify_locations(cadata=inline)
    else:
        with _copy_of(location) as path:
            context.load_verify_locations(path)


@contextlib.contextmanager
def _file_of(data: bytes) -> Iterator[str]:
    """Yields the path of a temporary file with a key, because OpenSSL reads keys only from files.

    On Linux the file is in memory. On other systems, only this user can read the file, and it is removed after its use.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("kcore-key")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # its mode is 0600
        file.write(data)
        file.flush()
        yield file.name


def _read(location: str) -> bytes:
    """Returns the bytes of a key store file.

    An administrator may name any path at run time, and the event loop reads it. A pipe would block the server, and a
    huge file would take its memory.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is larger than `MAX_STORE_BYTES`.
    """
    descriptor = os.open(location, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:  # not `open(descriptor)`, which refuses a folder and leaves its descriptor open
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), location)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", location)
        data = os.read(descriptor, MAX_STORE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_STORE_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_STORE_BYTES} bytes", location)
    return data


@contextlib.contextmanager
def _copy_of(location: str) -> Iterator[str]:
    """Yields the path of a copy of a key store. OpenSSL never opens the configured path itself: see `_read`."""
    with _file_of(_read(location)) as path:
        yield path


def _pkcs12(location: str, password: str | None) -> tuple[Any, list[Any]]:
    """Returns the private key of a PKCS12 file, or None, and the certificates of the file. The certificate of the key
    comes first.

    Raises:
        ConfigError: the password is wrong, the file is damaged, or the package cryptography is missing.
        OSError: the file cannot be read.
    """
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # noqa: PLC0415  # optional
    except ImportError:
        raise ConfigError(NEEDS_CRYPTOGRAPHY) from None
    data = _read(location)
    try:
        store = load_pkcs12(data, (password or "").encode() or None)
    except ValueError:
        raise ConfigError(f"{location} is not a PKCS12 file, or its password is wrong") from None
    certificates = [] if store.cert is None else [store.cert.certificate]
    return store.key, certificates + [authority.certificate for authority in store.additional_certs]


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415  # optional

    data: bytes = certificate.public_bytes(Encoding.PEM)
    return data


def _key_bytes(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  # optional
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    data: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return data
