"""`kcore log repair` on a device that cannot read a page of the file."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.log.lmdb_salvage import Salvage
from tests.cli.conftest import populate
from tests.cli.test_log_repair import SETTINGS, append_ten
from tests.cli.test_log_verify import change, found

PAGE = 4096


def make_unreadable(file: Path, page: int, patched: pytest.MonkeyPatch) -> None:
    """Makes every read of a page of the file fail. As with a real device, a longer read ends before that page."""
    inode = file.stat().st_ino
    read = os.pread

    def pread(fd: int, size: int, position: int) -> bytes:
        bad = page * PAGE
        if os.fstat(fd).st_ino != inode or position >= bad + PAGE or position + size <= bad:
            return read(fd, size, position)
        if position >= bad:
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, bad - position, position)

    patched.setattr(os, "pread", pread)


def page_of(folder: Path, number: int, base: int) -> int:
    """Returns the number of the page that has a certain batch of a partition."""
    salvage = Salvage(str(folder))
    try:
        batches = salvage.log[number]
        return batches.positions[batches.bases.index(base)] // PAGE
    finally:
        salvage.close()


def test_a_page_that_the_device_cannot_read_does_not_stop_the_repair(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The repair copies the damaged file. Only the unreadable page differs: the copy has zeros in its place."""
    folder = tmp_path / "data"
    with kcore.open(folder, config=SETTINGS) as engine:
        populate(engine)
    number = change(folder, "lines", append_ten)
    page = page_of(folder, number, 6)
    file = folder / "data.mdb"
    damaged = bytearray(file.read_bytes())
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "kcore.log.repair"):
        make_unreadable(file, page, patched)
        ran = run("log", "repair", folder, "--yes", "--format", "json")
    assert ran.status == 0, ran.err
    copy = Path(ran.rows[-1]["copy"], "data.mdb")
    damaged[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    assert copy.read_bytes() == damaged
    (line,) = caplog.messages
    assert line.startswith(f"log repair: the device cannot read {PAGE} bytes of {file}, so the copy {copy} has zeros")
    assert found(run, folder) == []
