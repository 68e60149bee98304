"""Topic ids and other uuids as Kafka prints them: base64url of the sixteen bytes without padding, 22 characters."""

import binascii
from base64 import urlsafe_b64encode
from typing import Final

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""The id of `__cluster_metadata`, the same in every cluster (KIP-516)."""


def to_text(uuid: bytes) -> str:
    """Kafka's text of a uuid.

    Args:
        uuid: sixteen bytes.

    Raises:
        ValueError: it has another length.
    """
    if len(uuid) != 16:
        raise ValueError(f"a uuid has 16 bytes, found {len(uuid)}")
    return urlsafe_b64encode(uuid).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """The sixteen bytes of a uuid's text.

    Args:
        text: base64url, with or without its two characters of padding.

    Raises:
        ValueError: it is no base64url, or not of sixteen bytes.
    """
    try:
        raw = binascii.a2b_base64(text.rstrip("=").translate(_TO_PLAIN) + "==", strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is no uuid: {error}") from None
    if len(raw) != 16:
        raise ValueError(f"{text!r} is no uuid: it has {len(raw)} bytes")
    return raw


_TO_PLAIN = str.maketrans("-_+/", "+/\x00\x00")
"""base64url to base64; the two characters that only plain base64 has are refused."""
