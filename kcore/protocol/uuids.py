"""Topic ids and other uuids: sixteen bytes.

Kafka prints uuids as base64url without padding, 22 characters. Member ids contain uuids in hexadecimal.
"""

import binascii
from base64 import urlsafe_b64encode
from typing import Final

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""The id of `__cluster_metadata`, the same in every cluster (KIP-516)."""


def version_4(random_bytes: bytes) -> bytes:
    """Makes a uuid of version 4 (RFC 9562) from sixteen random bytes: changes only the bits of version and variant."""
    drawn = bytearray(random_bytes)
    drawn[6] = drawn[6] & 0x0F | 0x40
    drawn[8] = drawn[8] & 0x3F | 0x80
    return bytes(drawn)


def to_hex(uuid: bytes) -> str:
    """Returns the text of a uuid in the form of RFC 9562: hexadecimal digits in groups of 8, 4, 4, 4 and 12."""
    digits = uuid.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def to_text(uuid: bytes) -> str:
    """Returns Kafka's text of a uuid.

    Args:
        uuid: sixteen bytes.

    Raises:
        ValueError: the uuid has another length.
    """
    if len(uuid) != 16:
        raise ValueError(f"a uuid must have 16 bytes, found {len(uuid)}")
    return urlsafe_b64encode(uuid).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """Returns the sixteen bytes of a uuid's text.

    Args:
        text: base64url, with or without its two characters of padding.

    Raises:
        ValueError: the text is not base64url, or does not have sixteen bytes.
    """
    try:
        raw = binascii.a2b_base64(text.rstrip("=").translate(_TO_PLAIN) + "==", strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a uuid: {error}") from None
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a uuid: it has {len(raw)} bytes instead of 16")
    return raw


_TO_PLAIN = str.maketrans("-_+/", "+/\x00\x00")
"""Translation table from base64url to base64. It maps `+` and `/`, which base64url does not have, to invalid
characters.
"""
