"""The Go program of the tests, built once for each version of its source."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.java_programs import digest, made_once

SOURCE = Path(__file__).with_name("go")


@functools.cache
def program() -> Path:
    """Returns the path of the executable file.

    Skips the test if Go is missing or cannot download the modules.
    """
    if shutil.which("go") is None:
        pytest.skip("no go on this machine")
    files = [SOURCE / name for name in ("go.mod", "go.sum", "main.go")]
    return made_once(f"go-{digest(*files)}", _build) / "clients"


def _build(folder: Path) -> None:
    download = subprocess.run(
        ["go", "mod", "download"], cwd=SOURCE, capture_output=True, text=True, timeout=150, check=False
    )
    if download.returncode != 0:
        pytest.skip(f"Go does not get franz-go: {download.stderr[-300:]}")
    subprocess.run(["go", "build", "-o", str(folder / "clients"), "."], cwd=SOURCE, check=True, timeout=300)
