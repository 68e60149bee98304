"""`kcore log compact`: returns unused space of a data folder to the file system."""

from __future__ import annotations

import argparse

from kcore.cli import output, target
from kcore.log import compact
from kcore.log.reserve import with_reserve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the action's arguments."""
    parser.add_argument(
        "data", metavar="DIR", help="a data folder that no server has open, on a disk with space for a copy"
    )
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Shrinks the folder's file by copying it without its free pages.

    Deletions leave free pages in the file. A running node reuses these pages, but never returns them to the file
    system. This command removes no records: the running node compacts topics by key.

    Raises:
        DataFolderError: the folder cannot be opened, for example because a server has it open, or it is damaged.
        LogError: the copy does not fit on the disk; the folder is unchanged.
    """
    target.require_folder(options.data, "the database's own tools free its space")
    before, after = with_reserve(options.data, lambda: compact(options.data))
    output.print_rows(("bytes_before", "bytes_after"), [(before, after)], options.format)
    return 0
