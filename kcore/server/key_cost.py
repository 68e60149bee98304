"""The limit of the work to decrypt a private key that a client sets at run time.

The key of an encrypted PEM file (PKCS #8) names the number of iterations of its key derivation, up to two billion.
OpenSSL performs them on the event loop, which serves no client meanwhile. So the number is read and checked first.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, NoReturn

from kcore.errors import ConfigError

MAX_ITERATIONS: Final = 100_000
"""Maximum iterations of a key derivation: they take about 60 ms. OpenSSL's default is 2,048, and Java's 10,000."""

_BEGIN: Final = b"BEGIN ENCRYPTED PRIVATE KEY"
_KEY: Final = re.compile(
    rb"-----BEGIN ENCRYPTED PRIVATE KEY-----[ \t]*\r?\n([A-Za-z0-9+/=\s]*?)-----END ENCRYPTED PRIVATE KEY-----"
)
_SEQUENCE, _OCTETS, _INTEGER, _OBJECT_ID = 0x30, 0x04, 0x02, 0x06
_PBES2: Final = bytes.fromhex("2a864886f70d01050d")
_PBKDF2: Final = bytes.fromhex("2a864886f70d01050c")
_LONG_FORM: Final = 0x80
_MAX_LENGTH_BYTES: Final = 3


def check_key_cost(pem: bytes) -> None:
    """Checks that the private keys of a PEM text are cheap to decrypt. Keys without encryption always are.

    Raises:
        ConfigError: a key has more than `MAX_ITERATIONS`, or its key derivation is not PBKDF2.
    """
    keys = _KEY.findall(pem)
    if len(keys) != pem.count(_BEGIN):
        _refuse("it is not well-formed PEM")
    for text in keys:
        try:
            iterations = _iterations(base64.b64decode(b"".join(text.split()), validate=True))
        except (binascii.Error, _NotDerError):
            _refuse("its encryption is not PBES2 with PBKDF2")
        if iterations > MAX_ITERATIONS:
            _refuse(f"its key derivation has {iterations} iterations; the maximum at run time is {MAX_ITERATIONS}")


def _refuse(reason: str) -> NoReturn:
    raise ConfigError(
        f"the encrypted private key cannot be loaded while the server runs: {reason}; convert it with "
        "openssl pkcs8 -topk8 -v2 aes-256-cbc -iter 10000, or set it in the properties file"
    )


class _NotDerError(Exception):
    """The bytes are not the expected DER."""


def _element(data: bytes, position: int, tag: int) -> tuple[int, int]:
    """Returns the first and the end position of the content of a DER element with this tag."""
    if position + 2 > len(data) or data[position] != tag:
        raise _NotDerError
    length, first = data[position + 1], position + 2
    if length >= _LONG_FORM:
        count = length - _LONG_FORM
        if not 1 <= count <= _MAX_LENGTH_BYTES:
            raise _NotDerError
        length, first = int.from_bytes(data[first : first + count], "big"), first + count
    if first + length > len(data):
        raise _NotDerError
    return first, first + length


def _algorithm(data: bytes, position: int, object_id: bytes) -> int:
    """Returns the position of the parameters of an AlgorithmIdentifier, which must have this object id."""
    first, _ = _element(data, position, _SEQUENCE)
    start, end = _element(data, first, _OBJECT_ID)
    if data[start:end] != object_id:
        raise _NotDerError
    return _element(data, end, _SEQUENCE)[0]


def _iterations(der: bytes) -> int:
    """Returns the iterations of the key derivation of an EncryptedPrivateKeyInfo (RFC 5958, RFC 8018).

    Raises:
        _NotDerError: the bytes have another form, or another algorithm.
    """
    key, _ = _element(der, 0, _SEQUENCE)
    derivation = _algorithm(der, key, _PBES2)
    parameters = _algorithm(der, derivation, _PBKDF2)
    _, salt_end = _element(der, parameters, _OCTETS)
    start, end = _element(der, salt_end, _INTEGER)
    return int.from_bytes(der[start:end], "big", signed=True)
