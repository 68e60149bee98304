"""`kcore spark`: error lines of failed jobs, and the interpreter and modules of the workers in a local session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from kcore.spark.events.sources import open_source
from kcore.spark.export.exporter import export
from kcore.spark.jobs.session import failure_of

ROOT = Path(__file__).parents[2]
RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from kcore.cli import main; sys.exit(main())"


class JavaError(Exception):
    """An error of Java, as py4j raises it."""

    def __init__(self, *lines: str) -> None:
        self.java_exception = self
        self._lines = lines

    def getCause(self) -> JavaError | None:  # the name in Java
        return JavaError(*self._lines[1:]).java_exception if self._lines[1:] else None

    def toString(self) -> str:
        return f"{self._lines[0]}\n\tat Frame.run"


def test_the_cause_of_a_failed_job_is_one_line() -> None:
    missing = JavaError(
        "SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND]", "ClassNotFoundException: delta.DefaultSource"
    )
    package = "io.delta:delta-spark_SPARK_2.13:VERSION, with the version of Spark, and Delta's settings"
    assert (
        failure_of(missing) == f"ClassNotFoundException: delta.DefaultSource; add --conf spark.jars.packages={package}"
    )
    assert failure_of(JavaError("IllegalStateException: stopped")) == "IllegalStateException: stopped"
    assert failure_of(ValueError("Traceback:\n  line 1\nKcoreError: the cause\n\n")) == "KcoreError: the cause"
    assert failure_of(ValueError("Traceback:\nkcore.errors.ConfigError: the cause\n")) == "the cause"
    assert failure_of(ValueError()) == "ValueError"


def test_a_full_disk_has_advice() -> None:
    """Covers errors of the JVM, of a Python worker, and of the command itself."""
    of_java = failure_of(JavaError("SparkException: Job aborted", "IOException: No space left on device"))
    assert of_java.startswith("IOException: No space left on device; free space for the output")
    of_worker = failure_of(
        ValueError("File x\nOSError: [Errno 28] Error writing bytes. Detail: No space left on device")
    )
    assert of_worker.endswith("temporary files (--conf spark.local.dir=FOLDER names another folder)")
    assert "free space" not in failure_of(ValueError("OSError: [Errno 13] Permission denied"))


@pytest.mark.long
@pytest.mark.spark
def test_local_workers_have_the_interpreter_and_the_modules_of_the_command(kafka_logs: Path, tmp_path: Path) -> None:
    """The workers do not depend on the first `python3` on the path, the working directory, or PYTHONPATH."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime, and there is no `java` here")
    with open_source(kafka_logs / "moment-1" / "__transaction_state-0") as source:
        export(source, tmp_path / "events")
    decoy = tmp_path / "bin" / "python3"
    decoy.parent.mkdir()
    decoy.write_text("#!/bin/sh\nexit 17\n")
    decoy.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "PYTHONPATH"))}
    environment["PATH"] = f"{decoy.parent}{os.pathsep}{environment['PATH']}"
    arguments = ["spark", "audit", "events", "--out", "out", "--master", "local[1]"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(ROOT), *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "findings").is_dir()
