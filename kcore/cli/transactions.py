"""`kcore transactions`: lists and describes transactions, and finds and aborts hanging ones."""

from __future__ import annotations

import argparse
import time
from typing import Any

from kcore.cli import output, target
from kcore.errors import ConfigError, KcoreError
from kcore.inspect import Target
from kcore.inspect.transactions import (
    ENDING,
    OpenTransaction,
    abort_transaction,
    all_partitions,
    describe_transactions,
    hanging_transactions,
    list_transactions,
    open_transactions,
    stable_offsets,
)
from kcore.protocol.error_codes import code_name

HANGING_MINUTES = 15
"""The broker's default of transaction.max.timeout.ms: a live coordinator ends every transaction by then."""

OPEN_COLUMNS = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "start_offset",
    "idle_s",
    "last_stable_offset",
    "held_back",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="every transactional id with its state")
    listing.add_argument("--state", action="append", default=[], help="only ids in this state (may be repeated)")
    listing.add_argument("--producer-id", action="append", default=[], type=int, help="only this producer's ids")
    listing.add_argument(
        "--longer-than-ms", type=int, default=-1, metavar="MS", help="only transactions that have been open for longer"
    )
    listing.add_argument("--pattern", metavar="RE2", help="only ids that match completely")
    describing = actions.add_parser(
        "describe", help="one row per partition of a transaction, with the offsets that it holds back"
    )
    describing.add_argument(
        "--id", action="append", default=[], help="a transactional id (may be repeated); default: all"
    )
    hanging = actions.add_parser("find-hanging", help="open transactions that no coordinator will ever end")
    aborting = actions.add_parser("abort", help="abort a hanging transaction in one partition by writing its marker")
    for action in (hanging, aborting):
        action.add_argument("--topic", required=action is aborting, help="the topic")
        action.add_argument("--partition", type=int, required=action is aborting, help="the partition")
    hanging.add_argument(
        "--idle-minutes",
        type=float,
        default=HANGING_MINUTES,
        help=f"only transactions whose producer has not written for this time (default: {HANGING_MINUTES})",
    )
    aborting.add_argument(
        "--start-offset", type=int, required=True, help="the first offset of the transaction, as shown by find-hanging"
    )
    for action in (listing, describing, hanging, aborting):
        target.add_arguments(action)
        output.add_arguments(action)


def run(options: argparse.Namespace) -> int:
    """Lists, describes, finds or aborts transactions."""
    if getattr(options, "partition", None) is not None and options.topic is None:
        raise ConfigError("--partition needs --topic")
    with target.open_target(options) as server:
        if options.action == "list":
            found = list_transactions(
                server,
                states=options.state,
                producer_ids=options.producer_id,
                duration_ms=options.longer_than_ms,
                pattern=options.pattern,
            )
            rows = [(state.transactional_id, state.producer_id, state.transaction_state) for state in found]
            output.print_rows(("transactional_id", "producer_id", "state"), rows, options.format)
            return 0
        if options.action == "describe":
            wanted = options.id or [state.transactional_id for state in list_transactions(server)]
            return describe(server, wanted, options.format)
        if options.action == "find-hanging":
            return find_hanging(server, options)
        return abort(server, options)


def describe(server: Target, transactional_ids: list[str], form: str) -> int:
    """Prints one row per partition of each transaction, or one per id without any. Returns 1 if an id is unknown."""
    states = describe_transactions(server, transactional_ids)
    partitions = {(topic.topic, index) for state in states for topic in state.topics for index in topic.partitions}
    ends = stable_offsets(server, partitions)
    now_ms = int(time.time() * 1000)
    rows: list[tuple[Any, ...]] = []
    for state in states:
        if state.error_code:
            rows.append((state.transactional_id, code_name(state.error_code), *[None] * 8))
            continue
        is_open = state.transaction_state in ENDING
        open_s = (now_ms - state.transaction_start_time_ms) / 1000 if is_open else None
        front = (
            state.transactional_id,
            state.transaction_state,
            state.producer_id,
            state.producer_epoch,
            state.transaction_timeout_ms,
            open_s,
        )
        parts = [(topic.topic, index) for topic in state.topics for index in topic.partitions]
        for place in sorted(parts):
            end = ends.get(place)
            rows.append((*front, *place, *((end.last_stable_offset, end.held_back) if end else (None, None))))
        if not parts:
            rows.append((*front, None, None, None, None))
    columns = (
        "transactional_id",
        "state",
        "producer_id",
        "producer_epoch",
        "timeout_ms",
        "open_s",
        "topic",
        "partition",
        "last_stable_offset",
        "held_back",
    )
    output.print_rows(columns, rows, form)
    return 1 if any(state.error_code for state in states) else 0


def find_hanging(server: Target, options: argparse.Namespace) -> int:
    """Prints hanging transactions. Returns 1 if there are any."""
    partitions = all_partitions(server, options.topic, options.partition)
    since_ms = int((time.time() - options.idle_minutes * 60) * 1000)
    found = hanging_transactions(server, partitions, since_ms)
    _print_open(server, found, options.format)
    return 1 if found else 0


def abort(server: Target, options: argparse.Namespace) -> int:
    """Aborts the transaction that begins at an offset, and prints its previous state."""
    place = (options.topic, options.partition)
    found = [each for each in open_transactions(server, [place]) if each.start_offset == options.start_offset]
    if not found:
        raise KcoreError(f"no open transaction begins at offset {options.start_offset} of {place[0]}-{place[1]}")
    _print_open(server, found, options.format)
    abort_transaction(server, found[0])
    return 0


def _print_open(server: Target, found: list[OpenTransaction], form: str) -> None:
    ends = stable_offsets(server, {(each.topic, each.partition) for each in found})
    now_ms = int(time.time() * 1000)
    rows = []
    for each in found:
        end = ends.get((each.topic, each.partition))
        idle_s = (now_ms - each.last_timestamp_ms) / 1000
        row = (*each[:6], idle_s, *((end.last_stable_offset, end.held_back) if end else (None, None)))
        rows.append(row)
    output.print_rows(OPEN_COLUMNS, rows, form)
