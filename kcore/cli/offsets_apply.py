"""`kcore offsets apply`: commits the offsets of a restore plan after checking the target again."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from kcore.cli import output, target

COLUMNS = ("group", "topic", "partition", "from", "to", "result", "why")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the action's arguments."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a .json or .csv file of `kcore spark restore-plan`")
    target.add_arguments(parser)
    output.add_arguments(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="check the plan, and print the changes without making them"
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="apply the valid rows, even if the committed offsets of other rows have changed since the plan",
    )


def run(options: argparse.Namespace) -> int:
    """Applies a plan. Returns 1 if a row was not applied, for example because the plan marks it as refused."""
    from kcore.spark.restore.apply import apply  # noqa: PLC0415
    from kcore.spark.restore.plan import load  # noqa: PLC0415
    from kcore.spark.restore.target import open_target  # noqa: PLC0415

    plan = load(options.plan)
    target.check(options)
    with open_target(options.bootstrap, options.data, target.security(options)) as node:
        applied = apply(plan, node, dry_run=options.dry_run, partial=options.partial)
    rows = [
        (row.row.group, row.row.topic, row.row.partition, row.row.from_offset, row.row.to_offset, row.result, row.why)
        for row in applied
    ]
    output.print_rows(COLUMNS, rows, options.format)
    if options.format == "text":
        print(", ".join(f"{count} {result}" for result, count in sorted(Counter(a.result for a in applied).items())))
    return 0 if all(row.fine for row in applied) else 1
