"""A user's program passes mypy --strict, and a mistake in it is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def mypy(program: Path, cache: Path) -> str:
    options = ["--strict", "--no-error-summary", "--follow-imports=silent", "--cache-dir", str(cache)]
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "/dev/null", *options, str(program)],
        cwd=ROOT,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def test_a_users_program_is_typed(tmp_path: Path) -> None:
    program = Path(__file__).with_name("typed_program.py")
    assert mypy(program, tmp_path) == ""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(program.read_text() + '\n\nkcore.open().group("g").commit({"jobs": 1})\nkcore.open().topcis\n')
    found = mypy(wrong, tmp_path)
    assert 'incompatible type "dict[str, int]"' in found
    assert 'has no attribute "topcis"' in found
