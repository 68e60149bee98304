"""`kcore offsets apply`: commits the offsets of a restore plan, once the target was looked at again."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from kcore.cli import output, target

COLUMNS = ("group", "topic", "partition", "from", "to", "result", "why")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The action's arguments."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a .json or .csv file of `kcore spark restore-plan`")
    target.add_arguments(parser)
    output.add_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="look, and say what would be done")
    parser.add_argument(
        "--partial", action="store_true", help="set what can be set, even if the target changed under other rows"
    )


def run(options: argparse.Namespace) -> int:
    """Carries a plan out; 1 if any of its rows is not as the plan wants it, be it that the plan itself refuses it."""
    from kcore.spark.restore.apply import apply  # noqa: PLC0415
    from kcore.spark.restore.plan import load  # noqa: PLC0415
    from kcore.spark.restore.target import open_brokers  # noqa: PLC0415

    plan = load(options.plan)
    target.check(options)
    with open_brokers(options.bootstrap, options.data, target.security(options)) as brokers:
        applied = apply(plan, brokers, dry_run=options.dry_run, partial=options.partial)
    rows = [
        (one.row.group, one.row.topic, one.row.partition, one.row.from_offset, one.row.to_offset, one.result, one.why)
        for one in applied
    ]
    output.print_rows(COLUMNS, rows, options.format)
    if options.format == "text":
        print(", ".join(f"{count} {result}" for result, count in sorted(Counter(a.result for a in applied).items())))
    return 0 if all(one.fine for one in applied) else 1
