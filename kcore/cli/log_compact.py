"""`kcore log compact`: give the space of a data folder back to the file system."""

from __future__ import annotations

import argparse

from kcore.cli import output
from kcore.log import compact


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The action's arguments."""
    parser.add_argument("data", metavar="DIR", help="a data folder that no server has open, with room for a copy")
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Shrinks the folder's file: what was deleted leaves free pages, which a running node uses again but never returns.

    Records are not touched: compaction by key is what a node does by itself.

    Raises:
        DataFolderError: the folder is refused.
        LogError: there is no room for the copy; the folder is as it was.
    """
    before, after = compact(options.data)
    output.print_rows(("bytes_before", "bytes_after"), [(before, after)], options.format)
    return 0
