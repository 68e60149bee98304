"""`kcore consume`: prints the records of topics to the standard output."""

from __future__ import annotations

import argparse
import base64
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import kcore
from kcore.cli import target
from kcore.errors import ConfigError, KcoreError
from kcore.printable import clean
from kcore.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kcore.client.consumer_coordinator.interface import Assigned
    from kcore.node._sync.consumer import Consumer
    from kcore.node._sync.node import Node
    from kcore.node._sync.topics import Topic
    from kcore.node.types import Record

EARLIEST, LATEST = -2, -1  # special values of a start time
TIMEOUT_S = 90.0
WAIT_MS = 500  # time for which a server waits for new records
MAX_RECORDS = 500  # of one read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    target.add_bootstrap(parser, required=True)
    parser.add_argument("--topic", metavar="NAME", action="append", required=True, help="a topic (may be repeated)")
    parser.add_argument(
        "--partition", type=int, action="append", default=[], help="a partition (may be repeated); default: all"
    )
    parser.add_argument(
        "--from", dest="start", metavar="WHERE", default=None,
        help="earliest, latest, an offset, or a time: 2026-01-31T12:00:00 (UTC by default); with --group it applies "
        "only to partitions without a committed offset; default: earliest",
    )  # fmt: skip
    parser.add_argument(
        "--group", metavar="NAME", help="read as a member of this group, and commit the printed records"
    )
    parser.add_argument("--max", type=int, metavar="N", help="stop after this number of records")
    parser.add_argument(
        "--follow", action="store_true", help="wait for new records; default: stop at the current end of the topics"
    )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text",
        help="text: one value per line, with control characters escaped on a terminal; json: one object per line, "
        "with base64 for keys and values that are not text",
    )  # fmt: skip


class Terminated(KeyboardInterrupt):
    """The exception for SIGTERM, which stops the command like Ctrl-C but with another exit status."""


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    def terminate(number: int, _frame: object) -> None:
        raise Terminated(number)

    try:
        before = signal.signal(signal.SIGTERM, terminate)
    except ValueError:  # not the main thread: its owner handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(options: argparse.Namespace) -> int:
    """Consumes until the end of the topics, Ctrl-C or SIGTERM. A group member then leaves its group."""
    try:
        with _terminated_like_interrupted():
            return _consume(options)
    except Terminated:
        return 128 + signal.SIGTERM


def _consume(options: argparse.Namespace) -> int:
    if options.group is not None and options.partition:
        raise ConfigError("--partition and --group exclude each other: the group assigns the partitions")
    if options.max is not None and options.max < 0:
        raise ConfigError(f"--max {options.max}: must be 0 or more")
    start = parse_start(options.start or "earliest")
    if options.group is not None:
        return _consume_as_member(options, start)
    show = _shown_as(options.format)
    left = options.max
    with kcore.connect(options.bootstrap, timeout=TIMEOUT_S, security=target.security(options)) as node:
        reader = Reader(node, _all_partitions(node, options.topic, options.partition), start)
        while (left is None or left > 0) and (options.follow or not reader.at_end()):
            records = reader.read(options.follow, left)
            for record in records:
                print(show(record))
            sys.stdout.flush()
            left = None if left is None else left - len(records)
    return 0


def parse_start(text: str) -> tuple[str, int]:
    """Parses `--from` into ("time", ListOffsets timestamp) or ("offset", offset).

    Raises:
        ConfigError: the text is neither a time nor an offset.
    """
    if text in {"earliest", "latest"}:
        return "time", EARLIEST if text == "earliest" else LATEST
    if re.fullmatch(r"\d+", text):
        return "offset", int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--from {text!r}; valid: earliest, latest, an offset, a time (ISO 8601)") from None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return "time", max(0, int(when.timestamp() * 1000))


def _all_partitions(node: Node, topics: list[str], wanted: list[int]) -> list[TopicPartition]:
    selected: list[TopicPartition] = []
    for topic in topics:
        if not node.topics.exists(topic):
            raise KcoreError(f"topic {topic!r} does not exist")
        partitions = node.topics[topic].partitions()
        missing = sorted(set(wanted) - {each.partition for each in partitions})
        if missing:
            raise KcoreError(f"topic {topic!r} has no partition {missing[0]}")
        selected += [each for each in partitions if not wanted or each.partition in wanted]
    return selected


def first_offset(topic: Topic, partition: int, start: tuple[str, int], end: int) -> int:
    """Returns the offset of a partition at which reading begins.

    Args:
        topic: the topic that is read.
        partition: the number of the partition.
        start: the start position, as returned by `parse_start`.
        end: the current end of the partition.
    """
    kind, value = start
    if kind == "offset":
        return value
    if value == EARLIEST:
        return topic.start_offsets()[partition]
    offset = None if value == LATEST else topic.offsets_at(value / 1000)[partition]
    return end if offset is None else offset  # no record is that late


class Reader:
    """A reader that reads partitions in turn, without a group.

    Args:
        node: the cluster.
        selected: the partitions to read.
        start: the start position, as returned by `parse_start`.
    """

    def __init__(self, node: Node, selected: list[TopicPartition], start: tuple[str, int]) -> None:
        self._topics = {each.topic: node.topics[each.topic] for each in selected}
        ends = {name: topic.end_offsets() for name, topic in self._topics.items()}
        self._ends = {each: ends[each.topic][each.partition] for each in selected}
        self._positions = {
            each: first_offset(self._topics[each.topic], each.partition, start, end) for each, end in self._ends.items()
        }
        self._unread = [each for each in selected if self._positions[each] < self._ends[each]]
        self._selected = selected
        self._turn = 0

    def at_end(self) -> bool:
        """Returns True once all records that existed at the start were returned."""
        return not self._unread

    def read(self, follow: bool, max_records: int | None) -> list[Record]:
        """Reads records of the next partition.

        Args:
            follow: True to read all partitions and wait for new records; False to read only the partitions whose end is
                not reached.
            max_records: the largest number of records; None: `MAX_RECORDS`.
        """
        selected = self._selected if follow else self._unread
        self._turn += 1
        each = selected[self._turn % len(selected)]
        records = self._topics[each.topic].read(
            each.partition,
            self._positions[each],
            min(MAX_RECORDS, max_records or MAX_RECORDS),
            wait=WAIT_MS / 1000 / len(selected) if follow else 0.0,
        )
        if records:
            self._positions[each] = records[-1].offset + 1
        # Only control batches or aborted records may lie between the last record and the end.
        if each in self._unread and (not records or self._positions[each] >= self._ends[each]):
            self._unread.remove(each)
        return records


class MemberOffsets:
    """The offsets at which a group member begins and stops to read its partitions.

    Args:
        node: the cluster.
        group_id: the id of the group.
        start: the start position, as returned by `parse_start`.

    Attributes:
        joined: True once the group has assigned partitions.
        ends: partition -> its end at the time of the assignment.
    """

    def __init__(self, node: Node, group_id: str, start: tuple[str, int]) -> None:
        self._node = node
        self._group = node.group(group_id)
        self._start = start
        self.consumer: Consumer | None = None
        self.joined = False
        self.ends: dict[TopicPartition, int] = {}

    def assigned(self, event: Assigned) -> None:
        """Sets the positions of new partitions without a committed offset, and looks up their ends."""
        assert self.consumer is not None, "set before the consumer joins"
        committed = self._group.committed(event.partitions) if event.partitions else {}
        for partition in event.partitions:
            topic = self._node.topics[partition.topic]
            self.ends[partition] = topic.end_offsets()[partition.partition]
            if partition not in committed:
                first = first_offset(topic, partition.partition, self._start, self.ends[partition])
                self.consumer.seek(partition, first)
        self.joined = True

    def at_end(self) -> bool:
        """Returns True once all records that existed at the assignment were returned."""
        assert self.consumer is not None, "set before the consumer joins"
        if not self.joined:
            return False
        positions = {each: self.consumer.position(each) for each in self.consumer.assignment}
        return all(position is not None and position >= self.ends.get(each, 0) for each, position in positions.items())


def _consume_as_member(options: argparse.Namespace, start: tuple[str, int]) -> int:
    """Prints records as a member of a group, and commits the records that were printed."""
    show = _shown_as(options.format)
    left = options.max
    with kcore.connect(options.bootstrap, timeout=TIMEOUT_S, security=target.security(options)) as node:
        offsets = MemberOffsets(node, options.group, start)
        consumer = offsets.consumer = node.group(options.group).consume(
            options.topic, protocol="classic", assignors=["range"], auto_commit=None, on_assigned=offsets.assigned
        )
        with consumer:
            while left is None or left > 0:
                if not options.follow and offsets.at_end():
                    break
                records = consumer.poll(WAIT_MS / 1000, left)
                for record in records:
                    print(show(record))
                if records:
                    sys.stdout.flush()
                    consumer.commit()
                left = None if left is None else left - len(records)
    return 0


def _shown_as(form: str) -> Callable[[Record], str]:
    """Chooses the output format: control characters are escaped only on a terminal."""
    if form == "json":
        return as_json
    if sys.stdout.isatty():
        return lambda record: clean(as_text(record), keep="\n\t")
    return as_text


def as_text(record: Record) -> str:
    """Formats a record's value as one line; escapes bytes that are not UTF-8."""
    return "" if record.value is None else record.value.decode(errors="backslashreplace")


def as_json(record: Record) -> str:
    """Formats a record as a JSON object."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        fields.update(_to_json(name, data))
    if record.headers:
        fields["headers"] = [{"name": name, **_to_json("value", data)} for name, data in record.headers]
    return json.dumps(fields)


def _to_json(name: str, data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
