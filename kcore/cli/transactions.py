"""`kcore transactions`: lists and describes transactions, and finds and aborts hanging transactions."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kcore.cli import output, target
from kcore.errors import ConfigError, KafkaError, KcoreError
from kcore.inspect.transactions import all_partitions, named_partitions, stable_offsets
from kcore.node.types import OPEN_TRANSACTION_STATES

if TYPE_CHECKING:
    from kcore.node._sync.node import Node
    from kcore.node.types import ProducerState

HANGING_MINUTES = 15
"""Kafka's default of transaction.max.timeout.ms, in minutes. A live coordinator ends transactions within this time."""

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
    listing = actions.add_parser("list", help="list every transactional id with its state")
    listing.add_argument("--state", action="append", default=[], help="only ids in this state (may be repeated)")
    listing.add_argument(
        "--producer-id",
        action="append",
        default=[],
        type=int,
        help="only transactional ids with this producer id (may be repeated)",
    )
    listing.add_argument(
        "--longer-than-ms",
        type=int,
        default=-1,
        metavar="MS",
        help="only transactions that have been open for more than this time",
    )
    listing.add_argument("--pattern", metavar="RE2", help="only ids that this regular expression matches completely")
    describing = actions.add_parser(
        "describe",
        help="show the partitions of transactions, and the offsets that read_committed consumers cannot read",
    )
    describing.add_argument(
        "--id", action="append", default=[], help="a transactional id (may be repeated); default: all"
    )
    hanging = actions.add_parser("find-hanging", help="list open transactions that no coordinator will ever end")
    aborting = actions.add_parser("abort", help="abort a hanging transaction in one partition by writing its marker")
    for action in (hanging, aborting):
        action.add_argument("--topic", required=action is aborting, help="the topic")
        action.add_argument("--partition", type=int, required=action is aborting, help="the partition")
    hanging.add_argument(
        "--idle-minutes",
        type=float,
        default=HANGING_MINUTES,
        help=f"only transactions whose producer has not written for this time (default {HANGING_MINUTES})",
    )
    aborting.add_argument(
        "--start-offset", type=int, required=True, help="the first offset of the transaction, as shown by find-hanging"
    )
    aborting.add_argument(
        "--force",
        action="store_true",
        help="abort the records in this partition even if a coordinator can still end the transaction; the "
        "transaction then continues in its other partitions",
    )
    terminating = actions.add_parser(
        "terminate", help="let the coordinator abort the open transaction of an id, and fence its producer"
    )
    terminating.add_argument("--transactional-id", required=True, help="the transactional id")
    for action in (listing, describing, hanging, aborting, terminating):
        target.add_arguments(action)
        output.add_arguments(action)


def run(options: argparse.Namespace) -> int:
    """Lists, describes, finds, aborts or terminates transactions."""
    if getattr(options, "partition", None) is not None and options.topic is None:
        raise ConfigError("--partition needs --topic")
    with target.open_target(options) as node:
        if options.action == "list":
            transactions = node.transactions.list(
                states=options.state,
                producer_ids=options.producer_id,
                longer_than=None if options.longer_than_ms < 0 else options.longer_than_ms / 1000,
                pattern=options.pattern,
            )
            rows = [(row.transactional_id, row.producer_id, row.state) for row in transactions]
            output.print_rows(("transactional_id", "producer_id", "state"), rows, options.format)
            return 0
        if options.action == "describe":
            transactional_ids = options.id or [row.transactional_id for row in node.transactions.list()]
            return describe(node, transactional_ids, options.format)
        if options.action == "find-hanging":
            return find_hanging(node, options)
        if options.action == "terminate":
            return terminate(node, options)
        return abort(node, options)


def describe(node: Node, transactional_ids: list[str], form: str) -> int:
    """Prints a row for each partition of each transaction. A transactional id without partitions has one row.

    Returns 1 if a transactional id is unknown.
    """
    described = node.transactions.describe(transactional_ids)
    states = {key: state for key, state in described.items() if not isinstance(state, KafkaError)}
    ends = stable_offsets(node, {partition for state in states.values() for partition in state.partitions})
    now = datetime.now(UTC)
    rows: list[tuple[Any, ...]] = []
    for transactional_id in transactional_ids:
        state = described[transactional_id]
        if isinstance(state, KafkaError):
            rows.append((transactional_id, state.code.name, *[None] * 8))
            continue
        is_open = state.state in OPEN_TRANSACTION_STATES and state.started is not None
        front = (
            transactional_id,
            state.state,
            state.producer_id,
            state.producer_epoch,
            round(state.timeout * 1000),
            (now - state.started).total_seconds() if is_open and state.started is not None else None,
        )
        for topic_partition in state.partitions:
            end = ends.get(topic_partition)
            rows.append((*front, *topic_partition, *((end.last_stable_offset, end.held_back) if end else (None, None))))
        if not state.partitions:
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
    return 1 if len(states) < len(described) else 0


def find_hanging(node: Node, options: argparse.Namespace) -> int:
    """Prints the hanging transactions. Returns 1 if there are hanging transactions, else 0."""
    if options.topic is None:
        partitions = all_partitions(node)
    else:
        partitions = named_partitions(node, options.topic, options.partition)
    hanging = node.transactions.hanging(partitions, idle=options.idle_minutes * 60)
    output.print_rows(OPEN_COLUMNS, _open_rows(node, hanging), options.format)
    return 1 if hanging else 0


def abort(node: Node, options: argparse.Namespace) -> int:
    """Aborts the transaction that begins at an offset, and prints its previous state."""
    topic_partition = (options.topic, options.partition)
    producers = [
        each
        for each in node.transactions.producers([topic_partition])
        if each.transaction_start == options.start_offset
    ]
    if not producers:
        raise KcoreError(
            f"no open transaction begins at offset {options.start_offset} of {topic_partition[0]}-{topic_partition[1]}"
        )
    rows = _open_rows(node, producers)
    node.transactions.abort(producers[0], force=options.force)
    output.print_rows(OPEN_COLUMNS, rows, options.format)
    return 0


def terminate(node: Node, options: argparse.Namespace) -> int:
    """Prints the state of a transactional id, then ends its open transaction. Returns 1 if the id is unknown."""
    status = describe(node, [options.transactional_id], options.format)
    if status == 0:
        node.transactions.terminate(options.transactional_id)
    return status


def _open_rows(node: Node, producers: Sequence[ProducerState]) -> list[tuple[Any, ...]]:
    ends = stable_offsets(node, {each.partition for each in producers})
    now_ms = int(time.time() * 1000)
    rows = []
    for each in producers:
        end = ends.get(each.partition)
        row = (
            *each.partition,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.transaction_start,
            (now_ms - each.last_timestamp_ms) / 1000,
            *((end.last_stable_offset, end.held_back) if end else (None, None)),
        )
        rows.append(row)
    return rows
