"""Packages for Spark that are not part of its distribution, downloaded with Maven."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

import pytest

from kcore.demo.spark_cluster import maven_file
from kcore.errors import ConfigError

KAFKA_SOURCE: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:{spark}",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
    "org.scala-lang.modules:scala-parallel-collections_2.13:1.2.0",
)
DELTA: Final = ("io.delta:delta-spark_{minor}_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
ICEBERG: Final = ("org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:1.12.0",)


def packages(names: tuple[str, ...], spark: str | None = None) -> list[Path]:
    """Returns the files of packages for a version of Spark. Skips the test if Maven cannot get them.

    Args:
        names: the packages.
        spark: the version; None: that of the installed Spark.
    """
    pyspark = pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    if shutil.which("mvn") is None:
        pytest.skip("the packages come from Maven, and there is no `mvn` here")
    spark = pyspark.__version__ if spark is None else spark
    found = []
    for name in names:
        group, artifact, version = name.format(spark=spark, minor=spark.rpartition(".")[0]).split(":")
        try:
            found.append(maven_file(group, artifact, version))
        except ConfigError as error:
            pytest.skip(f"there is no {artifact} {version}: {error}")
    return found


def interpreter_with(spark: str, folder: Path) -> str:
    """Returns the path of an interpreter with another version of Spark. Its other packages are those of this
    interpreter.

    Skips the test if pip cannot install that version.

    Args:
        spark: the version, as in a requirement of pip after `pyspark`.
        folder: a new folder for the virtual environment.
    """
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pyspark{spark}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        pytest.skip(f"pip has no pyspark{spark}: {done.stderr[-500:]}")
    (own,) = folder.glob("lib/*/site-packages")
    (own / "other.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    return str(python)
