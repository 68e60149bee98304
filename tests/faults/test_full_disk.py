"""A node in its own process on a full disk: refused writes leave nothing behind, and the node recovers once there is
space.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BALLAST_BYTES = 1 << 20


def run(folder: Path, how: str) -> tuple[int, list[str], list[str], str]:
    """Runs a node until its disk is full, and again after space was freed. The program checks its own state.

    Returns:
        The exit status, the lines about refused work, the lines about a refused start, and the end of stderr.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.full_disk", str(folder), how],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    starts = [line for line in lines if line.startswith("a start was refused: ")]
    return done.returncode, [line for line in lines if "refused" in line], starts, done.stderr[-4000:]


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """Mounts a file system of 3 MiB, a third of which a test can free."""
    volume = tmp_path / "volume"
    volume.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root may mount a small volume; the limit on the file's size is tested by everybody")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(volume)], check=False)
    if done.returncode:
        pytest.skip("this container may not mount")
    try:
        (volume / "ballast").write_bytes(bytes(BALLAST_BYTES))
        yield volume
    finally:
        subprocess.run(["umount", str(volume)], check=True)


def test_a_limited_file_size_fails_writes_and_loses_nothing(tmp_path: Path) -> None:
    status, refused, starts, errors = run(tmp_path / "data", "limit")
    assert (status, bool(refused)) == (0, True), errors
    assert all("data.mdb: opening the log: no space left on the device" in line for line in starts)


def test_a_full_volume_fails_writes_and_loses_nothing(small_volume: Path) -> None:
    status, refused, starts, errors = run(small_volume / "data", "volume")
    assert (status, bool(refused)) == (0, True), errors
    assert all("data.mdb: opening the log: no space left on the device" in line for line in starts)
