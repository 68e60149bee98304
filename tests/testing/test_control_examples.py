"""The examples in other languages (examples/control): their tests pass against `kcore serve --control`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "control"
LIMIT_S = 300  # the first run downloads libraries

pytestmark = pytest.mark.long


@pytest.fixture
def addresses() -> Iterator[dict[str, str]]:
    """Runs a controlled broker. Yields the environment variables that the examples read."""
    command = [sys.executable, "-m", "kcore", "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        control = process.stdout.readline().removeprefix("kcore: control at ").strip()
        bootstrap = process.stdout.readline().removeprefix("kcore: PLAINTEXT listening on ").strip()
        try:
            yield {"KCORE_CONTROL": control, "KCORE_BOOTSTRAP": bootstrap}
        finally:
            process.terminate()


def run(name: str, folder: Path, addresses: dict[str, str], *commands: list[str]) -> str:
    """Runs commands in a copy of an example, and returns their output. Skips the test if a tool is missing."""
    missing = [command[0] for command in commands if shutil.which(command[0]) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on this machine")
    copy = folder / name
    shutil.copytree(EXAMPLES / name, copy, ignore=shutil.ignore_patterns("target", "node_modules"))
    output = ""
    for command in commands:
        done = subprocess.run(
            command,
            cwd=copy,
            env={**os.environ, **addresses},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        output += done.stdout
        assert done.returncode == 0, output
    return output


def test_the_junit_example_passes(tmp_path: Path, addresses: dict[str, str]) -> None:
    output = run("junit", tmp_path, addresses, ["mvn", "-B", "test"])
    assert "Tests run: 2, Failures: 0, Errors: 0, Skipped: 0" in output


def test_the_go_example_passes(tmp_path: Path, addresses: dict[str, str]) -> None:
    output = run("go", tmp_path, addresses, ["go", "test", "-count=1", "-v", "./..."])
    assert output.count("--- PASS: ") == 2


def test_the_node_example_passes(tmp_path: Path, addresses: dict[str, str]) -> None:
    install = ["npm", "ci", "--no-audit", "--no-fund"]
    output = run("node", tmp_path, addresses, install, ["node", "--test", "--test-reporter=tap"])
    assert output.count("\n# pass 2\n") == 1
