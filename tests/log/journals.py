"""Journals for tests of the log, made without the code under test."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from tests.log.raw_rows import put_row

AREA_BYTES = 1_179_648
JOURNAL_BYTES = 2 * AREA_BYTES
IDENTITY = bytes(range(200, 216))
FLUSHED = 1

Round = Sequence[tuple[int, int, bytes]]
"""The batches of a round. Each has a partition number, a base offset, and its bytes."""


def encoded(batches: Round) -> bytes:
    """Returns the batches of a journal entry. Each follows a head: partition number, base offset, length."""
    return b"".join(struct.pack(">IQI", number, base, len(data)) + data for number, base, data in batches)


def entry(number: int, batches: bytes, identity: bytes = IDENTITY, flags: int = FLUSHED) -> bytes:
    """Returns the entry of a round."""
    rest = struct.pack(">III", len(batches), number, flags) + identity + batches
    return struct.pack(">I", crc32c(rest)) + rest


def leave_journal(folder: Path, *rounds: bytes) -> None:
    """Writes a journal of encoded batches into a folder that no engine has open, as a killed process leaves it."""
    put_row(folder, b"journal", struct.pack(">16sI", IDENTITY, 0))
    data = b"".join(entry(number, batches) for number, batches in enumerate(rounds))
    (folder / "journal").write_bytes(data.ljust(JOURNAL_BYTES, b"\0"))
