"""Packages of Spark that its distribution lacks, from Maven."""

from __future__ import annotations

import shutil
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


def packages(names: tuple[str, ...]) -> list[Path]:
    """Returns the files of packages for the installed Spark. Skips the test if Maven does not have them."""
    pyspark = pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    if shutil.which("mvn") is None:
        pytest.skip("the packages come from Maven, and there is no `mvn` here")
    spark = pyspark.__version__
    found = []
    for name in names:
        group, artifact, version = name.format(spark=spark, minor=spark.rpartition(".")[0]).split(":")
        try:
            found.append(maven_file(group, artifact, version))
        except ConfigError as error:
            pytest.skip(f"there is no {artifact} {version}: {error}")
    return found
