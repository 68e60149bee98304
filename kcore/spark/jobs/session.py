"""Prerequisites of every job: a Java runtime, a Spark session, and parsing of command line arguments."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import kcore
from kcore.errors import KcoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_folder_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for the source of events, as `path`."""
    parser.add_argument("path", metavar="FOLDER", help="an export, a data folder, or a broker's log folder")


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for Spark's master."""
    parser.add_argument("--master", help="Spark's master (default: that of spark-submit, else local[*])")


def check_java() -> None:
    """Raises KcoreError with instructions if there is no Java runtime."""
    if shutil.which("java") is None:
        raise KcoreError(
            "Spark needs a Java runtime, version 17 or newer, and there is no `java` on the path. "
            "Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17"
        )


def prepare_local_workers() -> None:
    """Makes local workers use this interpreter and this kcore.

    Without it, workers would run the first `python3` on the path. Spark finds data sources by listing the folders of
    the module path, which does not contain those of an editable install.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = str(Path(kcore.__file__).parents[1])
    before = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if root not in before:
        os.environ["PYTHONPATH"] = os.pathsep.join([*before, root])


@contextmanager
def session(options: argparse.Namespace, job: str) -> Iterator[SparkSession]:
    """Opens a session for one job, in UTC, and stops it afterwards.

    Raises:
        KcoreError: there is no Java runtime, or a task failed; the message is the last line of Spark's.
    """
    check_java()
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName(f"kcore {job}").config("spark.sql.session.timeZone", "UTC")
    if options.master is not None:
        builder = builder.master(options.master)
    spark = builder.getOrCreate()
    try:
        yield spark
    except PySparkException as error:
        # Spark's message has pages of Java and Python frames; its last line is the cause.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise KcoreError(f"the job failed: {lines[-1] if lines else type(error).__name__}") from error
    finally:
        spark.stop()


def parse_offsets(texts: Sequence[str]) -> dict[tuple[str, int], int]:
    """Parses `TOPIC-PARTITION:OFFSET` entries to a mapping. KcoreError for anything else."""
    found = {}
    for text in texts:
        place, _, offset = text.rpartition(":")
        topic, _, partition = place.rpartition("-")
        if not topic or not partition.isdigit() or not offset.isdigit():
            raise KcoreError(f"{text!r} is not TOPIC-PARTITION:OFFSET")
        found[topic, int(partition)] = int(offset)
    return found
