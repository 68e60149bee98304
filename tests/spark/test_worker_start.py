"""The start of local Spark workers: they import the installed pyspark package, not the archive of pyspark that Spark
contains.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyspark

import kcore
from kcore.spark.jobs.session import prepare_local_workers

ARCHIVES = sorted(Path(pyspark.__file__).parent.glob("python/lib/*.zip"))
SHOW = "import json, pyspark, sys; print(json.dumps([pyspark.__file__, sys.path]))"


def started(folders: list[str]) -> tuple[str, list[str], str]:
    """Starts a Python process. Returns the path of the pyspark that it imports, `sys.path`, and the earlier output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    *printed, last = done.stdout.splitlines()
    location, module_path = json.loads(last)
    return location, module_path, "\n".join(printed)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the PYTHONPATH entries of workers."""
    monkeypatch.setenv("PYTHONPATH", "")
    prepare_local_workers()
    return os.environ["PYTHONPATH"].split(os.pathsep)


def test_a_worker_uses_the_installed_pyspark_and_keeps_the_archives(prepared: list[str]) -> None:
    archives = [str(path) for path in ARCHIVES]
    assert len(archives) == 2
    before, _, _ = started(archives)
    location, module_path, _ = started([*archives, *prepared])
    assert before.startswith(archives[1])
    assert location == pyspark.__file__
    assert module_path[-2:] == archives


def test_a_worker_has_the_interpreter_and_the_modules_of_the_command(
    prepared: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not depend on the first `python3` on the path, or on the working directory."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # has no Python
    prepare_local_workers()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(prepared)}
    program = "import kcore, sys; print(kcore.__file__, sys.path)"
    command = [os.environ["PYSPARK_PYTHON"], "-S", "-c", program]  # -S: the folders of PYTHONPATH must be sufficient
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert command[0] == sys.executable
    folder, _, module_path = done.stdout.partition(" ")
    assert folder == kcore.__file__
    # Spark looks for the package of kcore's data sources in these folders.
    assert str(Path(kcore.__file__).parents[1]) in module_path


def test_the_archives_of_another_spark_stay_in_front(prepared: list[str], tmp_path: Path) -> None:
    """SPARK_HOME belongs to another Spark, which has only archives of pyspark and no installed package.

    The archives keep precedence, because their version matches the JVM of SPARK_HOME.
    """
    lib = tmp_path / "pyspark" / "python" / "lib"
    lib.mkdir(parents=True)
    for path in ARCHIVES:
        (lib / path.name).symlink_to(path)
    archives = [str(lib / path.name) for path in ARCHIVES]
    location, module_path, _ = started([*archives, *prepared])
    assert location.startswith(archives[1])
    assert module_path[1:3] == archives


def test_the_other_sitecustomize_runs_too(prepared: list[str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the other one')\n")
    _, _, printed = started([*prepared, str(tmp_path)])
    assert printed == "the other one"
