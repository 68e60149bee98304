"""The entry point for `spark-submit`. kcore must be installed where Spark runs Python.

spark-submit .../kcore/spark/jobs/submit.py rebuild EXPORT --out STATE
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kcore.errors import KcoreError
from kcore.printable import clean
from kcore.spark.jobs import JOBS, job


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Adds a sub-command for each job."""
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, meaning in JOBS.items():
        job(name).add_arguments(jobs.add_parser(name, help=meaning))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one job and returns the exit status of the process."""
    parser = argparse.ArgumentParser(prog="kcore spark", description="Jobs over event logs.")
    add_jobs(parser)
    options = parser.parse_args(argv)
    try:
        return int(job(options.job).run(options))
    except KcoreError as error:
        print(f"kcore: {clean(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
