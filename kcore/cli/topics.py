"""`kcore topics`: creates, lists, describes and deletes topics."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from kcore.cli import output, target
from kcore.cli.properties import parse_assignments
from kcore.errors import KafkaError
from kcore.inspect.topics import describe_topics
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.node._sync.node import Node


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    creating = actions.add_parser("create", help="create topics; creates a missing data folder")
    listing = actions.add_parser("list", help="list every topic")
    describing = actions.add_parser(
        "describe", help="show the partitions of topics with the first and last offsets of their logs"
    )
    deleting = actions.add_parser("delete", help="delete topics with all their records")
    for action in (creating, listing, describing, deleting):
        target.add_arguments(action)
    for action in (listing, describing):
        output.add_arguments(action)
    for action in (creating, deleting):
        action.add_argument("--topic", action="append", required=True, metavar="NAME", help="a topic (may be repeated)")
    describing.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME",
        help="a topic (may be repeated); default: all except internal ones",
    )
    creating.add_argument("--partitions", type=int, help="number of partitions; default: num.partitions of the server")
    creating.add_argument(
        "--replication-factor", type=int, help="number of replicas; default: default.replication.factor of the server"
    )
    creating.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting of the topics (may be repeated)"
    )
    creating.add_argument("--if-not-exists", action="store_true", help="ignore existing topics")
    deleting.add_argument("--if-exists", action="store_true", help="ignore missing topics")


def run(options: argparse.Namespace) -> int:
    """Creates, lists, describes or deletes topics."""
    settings = parse_assignments("--config", options.config) if options.action == "create" else {}
    with target.open_target(options, create=options.action == "create") as node:
        if options.action == "create":
            return _create(node, options, settings)
        if options.action == "delete":
            return _delete(node, options)
        if options.action == "list":
            rows = [(topic.name, topic.partitions, topic.internal) for topic in node.topics.list(internal=True)]
            output.print_rows(("topic", "partitions", "internal"), rows, options.format)
        else:
            columns = ("topic", "partition", "leader", "start_offset", "end_offset", "settings")
            found = [(*row[:5], row.settings or None) for row in describe_topics(node, options.topic)]
            output.print_rows(columns, found, options.format)
    return 0


def _create(node: Node, options: argparse.Namespace, settings: dict[str, str]) -> int:
    def create(name: str) -> None:
        node.topics.create(name, options.partitions, replication=options.replication_factor, config=settings)

    return _for_each("created", options.topic, create, ErrorCode.TOPIC_ALREADY_EXISTS, options.if_not_exists)


def _delete(node: Node, options: argparse.Namespace) -> int:
    def delete(name: str) -> None:
        node.topics[name].delete()

    return _for_each("deleted", options.topic, delete, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, options.if_exists)


def _for_each(done: str, names: list[str], change: Callable[[str], None], ignorable: ErrorCode, ignore: bool) -> int:
    """Changes each topic and prints the result; returns 1 if a change was refused.

    Args:
        done: the change as the output names it, such as "created".
        names: the names of the topics.
        change: changes one topic.
        ignorable: the error code of a topic that needs no change, for example because it exists already.
        ignore: True to skip topics with the error `ignorable`, without a message.
    """
    status = 0
    for name in names:
        try:
            change(name)
        except KafkaError as error:
            if ignore and error.code == ignorable:
                continue
            status = 1
            why = f": {error.message}" if error.message else ""
            output.complain(f"topic {name!r}: {error.code.name}{why}")
        else:
            output.say(f"{done} {name}")
    return status
