"""`kcore demo`: three client libraries share a group while processes die; with `--spark`, a log's history is told."""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from kcore.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.add_argument("--file", type=Path, default=Path("README.md"), help="the text whose words are counted")
    parser.add_argument("--spark", action="store_true", help="instead: make a history, and tell it with the Spark jobs")
    parser.add_argument("--seed", type=int, help="with --spark: the seed of the traffic; by default a new one")
    parser.add_argument("--seconds", type=float, default=25.0, help="with --spark: how long it lasts (%(default)s)")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="with --spark: where everything goes; else a new one"
    )


def run(options: argparse.Namespace) -> int:
    """Runs the demonstration; 1 if a count was wrong, or a job failed."""
    if options.spark:
        return _run_spark(options)
    if not options.file.is_file():
        raise ConfigError(f"{options.file} is no file")
    try:
        from kcore.demo.show import Show  # noqa: PLC0415
        from kcore.demo.story import Story  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"the demonstration needs {error.name}: pip install 'kcore[demo]'") from None
    return 0 if Story(options.file, Show()).run() else 1


def _run_spark(options: argparse.Namespace) -> int:
    if not options.seconds > 0:
        raise ConfigError(f"--seconds {options.seconds}: expected more than 0")
    folder = Path(tempfile.mkdtemp(prefix="kcore-demo-spark-")) if options.out is None else options.out
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    try:
        from kcore.demo.spark import run as run_story  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"the demonstration needs {error.name}: pip install 'kcore[demo,spark]'") from None
    return 0 if run_story(folder, seed, options.seconds) else 1
