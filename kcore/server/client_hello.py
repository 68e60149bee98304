"""Reads the first message of a TLS handshake, which names the key exchange of the client (RFC 8446, 4.1.2).

OpenSSL offers the groups of finite fields (ffdhe2048 to ffdhe8192, RFC 7919) in TLS 1.3, and Python has no function
that removes them. One handshake with the largest group takes 140 ms on the event loop; a handshake with an elliptic
curve takes 1 ms. A client can demand the largest group with one message of 1 KB, and may repeat this message.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

HEADER_BYTES: Final = 5  # of a TLS record: its type, version, and length
HANDSHAKE_RECORD: Final = 22
_RECORDS: Final = frozenset({20, 21, HANDSHAKE_RECORD, 23})
MAX_RECORD_BYTES: Final = 16_384

_CLIENT_HELLO: Final = 1
_VERSION_AND_RANDOM: Final = 34
_SUPPORTED_GROUPS: Final = 10
_SUPPORTED_VERSIONS: Final = 43
_KEY_SHARE: Final = 51
_TLS_1_3: Final = 0x0304

_FIELDS: Final = range(0x0100, 0x0200)
"""TLS numbers of the finite-field groups, including numbers that are reserved for further finite-field groups."""

_CURVES: Final = frozenset({23, 24, 25, 29, 30})
"""TLS numbers of the curves that every OpenSSL accepts: secp256r1, secp384r1, secp521r1, x25519 and x448."""


class FirstMessage(Enum):
    """The kinds of first messages of a TLS handshake."""

    PROMPT = auto()
    """The server signs its part of the handshake as soon as it receives this message."""
    LATER = auto()
    """The server may sign only after a later message of the client.

    Messages that are not TLS also have this kind, because OpenSSL reports their error.
    """
    UNCLEAR = auto()
    """The first record has no complete ClientHello, so the server cannot see the key exchange."""
    COSTLY = auto()
    """The client demands a key exchange in a finite field."""


class _MalformedError(Exception):
    """The message is not well formed."""


class _Reader:
    """A reader of numbers, and of blocks with a length in front of them."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def read(self, size: int) -> bytes:
        """Returns the next bytes."""
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise _MalformedError
        self._at += size
        return taken

    def number(self, size: int) -> int:
        """Returns the next unsigned number."""
        return int.from_bytes(self.read(size), "big")

    def block(self, length_bytes: int) -> _Reader:
        """Returns a reader of the next block, whose length field has the given number of bytes."""
        return _Reader(self.read(self.number(length_bytes)))


def record_bytes(head: bytes) -> int:
    """Returns the length of the TLS record that begins with `head`.

    If `head` is shorter than a record header, the result is the length of a header. If the record is no handshake
    record, the result is 0.
    """
    if len(head) < HEADER_BYTES:
        return HEADER_BYTES
    if head[0] != HANDSHAKE_RECORD:
        return 0
    return HEADER_BYTES + min(int.from_bytes(head[3:5], "big"), MAX_RECORD_BYTES)


def classify(record: bytes) -> FirstMessage:
    """Returns the kind of a first message.

    The kind shows when the server signs, and whether the key exchange costs too much.
    """
    try:
        return _classify(record)
    except _MalformedError:
        return FirstMessage.UNCLEAR


def _classify(record: bytes) -> FirstMessage:
    reader = _Reader(record)
    if reader.number(1) not in _RECORDS:
        return FirstMessage.LATER
    if record[0] != HANDSHAKE_RECORD:
        return FirstMessage.UNCLEAR
    reader.read(HEADER_BYTES - 1)
    if reader.number(1) != _CLIENT_HELLO:
        return FirstMessage.UNCLEAR
    body = reader.block(3)  # if the message continues in another record, it is malformed here
    body.read(_VERSION_AND_RANDOM)
    for length_bytes in (1, 2, 1):  # the session id, the cipher suites, the compression methods
        body.block(length_bytes)
    if not body:
        return FirstMessage.PROMPT  # TLS 1.2 without extensions
    named: set[int] = set()
    shared: set[int] = set()
    is_1_3 = False
    extensions = body.block(2)
    while extensions:
        kind, content = extensions.number(2), extensions.block(2)
        if kind == _SUPPORTED_VERSIONS:
            is_1_3 = is_1_3 or _TLS_1_3 in _numbers(content.block(1))
        elif kind == _SUPPORTED_GROUPS:
            named |= set(_numbers(content.block(2)))
        elif kind == _KEY_SHARE:
            shares = content.block(2)
            while shares:
                shared.add(shares.number(2))
                shares.block(2)
    if not is_1_3:
        return FirstMessage.PROMPT  # OpenSSL has no finite field for TLS 1.2 unless a program gives it one
    # The server takes the first share that it supports, and names a group of its own choice if it supports none.
    if not shared.isdisjoint(_FIELDS) or (not named & _CURVES and not named.isdisjoint(_FIELDS)):
        return FirstMessage.COSTLY
    return FirstMessage.PROMPT if shared & _CURVES else FirstMessage.LATER


def _numbers(block: _Reader) -> list[int]:
    numbers = []
    while block:
        numbers.append(block.number(2))
    return numbers
