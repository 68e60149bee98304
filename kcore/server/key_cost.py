"""Limits the work to decrypt a private key or a key store that a client sets at run time.

The key of an encrypted PEM file (PKCS #8) has the number of iterations of its key derivation: up to two billion. The
parts of a PKCS12 file have such numbers, too. OpenSSL performs the iterations on the event loop, which serves no client
meanwhile. Therefore, kcore first checks the numbers.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final, NoReturn

from kcore.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_ITERATIONS: Final = 100_000
"""Maximum number of iterations of a key derivation. So many iterations take about 60 ms. By default, OpenSSL uses 2,048
iterations, and Java uses 10,000.
"""

_BEGIN: Final = b"BEGIN ENCRYPTED PRIVATE KEY"
_KEY: Final = re.compile(
    rb"-----BEGIN ENCRYPTED PRIVATE KEY-----[ \t]*\r?\n([A-Za-z0-9+/=\s]*?)-----END ENCRYPTED PRIVATE KEY-----"
)
_SEQUENCE, _OCTETS, _INTEGER, _OBJECT_ID = 0x30, 0x04, 0x02, 0x06
_PBES2: Final = bytes.fromhex("2a864886f70d01050d")
_PBKDF2: Final = bytes.fromhex("2a864886f70d01050c")
_LONG_FORM: Final = 0x80
_MAX_LENGTH_BYTES: Final = 3
_SCRYPT: Final = bytes.fromhex("2b06010401da47040b")
_CONSTRUCTED, _CONTEXT_0 = 0x20, 0xA0
_SPLIT_OCTETS: Final = _OCTETS | _CONSTRUCTED
"""ASN.1 tag of an octet string that consists of parts. BER allows it, DER does not."""
_MAX_ELEMENTS: Final = 200_000
"""Maximum number of ASN.1 elements of a PKCS12 file that kcore reads. Reading so many elements takes about 0.2 s."""


def check_key_cost(pem: bytes) -> None:
    """Checks that the private keys of a PEM text are cheap to decrypt. Accepts keys without encryption.

    Raises:
        ConfigError: a key has more than `MAX_ITERATIONS`, or its key derivation is not PBKDF2.
    """
    keys = _KEY.findall(pem)
    if len(keys) != pem.count(_BEGIN):
        _refuse("the key is not well-formed PEM")
    for text in keys:
        try:
            iterations = _iterations(base64.b64decode(b"".join(text.split()), validate=True))
        except (binascii.Error, _NotDerError):
            _refuse("the encryption of the key is not PBES2 with PBKDF2")
        if iterations > MAX_ITERATIONS:
            _refuse(f"its key derivation has {iterations} iterations; the maximum at run time is {MAX_ITERATIONS}")


def check_store_cost(store: bytes) -> None:
    """Checks that the parts of a PKCS12 file are cheap to decrypt. Cannot check parts inside encrypted parts.

    Raises:
        ConfigError: the key derivations have more than `MAX_ITERATIONS` together, one of them is scrypt, or the file is
            not DER.
    """
    if store[:1] != bytes([_SEQUENCE]):
        return  # no PKCS12 file: OpenSSL refuses it at once
    try:
        iterations = sum(_store_iterations(store))
    except _NotDerError:
        _refuse_store("the file is not DER, or its encryption is not PBKDF2 or a PBE of PKCS #12")
    if iterations > MAX_ITERATIONS:
        _refuse_store(f"its key derivations have {iterations} iterations; the maximum at run time is {MAX_ITERATIONS}")


def _refuse_store(reason: str) -> NoReturn:
    raise ConfigError(
        f"the PKCS12 file cannot be loaded while the server runs: {reason}; write it again with "
        "openssl pkcs12 -export -iter 10000, or set it in the properties file"
    )


def _refuse(reason: str) -> NoReturn:
    raise ConfigError(
        f"the encrypted private key cannot be loaded while the server runs: {reason}; convert it with "
        "openssl pkcs8 -topk8 -v2 aes-256-cbc -iter 10000, or set it in the properties file"
    )


class _NotDerError(Exception):
    """The bytes are not the expected DER."""


def _element(data: bytes, position: int, tag: int) -> tuple[int, int]:
    """Returns the start and the end of the content of a DER element, which must have this tag."""
    if data[position : position + 1] != bytes([tag]):
        raise _NotDerError
    return _content(data, position)


def _content(data: bytes, position: int) -> tuple[int, int]:
    """Returns the start and the end of the content of a DER element, as positions in `data`."""
    if position + 2 > len(data):
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


def _store_iterations(der: bytes) -> Iterator[int]:
    """Yields the iterations of the key derivations in a PKCS12 file (RFC 7292).

    The iterations occur in the parameters of PBKDF2 (RFC 8018), of PKCS #12's own derivations, and of the file's MAC.
    In these parameters, the iterations follow the salt, which is an octet string. The authenticated safe and its
    unencrypted contents are octet strings, too, below a context-specific tag. The function also searches inside these
    octet strings.
    """
    first, end = _element(der, 0, _SEQUENCE)
    left = [(first, end, _SEQUENCE)]
    elements = 0
    while left:
        position, end, parent = left.pop()
        before = 0
        while position < end:
            elements += 1
            tag = der[position]
            first, after = _content(der, position)
            if after > end or tag == _SPLIT_OCTETS or elements > _MAX_ELEMENTS:
                raise _NotDerError
            if tag == _INTEGER and before == _OCTETS:
                yield int.from_bytes(der[first:after], "big")  # a negative number is refused as a large one
            elif tag == _OBJECT_ID and der[first:after] == _SCRYPT:
                raise _NotDerError
            elif tag & _CONSTRUCTED or (tag == _OCTETS and parent == _CONTEXT_0):
                left.append((first, after, tag))
            before, position = tag, after
