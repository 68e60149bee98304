"""Frames: a four-byte length followed by that many bytes."""

from __future__ import annotations

from kcore.errors import KcoreError

LENGTH_BYTES = 4


class FrameError(KcoreError):
    """A peer sent an invalid frame length; the connection is closed."""
