"""`kcore spark`: jobs over event logs, in a Spark session of this machine or of a cluster."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import kcore
from kcore.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments: a sub-command for each job."""
    from kcore.spark.jobs.submit import add_jobs  # noqa: PLC0415

    add_jobs(parser)


def run(options: argparse.Namespace) -> int:
    """Runs a job."""
    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError as error:
        raise ConfigError(f"jobs need the extra `spark` (pip install kcore[spark]): {error}") from error
    from kcore.spark.jobs import job  # noqa: PLC0415

    if options.master is None:
        options.master = "local[*]"
    if options.master.startswith("local"):
        _prepare_local_workers()
    return int(job(options.job).run(options))


def _prepare_local_workers() -> None:
    """Workers of this machine are this interpreter, not whatever `python3` is here, and have this kcore.

    Spark finds data sources by looking through the folders of the module path: those of an editable install, which
    are not in it, it would miss.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = str(Path(kcore.__file__).parents[1])
    before = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if root not in before:
        os.environ["PYTHONPATH"] = os.pathsep.join([*before, root])
