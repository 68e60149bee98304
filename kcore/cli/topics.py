"""`kcore topics`: creates, lists, describes and deletes topics."""

from __future__ import annotations

import argparse

from kcore.cli import output, target
from kcore.cli.properties import parse_assignments
from kcore.inspect import Target
from kcore.inspect.topics import describe_topics, find_topics
from kcore.node import versions
from kcore.protocol.error_codes import ErrorCode, code_name
from kcore.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest

TIMEOUT_MS = 30_000
UNSET = -1  # the server's default


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    creating = actions.add_parser("create", help="create topics; creates a missing data folder")
    listing = actions.add_parser("list", help="every topic")
    describing = actions.add_parser(
        "describe", help="partitions of topics with the first and last offsets of their logs"
    )
    deleting = actions.add_parser("delete", help="delete topics with all their records")
    for action in (creating, listing, describing, deleting):
        target.add_arguments(action)
    for action in (listing, describing):
        output.add_arguments(action)
    for action in (creating, deleting):
        action.add_argument("--topic", action="append", required=True, metavar="NAME", help="(may be repeated)")
    describing.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME",
        help="(may be repeated); default: all except internal ones",
    )
    creating.add_argument(
        "--partitions", type=int, default=UNSET, help="number of partitions; default: num.partitions of the server"
    )
    creating.add_argument("--replication-factor", type=int, default=UNSET, help="default: the server's")
    creating.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="a setting of the topics")
    creating.add_argument("--if-not-exists", action="store_true", help="ignore existing topics")
    deleting.add_argument("--if-exists", action="store_true", help="ignore missing topics")


def run(options: argparse.Namespace) -> int:
    """Creates, lists, describes or deletes topics."""
    settings = parse_assignments("--config", options.config) if options.action == "create" else {}
    with target.open_target(options, create=options.action == "create") as server:
        if options.action == "create":
            return _create(server, options, settings)
        if options.action == "delete":
            return _delete(server, options)
        if options.action == "list":
            rows = [(topic.name, len(topic.partitions), topic.is_internal) for topic in find_topics(server)]
            output.print_rows(("topic", "partitions", "internal"), rows, options.format)
        else:
            columns = ("topic", "partition", "leader", "start_offset", "end_offset", "settings")
            found = [(*row[:5], row.settings or None) for row in describe_topics(server, options.topic)]
            output.print_rows(columns, found, options.format)
    return 0


def _create(server: Target, options: argparse.Namespace, settings: dict[str, str]) -> int:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=options.partitions,
            replication_factor=options.replication_factor,
            configs=configs,
        )
        for name in options.topic
    ]
    results = server.send(CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)).topics
    there = {ErrorCode.TOPIC_ALREADY_EXISTS} if options.if_not_exists else set()
    return _say("created", [(r.name, r.error_code, r.error_message) for r in results], there)


def _delete(server: Target, options: argparse.Namespace) -> int:
    request = DeleteTopicsRequest(topic_names=options.topic, timeout_ms=TIMEOUT_MS)
    results = server.send(request, versions.DELETE_TOPICS).responses
    gone = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if options.if_exists else set()
    return _say("deleted", [(r.name, r.error_code, r.error_message) for r in results], gone)


def _say(done: str, results: list[tuple[str, int, str | None]], fine: set[ErrorCode]) -> int:
    """Prints the result for each topic; returns 1 if one was refused."""
    status = 0
    for name, code, message in results:
        if not code:
            output.say(f"{done} {name}")
        elif code not in fine:
            status = 1
            why = f": {message}" if message else ""
            output.complain(f"topic {name!r}: {code_name(code)}{why}")
    return status
