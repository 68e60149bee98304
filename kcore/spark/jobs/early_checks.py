"""Checks of a job's arguments that need no Spark session.

If a check fails, the command ends at once, without the start of a JVM and its messages. The functions of the jobs
repeat the checks, because programs can call these functions directly, without a command line.
"""

from __future__ import annotations

import argparse
import os
from typing import Final

from kcore.config.paths import check_path
from kcore.errors import ConfigError
from kcore.spark.events.sources import open_source
from kcore.spark.export.storage import LocalStorage, is_uri
from kcore.spark.frames.checkpoints import local_checkpoints
from kcore.spark.frames.output import ICEBERG, OVERWRITE, check_apart, check_checkpoints, check_new
from kcore.spark.jobs.session import source_of

GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""An environment variable that `spark-submit` sets.

If it is set, paths may be on another file system. The option `--master` of `spark-submit` determines the file system,
and this module does not know that option.
"""


def check_places(options: argparse.Namespace, done: str | None = None) -> None:
    """Checks the source and the output of a job.

    Args:
        options: the arguments of the command line.
        done: the name of the file that shows that an output is complete; None: the output is no folder of tables.

    Raises:
        KcoreError: there are no logs, the path of the output is empty, the output is a file or inside the source, or
            there is an earlier output and the mode is `error`.
    """
    source = source_of(options)
    check_path("--out", options.out)
    of_folder = done is not None and options.format != ICEBERG
    if of_folder and isinstance(source, str):
        check_apart(source, options.out)
    if not _is_local(options):
        return
    if isinstance(source, str) and not is_uri(source):
        open_source(source).close()
    if done is not None and of_folder and not is_uri(options.out):
        storage = LocalStorage(options.out)
        storage.check_folder()
        check_new(storage, options.out, getattr(options, "mode", OVERWRITE), done)


def check_rebuild(options: argparse.Namespace) -> None:
    """Checks the checkpoints of a rebuild.

    Raises:
        KcoreError: the output cannot have checkpoints, or the run cannot continue from the earlier checkpoints.
    """
    if options.checkpoint:
        check_checkpoints(options.format, options.mode)
    if options.since is None:
        return
    if options.kafka is not None:
        raise ConfigError("--since does not work with --kafka: export the cluster, and run with --since on the export")
    if _is_local(options) and not is_uri(options.since) and not is_uri(options.path):
        local_checkpoints(options.since)


def _is_local(options: argparse.Namespace) -> bool:
    """Returns True if the job certainly resolves paths on this machine."""
    return GATEWAY not in os.environ and options.master is not None and options.master.startswith("local")
