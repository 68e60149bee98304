"""Java's clients (kafka-clients): a small program, compiled here, that produces, shares a group and administrates."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("java")
CACHE = Path(__file__).parents[2] / "build" / "java-clients"


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the compiled program and its libraries are; the libraries are kept for the next run."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on this machine")
    libraries = CACHE / hashlib.sha256((SOURCE / "pom.xml").read_bytes()).hexdigest()[:12]
    if not libraries.exists():
        fresh = CACHE / f"fresh-{os.getpid()}"
        command = ["mvn", "-q", "-B", "-f", str(SOURCE / "pom.xml"), "dependency:copy-dependencies"]
        maven = subprocess.run(
            [*command, f"-DoutputDirectory={fresh}"], capture_output=True, text=True, timeout=150, check=False
        )
        if maven.returncode != 0 or not any(fresh.glob("kafka-clients-*.jar")):
            pytest.skip(f"Maven does not get kafka-clients: {maven.stdout[-300:]}{maven.stderr[-300:]}")
        with contextlib.suppress(OSError):  # another run was faster
            fresh.rename(libraries)
    jars = f"{libraries}/*"
    classes = tmp_path_factory.mktemp("classes")
    subprocess.run(
        ["javac", "-cp", jars, "-d", str(classes), str(SOURCE / "KafkaClient.java")], check=True, timeout=120
    )
    return f"{classes}:{jars}"


def test_java_clients(classpath: str, bootstrap: str, name: str) -> None:
    program = subprocess.run(
        ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classpath, "KafkaClient", bootstrap, name, name],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (program.stdout.splitlines(), program.returncode) == (
        [
            "ok: topic created",
            "ok: records produced in order",
            "ok: two members share the partitions",
            "ok: every record arrived whole",
            "ok: the one who stays takes over",
            "ok: offsets committed",
            "ok: seek by time",
            "ok: group described",
            "ok: a group with members is not deleted",
            "ok: offsets altered",
            "ok: offsets and group deleted",
            "ok: topic administrated and deleted",
        ],
        0,
    ), program.stderr
