"""Java's transactional producer, which uses version 2 of transactions (KIP-890)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kcore.testing import ServerProcess
from tests.clients.java_programs import QUICK, classpath

SOURCE = Path(__file__).with_name("java") / "TransactionsClient.java"


@pytest.mark.clients
def test_javas_transactional_producer_works(tmp_path: Path) -> None:
    """Covers commit, abort, offsets, fencing and descriptions. Each end of a transaction increases the epoch."""
    libraries = classpath()
    subprocess.run(["javac", "-cp", libraries, "-d", str(tmp_path), str(SOURCE)], check=True, timeout=120)
    java = ["java", *QUICK, "-cp", f"{tmp_path}:{libraries}"]
    with ServerProcess(tmp_path / "data") as server:
        program = subprocess.run(
            [*java, "TransactionsClient", server.bootstrap, "java-transactions"],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    assert (program.stdout.splitlines(), program.returncode) == (
        [
            "ok: commits are seen, aborts are not",
            "ok: offsets are committed with it",
            "ok: described while it is open",
            "ok: listed",
            "ok: its producer is described",
            "ok: the old instance is fenced",
            "ok: the new one goes on",
        ],
        0,
    ), program.stderr
