"""`kcore spark`: runs jobs over event logs in a local or cluster Spark session."""

from __future__ import annotations

import argparse

from kcore.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments: a sub-command for each job."""
    try:
        from kcore.spark.jobs.submit import add_jobs  # noqa: PLC0415

        add_jobs(parser)
    except ImportError as error:
        raise _missing(error) from error


def _missing(error: ImportError) -> ConfigError:
    return ConfigError(f"jobs need the extra `spark` (pip install kcore[spark]): {error}")


def run(options: argparse.Namespace) -> int:
    """Runs the Spark job that the command line names."""
    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError as error:
        raise _missing(error) from error
    from kcore.spark.jobs import job  # noqa: PLC0415
    from kcore.spark.jobs.session import prepare_local_workers  # noqa: PLC0415

    if options.master is None:
        options.master = "local[*]"
    if options.master.startswith("local"):
        prepare_local_workers()
    return int(job(options.job).run(options))
