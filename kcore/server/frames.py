"""Frames: a four-byte length followed by that many bytes."""

from __future__ import annotations

from kcore.errors import KcoreError

LENGTH_BYTES = 4


_TLS_HANDSHAKE = b"\x16\x03"
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"CONN", b"PATC", b"PRI ")


def other_protocol(size: int) -> str:
    """Returns a hint for the error message about an invalid frame length.

    The four bytes of the length may be the beginning of a TLS or HTTP message. If they are not, the hint is "".

    Args:
        size: the frame length.
    """
    data = size.to_bytes(LENGTH_BYTES, "big", signed=True)
    if data.startswith(_TLS_HANDSHAKE):
        return "; the client may use TLS, which this listener does not use"
    return "; the client may use HTTP" if data in _HTTP_METHODS else ""


class FrameError(KcoreError):
    """A peer sent an invalid frame length; the connection is closed."""
