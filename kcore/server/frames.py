"""Frames: a four-byte length, then that many bytes."""

from __future__ import annotations

from kcore.errors import KcoreError

LENGTH_BYTES = 4


class FrameError(KcoreError):
    """A peer sent a length that no frame can have; the connection closes."""
