"""`kcore demo`: three client libraries share a group while processes die."""

from __future__ import annotations

import argparse
from pathlib import Path

from kcore.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.add_argument("--file", type=Path, default=Path("README.md"), help="the text whose words are counted")


def run(options: argparse.Namespace) -> int:
    """Runs the demonstration; 1 if a count was wrong."""
    if not options.file.is_file():
        raise ConfigError(f"{options.file} is no file")
    try:
        from kcore.demo.show import Show  # noqa: PLC0415
        from kcore.demo.story import Story  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"the demonstration needs {error.name}: pip install 'kcore[demo]'") from None
    return 0 if Story(options.file, Show()).run() else 1
