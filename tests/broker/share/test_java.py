"""Java's share consumer in all its modes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kcore.testing import ServerProcess
from tests.clients.java_programs import QUICK, classpath

SOURCE = Path(__file__).with_name("java") / "ShareClient.java"


@pytest.mark.long
@pytest.mark.clients
@pytest.mark.timeout(400)
def test_java_share_consumers_work(tmp_path: Path) -> None:
    """Uses implicit and explicit acknowledgement, renewal, both acquire modes, and four members in one partition."""
    libraries = classpath()
    subprocess.run(["javac", "-cp", libraries, "-d", str(tmp_path), str(SOURCE)], check=True, timeout=120)
    with ServerProcess(tmp_path / "data", stderr=tmp_path / "server.log") as server:
        program = subprocess.run(
            ["java", *QUICK, "-cp", f"{tmp_path}:{libraries}", "ShareClient", server.bootstrap],
            capture_output=True,
            text=True,
            timeout=330,
            check=False,
        )
    assert (program.stdout.splitlines(), program.returncode) == (
        [
            "ok: each record once, and never again",
            "ok: released records come again, rejected ones do not",
            "ok: a lock is renewed",
            "ok: the record limit is exact",
            "ok: members share a partition",
        ],
        0,
    ), program.stderr[-4000:]
    assert (tmp_path / "server.log").read_text() == ""
