"""Shared fixtures of the Spark tests: the logs of a real broker, and one Spark session."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark import oracle


@pytest.fixture(scope="session")
def kafka_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of a real broker: MOMENT/TOPIC-PARTITION/BASEOFFSET.log."""
    return oracle.unpack(tmp_path_factory.mktemp("kafka-logs"))


@pytest.fixture(scope="session")
def kafka_oracle() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The responses of the broker's APIs: moment -> kind -> lines."""
    return oracle.load()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One local session for all tests, sized for a small machine."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime, and there is no `java` here")
    # Workers are processes of their own: this interpreter, and this tree, which need not be installed.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    sql = pytest.importorskip("pyspark.sql", reason="the extra `spark` is not installed")
    session = (
        sql.SparkSession.builder.master("local[2]")
        .appName("kcore-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "512m")
        # A short run is over before optimised code pays.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
