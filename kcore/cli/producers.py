"""`kcore producers`: lists the producers of a partition and its open transactions."""

from __future__ import annotations

import argparse

from kcore.cli import output, target
from kcore.inspect.transactions import named_partitions, stable_offsets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    describing = actions.add_parser(
        "describe", help="show the producers of partitions, with their epochs and sequences"
    )
    describing.add_argument("--topic", required=True, help="the topic")
    describing.add_argument("--partition", type=int, help="the partition; default: all of the topic")
    target.add_arguments(describing)
    output.add_arguments(describing)


def run(options: argparse.Namespace) -> int:
    """Describes producers."""
    with target.open_target(options) as node:
        partitions = named_partitions(node, options.topic, options.partition)
        ends = stable_offsets(node, partitions)
        rows = []
        for producer in node.transactions.producers(partitions):
            end = ends.get(producer.partition)
            row = (
                *producer.partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.last_sequence,
                producer.last_timestamp_ms,
                producer.transaction_start,
                end.last_stable_offset if end else None,
                end.high_watermark if end else None,
            )
            rows.append(row)
    columns = (
        "topic",
        "partition",
        "producer_id",
        "producer_epoch",
        "coordinator_epoch",
        "last_sequence",
        "last_timestamp",
        "txn_start_offset",
        "last_stable_offset",
        "high_watermark",
    )
    output.print_rows(columns, rows, options.format)
    return 0
