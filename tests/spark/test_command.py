"""`kcore spark`: the workers of a local session use the command's own environment."""

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

ROOT = Path(__file__).parents[2]
RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from kcore.cli import main; sys.exit(main())"


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
    arguments = ["spark", "timeline", "events", "--out", "out", "--master", "local[1]"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(ROOT), *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "timeline.html").is_file()
