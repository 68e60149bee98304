"""A disk that is really full, under a node of its own process: refused work leaves nothing, and room brings it back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BALLAST_BYTES = 1 << 20


def check(folder: Path, how: str) -> None:
    """Runs a node until its disk refuses, and again when there is room; it says itself what was wrong."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.full_disk", str(folder), how],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"status {done.returncode}\n{done.stderr[-4000:]}"
    assert "refused" in done.stdout
    for line in done.stdout.splitlines():
        if line.startswith("a start was refused: "):
            assert "data.mdb: opening the log: no space left on the device" in line


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB, a third of which can be given back."""
    place = tmp_path / "volume"
    place.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root may mount a small volume; the limit on the file's size is tested by everybody")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], check=False)
    if done.returncode:
        pytest.skip("this container may not mount")
    try:
        (place / "ballast").write_bytes(bytes(BALLAST_BYTES))
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    check(tmp_path / "data", "limit")


def test_a_full_volume(small_volume: Path) -> None:
    check(small_volume / "data", "volume")
