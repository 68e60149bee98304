"""Shared fixtures of the Spark tests: the logs of a real broker, a running broker, and one Spark session."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcore.spark.jobs.session import prepare_local_workers
from kcore.testing import ServerProcess
from tests.apache.broker import ApacheKafka
from tests.spark import oracle
from tests.spark.traffic import HISTORY, QUICK_ENDS

TIMEOUT_S = 900
"""Timeout in seconds of tests that use the shared Spark session, unless a test has its own timeout.

It is long, because a timeout during a call of the JVM would make all later tests fail, too.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives tests with the shared Spark session a longer timeout, because Spark's workers may start late on a busy
    machine.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def kafka_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder with the logs of a real broker, copied at several moments:
    moment-N/TOPIC-PARTITION/BASEOFFSET.log.
    """
    return oracle.unpack(tmp_path_factory.mktemp("kafka-logs"))


@pytest.fixture(scope="session")
def kafka_oracle() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Returns the responses of the broker's APIs: moment -> kind -> lines."""
    return oracle.load()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Yields the local session of all tests, sized for a small machine."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime, and there is no `java` here")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    prepare_local_workers()
    sql = pytest.importorskip("pyspark.sql", reason="the extra `spark` is not installed")
    session = (
        sql.SparkSession.builder.master("local[2]")
        .appName("kcore-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # A query over a few rows takes longer to compile than to interpret.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.adaptive.enabled", "false")
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


@pytest.fixture(params=["serve", "kafka"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yields the HOST:PORT of a new server: `kcore serve` or, only with `KCORE_TEST_KAFKA=start`, Apache Kafka."""
    if request.param == "kafka":
        if os.environ.get("KCORE_TEST_KAFKA") != "start":
            pytest.skip("KCORE_TEST_KAFKA=start runs the test against Apache Kafka")
        (tmp_path / "kafka").mkdir()
        # Members stay in their groups while a job uses the processor that their heartbeats need.
        with ApacheKafka(tmp_path / "kafka", {"group.consumer.session.timeout.ms": "45000"}) as broker:
            yield broker.bootstrap
    else:
        settings = {**HISTORY, **QUICK_ENDS, "group.initial.rebalance.delay.ms": 0}
        settings |= {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 2}
        with ServerProcess(tmp_path / "data", {name: str(value) for name, value in settings.items()}) as server:
            yield server.bootstrap
