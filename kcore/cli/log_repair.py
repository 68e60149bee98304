"""`kcore log repair`: makes a damaged data folder usable again and lists the losses."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from kcore.cli import output, target
from kcore.cli.log_verify import verify
from kcore.config.paths import check_path
from kcore.errors import KcoreError
from kcore.inspect.damage import FolderRules, contents
from kcore.log import Finding
from kcore.log.repair import repair_folder
from kcore.log.repair_partition import Loss

COLUMNS = ("partition", "from_offset", "to_offset", "records", "loss", "detail", "contents")
SHOWN_IN_TEXT = 5
SHOWN_IN_JSON = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the action's arguments."""
    parser.add_argument("data", metavar="DIR", help="a data folder that no server has open")
    parser.add_argument("--dry-run", action="store_true", help="list the losses without changing anything")
    parser.add_argument("--yes", action="store_true", help="change the folder without confirmation")
    parser.add_argument("--copy-to", metavar="PATH", help="a new folder for the damaged file; default: DIR.damaged-1")
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Repairs a folder.

    Returns:
        0 if the folder is sound or was repaired; 1 if a dry run found damage, or the repair was not confirmed.

    Raises:
        DataFolderError: the folder is in use, or is not a kcore folder.
        LogError: the disk is full, or the repair failed; the folder is unchanged.
    """
    target.require_folder(options.data, "restore a backup of the database")
    if options.copy_to is not None:
        check_path("--copy-to", options.copy_to)
    rules: list[FolderRules] = []

    def make_rules() -> FolderRules:
        rules.append(FolderRules())
        return rules[-1]

    def confirm(losses: list[Loss]) -> bool:
        _print(losses, rules[-1], options.format)
        return options.yes or _prompt(len(losses))

    try:
        result = repair_folder(
            options.data, make_rules, check=_check, copy_to=options.copy_to, dry_run=options.dry_run, confirm=confirm
        )
    finally:
        for each in rules:
            each.close()
    if options.dry_run:
        _print(result.losses, rules[-1], options.format)
    return _conclude(options, changed=result.changed, copy=result.copy, losses=len(result.losses))


def _check(path: str) -> Sequence[Finding]:
    return verify(path)[0]


def _prompt(losses: int) -> bool:
    if not sys.stdin.isatty():
        raise KcoreError("the repair was not confirmed: use --yes to repair, or --dry-run to only list the losses")
    lost = "1 loss" if losses == 1 else f"{losses} losses"
    print(f"Repair the folder and accept {lost}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print(losses: list[Loss], rules: FolderRules, form: str) -> None:
    rows = []
    for loss in losses:
        key = loss.partition
        name = None if key is None else f"{rules.names.get(key.topic_id, key.topic_id.hex())}-{key.partition}"
        topic = None if key is None else rules.names.get(key.topic_id)
        lost: object = contents(loss, topic, SHOWN_IN_JSON if form == "json" else SHOWN_IN_TEXT)
        if form != "json":
            lost = "; ".join(contents(loss, topic, SHOWN_IN_TEXT)) or None
        rows.append((name, loss.from_offset, loss.to_offset, loss.records, loss.kind, loss.detail, lost))
    if rows:
        output.print_rows(COLUMNS, rows, form)


def _conclude(options: argparse.Namespace, *, changed: bool, copy: str | None, losses: int) -> int:
    """Prints the result and returns the exit status."""
    if options.format == "json":
        print(json.dumps({"damaged": changed, "repaired": copy is not None, "losses": losses, "copy": copy}))
    elif not changed:
        print("the folder needs no repair")
    elif copy is not None:
        print(f"repaired; the damaged file is kept in {copy}")
    else:
        print("nothing was changed")
    return 0 if copy is not None or not changed else 1
