"""Java's transactional producer, the one that speaks version 2 of transactions (KIP-890)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kcore.testing import ServerProcess
from tests.clients.test_java import classpath

__all__ = ["classpath"]

SOURCE = Path(__file__).with_name("java") / "TransactionsClient.java"


@pytest.mark.clients
def test_java_transactions(classpath: str, tmp_path: Path) -> None:
    """Commit, abort, offsets, fencing, describing; each end has raised the epoch."""
    subprocess.run(["javac", "-cp", classpath, "-d", str(tmp_path), str(SOURCE)], check=True, timeout=120)
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    with ServerProcess(tmp_path / "data") as server:
        program = subprocess.run(
            [*java, "-cp", f"{tmp_path}:{classpath}", "TransactionsClient", server.bootstrap, "java-transactions"],
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
