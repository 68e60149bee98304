"""`kcore offsets`: lists committed offsets, start offsets of share groups and lag, and applies restore plans."""

from __future__ import annotations

import argparse
import sys

from kcore.cli import offsets_apply, output, target
from kcore.inspect.groups import all_offset_rows
from kcore.printable import clean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser(
        "list", help="show the committed offset (of a share group: the start offset), the log's end, and the lag"
    )
    target.add_arguments(listing)
    output.add_arguments(listing)
    listing.add_argument("--group", action="append", default=[], help="a group (may be repeated); default: all")
    listing.set_defaults(run=_list)
    applying = actions.add_parser("apply", help="commit the offsets of a restore plan")
    offsets_apply.add_arguments(applying)
    applying.set_defaults(run=offsets_apply.run)


def run(options: argparse.Namespace) -> int:
    """Runs the action that the command line names."""
    return int(options.run(options))


def _list(options: argparse.Namespace) -> int:
    """Prints the offsets. Returns 1 if a requested group does not exist."""
    with target.open_target(options) as node:
        rows = all_offset_rows(node, options.group)
        missing = set(options.group) - {row.group for row in rows}
        if missing:
            missing -= {group.group_id for group in node.groups.list()}
    columns = ("group", "topic", "partition", "current_offset", "log_end_offset", "lag", "metadata")
    output.print_rows(columns, rows, options.format)
    sys.stdout.flush()
    for group_id in sorted(missing):
        print(f"kcore: group '{clean(group_id)}' does not exist", file=sys.stderr)
    return 1 if missing else 0
