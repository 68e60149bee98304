"""`kcore log`: dumps, verifies, repairs, copies and compacts the event log of a folder."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import Any

from kcore.cli import log_compact, log_copy, log_repair, log_verify, output, target
from kcore.cluster.urls import is_store_url
from kcore.inspect import Event, Selection, cluster_events, folder_events, server_events
from kcore.printable import clean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    dump = actions.add_parser("dump", help="print decoded records, oldest first")
    target.add_arguments(dump, f"{target.FOLDER_HELP}, or the URL of a cluster's store")
    output.add_arguments(dump)
    dump.add_argument("--topic", action="append", default=[], help="a topic (may be repeated); default: all")
    dump.add_argument("--partition", type=int, action="append", default=[], help="a partition (may be repeated)")
    dump.add_argument(
        "--from", type=int, dest="from_offset", metavar="OFFSET", default=0, help="the first offset (default 0)"
    )
    dump.add_argument("--to", type=int, dest="to_offset", metavar="OFFSET", help="the offset before which to stop")
    dump.add_argument("--group", help="only records about this group")
    dump.set_defaults(run=_dump)
    for name, module, summary in (
        ("verify", log_verify, "report damage; exit with status 1 if there is any"),
        ("repair", log_repair, "repair a damaged folder, and list the lost records"),
        ("copy", log_copy, "copy a folder, even while a server has it open"),
        ("compact", log_compact, "shrink the file of a folder"),
    ):
        action = actions.add_parser(name, help=summary)
        module.add_arguments(action)
        action.set_defaults(run=module.run)


def run(options: argparse.Namespace) -> int:
    """Runs the action that the command line names."""
    return int(options.run(options))


def _dump(options: argparse.Namespace) -> int:
    output.check_offsets(options.from_offset, options.to_offset)
    selection = Selection(tuple(options.topic), tuple(options.partition), options.from_offset, options.to_offset)
    if options.data is not None and options.bootstrap is None and is_store_url(options.data):
        _print(options, cluster_events(options.data, selection))
        return 0
    target.check(options)
    if options.data is not None:  # read without an engine, which might fail to load the log
        events = folder_events(options.data, selection)
        _print(options, events)
    else:
        with target.open_target(options) as node:
            _print(options, server_events(node, selection))
    return 0


def _print(options: argparse.Namespace, events: Any) -> None:
    for event in events:
        if options.group is None or event.concerns(options.group):
            print(json.dumps(event._asdict()) if options.format == "json" else clean(as_line(event)))


def as_line(event: Event) -> str:
    """Formats one event as a line of text."""
    when = _when(event.timestamp_ms)
    key = "" if event.key is None else f" {_short(event.key)}"
    transaction = "" if event.producer_id < 0 or event.type == "marker" else f" (transaction of {event.producer_id})"
    position = f"{event.topic}-{event.partition}@{event.offset}"
    return f"{when} {position} {event.type}{key} {_short(event.value)}{transaction}"


def _when(timestamp_ms: int) -> str:
    """Formats a time in UTC. A timestamp beyond the range of dates, which a client may have written, becomes a
    number.
    """
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6]
    except (OverflowError, OSError, ValueError):
        return f"{timestamp_ms}ms"


def _short(value: Any) -> str:
    if value is None:
        return "<deleted>"
    if isinstance(value, dict):
        return " ".join(f"{name}={_short_value(item)}" for name, item in value.items() if item not in (None, "", []))
    return repr(value)


def _short_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + _short(value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_short_value(item) for item in value) + "]"
    return str(value)
