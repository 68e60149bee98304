"""`kcore demo`: client libraries share a group while processes die; `--spark`: Spark jobs analyse a server's log."""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
from importlib import metadata
from pathlib import Path

import kcore
from kcore.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("--file", type=Path, help="the text whose words the group counts; default: kcore's README.md")
    parser.add_argument(
        "--postgresql",
        action="store_true",
        help="use a cluster of three nodes over PostgreSQL with a synchronous standby; nodes and the primary are "
        "killed",
    )
    parser.add_argument("--spark", action="store_true", help="generate traffic, and run the Spark jobs on its log")
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="with --spark: run the jobs on a standalone Spark cluster on this machine, over S3",
    )
    parser.add_argument(
        "--jars",
        type=Path,
        metavar="FOLDER",
        help="with --cluster: the folder of hadoop-aws and the AWS SDK; default: Maven's local repository",
    )
    parser.add_argument("--seed", type=int, help="with --spark: the seed of the traffic; default: random")
    parser.add_argument(
        "--seconds",
        type=float,
        default=25.0,
        help="with --spark: duration of the traffic in seconds (default %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="with --spark: the output folder; default: a new folder"
    )


def run(options: argparse.Namespace) -> int:
    """Runs the demonstration. Returns 1 if the clients counted words wrongly, or if an audit or a Spark job failed."""
    if options.spark:
        return _run_spark(options)
    file = own_readme() if options.file is None else options.file
    if not file.is_file():
        raise ConfigError(f"{file} is not a file")
    try:
        from kcore.demo.show import Show  # noqa: PLC0415
        from kcore.demo.story import Story  # noqa: PLC0415

        if options.postgresql:
            from kcore.demo.postgresql_story import PostgresqlStory as Story  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"the demonstration needs {error.name}: pip install 'kcore[cluster,demo]'") from None
    return 0 if Story(file, Show()).run() else 1


def own_readme() -> Path:
    """Returns the path of kcore's README.md in the checkout, or of the installed metadata that contains its text.

    Raises:
        ConfigError: neither file exists.
    """
    readme = Path(kcore.__file__).parents[1] / "README.md"
    if readme.is_file():
        return readme
    with contextlib.suppress(metadata.PackageNotFoundError):
        for path in metadata.files("kcore") or ():
            if path.name == "METADATA":
                return Path(str(path.locate()))
    raise ConfigError("kcore's README.md was not found; use --file FILE")


def _run_spark(options: argparse.Namespace) -> int:
    if not options.seconds > 0:
        raise ConfigError(f"--seconds {options.seconds}: expected more than 0")
    folder = Path(tempfile.mkdtemp(prefix="kcore-demo-spark-")) if options.out is None else options.out
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    try:
        from kcore.demo.cluster_story import run as run_on_cluster  # noqa: PLC0415
        from kcore.demo.spark import run as run_story  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"the demonstration needs {error.name}: pip install 'kcore[demo,spark]'") from None
    if options.cluster:
        return 0 if run_on_cluster(folder, seed, options.seconds, options.jars) else 1
    return 0 if run_story(folder, seed, options.seconds) else 1
