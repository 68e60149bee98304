"""Prerequisites of every job: a Java runtime, a Spark session, and parsing of command line arguments."""

from __future__ import annotations

import argparse
import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import kcore
from kcore.config.properties import read_properties
from kcore.errors import ConfigError, KcoreError
from kcore.spark.frames.hadoop import cause_of
from kcore.spark.frames.logs import KafkaCluster, LogSource
from kcore.spark.frames.output import FORMATS, MODES, OVERWRITE, PARQUET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_folder_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the source of events."""
    parser.add_argument(
        "path", nargs="?", metavar="FOLDER", help="an export, a data folder, or a broker's log folder; a path or a URI"
    )
    parser.add_argument(
        "--kafka", metavar="HOST:PORT", help="read this running cluster with Spark's Kafka source instead of a folder"
    )
    parser.add_argument(
        "--kafka-config",
        metavar="FILE",
        help="a properties file with the TLS and SASL settings of Kafka's clients, for --kafka",
    )


def source_of(options: argparse.Namespace) -> LogSource:
    """Returns the source that the arguments name.

    Raises:
        ConfigError: the arguments name no source or two, or `--kafka-config` without `--kafka`.
    """
    if (options.path is None) == (options.kafka is None):
        raise ConfigError("name a folder, or --kafka HOST:PORT of a running cluster")
    if options.kafka is None:
        if options.kafka_config is not None:
            raise ConfigError("--kafka-config needs --kafka HOST:PORT")
        return str(options.path)
    return kafka_cluster(options.kafka, options.kafka_config)


def kafka_cluster(bootstrap: str, file: str | None) -> KafkaCluster:
    """Returns a cluster with the settings of its clients.

    Args:
        bootstrap: HOST:PORT of the cluster.
        file: a properties file with these settings; None: none.

    Raises:
        KcoreError: the file cannot be read.
    """
    properties = {} if file is None else read_properties(Path(file))
    return KafkaCluster(bootstrap, {name: value for name, (value, _) in properties.items()})


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the format of tables, and for the treatment of earlier tables."""
    parser.add_argument(
        "--format", choices=FORMATS, default=PARQUET, help="the format of the tables (default %(default)s)"
    )
    parser.add_argument(
        "--mode",
        choices=MODES,
        default=OVERWRITE,
        help="replace earlier tables, add rows to them, or refuse to write (default %(default)s)",
    )


JVM_SETTINGS: Final = dict.fromkeys(
    ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), "-XX:TieredStopAtLevel=1"
)
"""Settings of jobs in which Python does most of the work. They switch off the JVM's second compiler.

The JVM ends before the compiled code would save time. For ten million events, this compiler takes a quarter of the
job's processor time.
"""


BATCH_SETTINGS: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": "8m"}
"""Settings of all jobs: the maximum size of the batches in which Spark passes files to a Python worker.

The worker has two batches in memory beside its state. A batch of Spark's default size, 64 MB, would contain many files
of an export.
"""


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the session."""
    parser.add_argument("--master", help="Spark's master (default: that of spark-submit, else local[*])")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark (may be repeated)"
    )


def check_java() -> None:
    """Raises KcoreError with instructions if there is no Java runtime."""
    if shutil.which("java") is None:
        raise KcoreError(
            "Spark needs a Java runtime, version 17 or newer, and there is no `java` on the path. "
            "Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17"
        )


def prepare_local_workers() -> None:
    """Makes local workers use this interpreter and this kcore.

    Without this function, workers would run the first `python3` on the path. Spark finds data sources by listing the
    folders of the module path, which lacks the folders of an editable install. `worker_start` shortens the start of the
    workers.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    package = Path(kcore.__file__).parent
    before = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    added = [str(package.parent), str(package / "spark" / "worker_start")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*before, *(place for place in added if place not in before)])


@contextmanager
def session(options: argparse.Namespace, job: str) -> Iterator[SparkSession]:
    """Opens a session for one job, in UTC, and stops it afterwards.

    Raises:
        KcoreError: there is no Java runtime, Spark did not start, or a task failed; the message is the cause.
    """
    check_java()
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName(f"kcore {job}").config("spark.sql.session.timeZone", "UTC")
    for name, value in settings_of(job, options.conf).items():
        builder = builder.config(name, value)
    if options.master is not None:
        builder = builder.master(options.master)
    try:
        spark = builder.getOrCreate()
    except Py4JJavaError as error:
        raise KcoreError(f"Spark did not start (is its master reachable?): {failure_of(error)}") from error
    except PySparkException as error:  # spark-submit has printed the cause
        raise KcoreError(
            f"Spark did not start (are --master and --conf valid?): {failure_of(error)} The cause is above."
        ) from error
    try:
        yield spark
    except (PySparkException, Py4JJavaError) as error:
        raise KcoreError(f"the job failed: {failure_of(error)}") from error
    except OSError as error:  # of a file that the driver writes
        if error.errno != errno.ENOSPC:
            raise
        raise KcoreError(f"the job failed: {with_advice(str(error))}") from error
    finally:
        spark.stop()


CLASS_NAME: Final = re.compile(r"^kcore\.errors\.\w+: ")
"""A pattern for the class name of a kcore error, which precedes the error's text in Python's traceback."""

FULL_DISK: Final = os.strerror(errno.ENOSPC)
"""The text for a full disk in the errors of Java, of pyarrow and of Python."""


def failure_of(error: Exception) -> str:
    """Returns the cause of an error of Spark in one line. Spark's message has pages of Java and Python frames."""
    if hasattr(error, "java_exception"):
        return with_advice(cause_of(error))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return with_advice(CLASS_NAME.sub("", lines[-1]) if lines else type(error).__name__)


def with_advice(cause: str) -> str:
    """Adds advice to the cause of an error if a disk is full."""
    if FULL_DISK not in cause:
        return cause
    return (
        f"{cause}; free space for the output, which needs the new tables beside the earlier ones, or for Spark's "
        "temporary files (--conf spark.local.dir=FOLDER names another folder)"
    )


def settings_of(job: str, texts: Sequence[str]) -> dict[str, str]:
    """Returns the settings of a job's session: its defaults, and `NAME=VALUE` entries, which replace them."""
    defaults = {**BATCH_SETTINGS, **(JVM_SETTINGS if job == "rebuild" else {})}
    return {**defaults, **parse_settings(texts)}


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Parses `NAME=VALUE` entries to a mapping. Raises ConfigError for an entry of another form."""
    settings = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ConfigError(f"{text!r} is not NAME=VALUE")
        settings[name] = value
    return settings


def parse_offsets(texts: Sequence[str]) -> dict[tuple[str, int], int]:
    """Parses `TOPIC-PARTITION:OFFSET` entries to a mapping. Raises KcoreError for an entry of another form."""
    offsets = {}
    for text in texts:
        topic_partition, _, offset = text.rpartition(":")
        topic, _, partition = topic_partition.rpartition("-")
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            raise KcoreError(f"{text!r} is not TOPIC-PARTITION:OFFSET")
        offsets[topic, int(partition)] = int(offset)
    return offsets
