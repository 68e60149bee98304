"""`kcore spark`: jobs over event logs, in a Spark session of this machine or of a cluster."""

from __future__ import annotations

import argparse

from kcore.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    from kcore.spark.jobs import add_rebuild_arguments  # noqa: PLC0415

    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    add_rebuild_arguments(jobs.add_parser("rebuild", help="the state of coordinators as tables, as of any moment"))


def run(options: argparse.Namespace) -> int:
    """Runs a job."""
    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError as error:
        raise ConfigError(f"jobs need the extra `spark` (pip install kcore[spark]): {error}") from error
    from kcore.spark.jobs import run_rebuild  # noqa: PLC0415

    if options.master is None:
        options.master = "local[*]"
    return run_rebuild(options)
