"""What every job needs before it starts: a Java runtime, a session, and places named on a command line."""

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
    """The argument that says where events come from, as `path`."""
    parser.add_argument("path", metavar="FOLDER", help="an export, a data folder, or a broker's log folder")


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that say where Spark runs."""
    parser.add_argument("--master", help="Spark's master; by default what spark-submit says, else local[*]")


def check_java() -> None:
    """Raises KcoreError, which says what to do, if there is no Java runtime here."""
    if shutil.which("java") is None:
        raise KcoreError(
            "Spark needs a Java runtime, version 17 or newer, and there is no `java` on the path. "
            "Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17"
        )


def prepare_local_workers() -> None:
    """Workers of this machine are this interpreter, not whatever `python3` is here, and have this kcore.

    Spark finds data sources by looking through the folders of the module path: those of an editable install, which
    are not in it, it would miss.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = str(Path(kcore.__file__).parents[1])
    before = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if root not in before:
        os.environ["PYTHONPATH"] = os.pathsep.join([*before, root])


@contextmanager
def session(options: argparse.Namespace, job: str) -> Iterator[SparkSession]:
    """A session for one job, in UTC, stopped behind it.

    Raises:
        KcoreError: there is no Java runtime here, or a task failed: the last line of what it says.
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
        # Pages of Java's frames and Python's: what is wrong stands in the last line.
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise KcoreError(f"the job failed: {said[-1] if said else type(error).__name__}") from error
    finally:
        spark.stop()


def parse_offsets(texts: Sequence[str]) -> dict[tuple[str, int], int]:
    """`TOPIC-PARTITION:OFFSET` as a mapping. KcoreError for anything else."""
    found = {}
    for text in texts:
        place, _, offset = text.rpartition(":")
        topic, _, partition = place.rpartition("-")
        if not topic or not partition.isdigit() or not offset.isdigit():
            raise KcoreError(f"{text!r} is no TOPIC-PARTITION:OFFSET")
        found[topic, int(partition)] = int(offset)
    return found
