"""`kcore consume`: prints the records of topics to the standard output."""

from __future__ import annotations

import argparse
import base64
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import kcore
from kcore.cli import target
from kcore.client.cluster import Cluster
from kcore.errors import ConfigError, KcoreError
from kcore.inspect.groups import EARLIEST, LATEST, list_offset
from kcore.printable import clean
from kcore.protocol.compression import decompress
from kcore.protocol.error_codes import ErrorCode, code_name
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.batch import Record, iter_records, parse_header, split_batches

if TYPE_CHECKING:
    from kcore.client.consumer_coordinator.interface import Assigned
    from kcore.node._sync.consumer import Consumer
    from kcore.node._sync.node import Node

FETCH_BYTES = 1 << 20
TIMEOUT_S = 90.0
WAIT_MS = 500  # time for which a server waits for new records
NAMES_VERSION = 12  # Fetch 13 addresses topics by id (KIP-516)
MOVED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.LEADER_NOT_AVAILABLE}
COMMITTED_ONLY = 1  # isolation level: aborted records are not read

Place = tuple[str, int]
"""A topic and a partition."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    target.add_bootstrap(parser, required=True)
    parser.add_argument("--topic", metavar="NAME", action="append", required=True, help="(may be repeated)")
    parser.add_argument("--partition", type=int, action="append", default=[], help="(may be repeated); none: all")
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
        help="text: values, one per line, on a terminal with control characters escaped; json: one object per line, "
        "with base64 for keys and values that are not text",
    )  # fmt: skip


class Terminated(KeyboardInterrupt):
    """Raised for SIGTERM, which stops the command like Ctrl-C but with an exit status of its own."""


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
    """Consumes until the end of the topics, Ctrl-C or SIGTERM; in each case a member leaves its group."""
    try:
        with _terminated_like_interrupted():
            return _consume(options)
    except Terminated:
        return 128 + signal.SIGTERM


def _consume(options: argparse.Namespace) -> int:
    if options.group is not None and options.partition:
        raise ConfigError("--partition and --group exclude each other: the group assigns the partitions")
    start = parse_start(options.start or "earliest")
    if options.group is not None:
        return _consume_as_member(options, start)
    with Cluster(options.bootstrap, timeout_s=TIMEOUT_S, security=target.security(options)) as cluster:
        reader = Reader(cluster, start)
        reader.take(_all_partitions(cluster, options.topic, options.partition), {})
        records = _standalone(reader, options.follow)
        left = options.max
        show = _shown_as(options.format)
        try:
            while left is None or left > 0:
                batch = next(records, None)
                if batch is None:
                    break
                for place, record in batch[:left]:
                    print(show(place, record))
                    reader.positions[place] = record.offset + 1
                sys.stdout.flush()
                left = None if left is None else left - len(batch)
        finally:
            records.close()
    return 0


def parse_start(text: str) -> tuple[str, int]:
    """Parses `--from` into ("time", ListOffsets timestamp) or ("offset", offset).

    Raises:
        ConfigError: the text is neither.
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


def _all_partitions(cluster: Cluster, topics: list[str], wanted: list[int]) -> list[Place]:
    found = cluster.partitions(topics)
    for topic in topics:
        missing = sorted(set(wanted) - set(found[topic]))
        if not found[topic] or missing:
            what = f"has no partition {missing[0]}" if found[topic] else "does not exist"
            raise KcoreError(f"topic {topic!r} {what}")
    return [(topic, index) for topic in topics for index in found[topic] if not wanted or index in wanted]


class Reader:
    """Reads partitions.

    Args:
        cluster: the brokers.
        start: the start position, as returned by `parse_start`.

    Attributes:
        positions: partition -> next offset to read, after the printed records.
    """

    def __init__(self, cluster: Cluster, start: tuple[str, int]) -> None:
        self.positions: dict[Place, int] = {}
        self._cluster = cluster
        self._start = start
        self._turn = 0

    def take(self, places: list[Place], committed: dict[Place, int]) -> None:
        """Sets the partitions to read: from their committed offsets, else from the start position."""
        self._cluster.partitions(sorted({topic for topic, _ in places}))
        self.positions = {place: committed[place] if place in committed else self._first(place) for place in places}

    def _first(self, place: Place) -> int:
        kind, value = self._start
        if kind == "offset":
            return value
        offset = list_offset(self._cluster.leader(*place), *place, value)
        return offset if offset >= 0 else self.end(place)  # no record is that late

    def end(self, place: Place) -> int:
        """Returns the current end of a partition."""
        return list_offset(self._cluster.leader(*place), *place, LATEST)

    def fetch(self, places: list[Place], wait_ms: int) -> tuple[Place, list[Record], int] | None:
        """Fetches records of one of the partitions, in turn, and its next offset; None if there are none now."""
        if not places:
            time.sleep(wait_ms / 1000)
            return None
        self._turn += 1
        place = places[self._turn % len(places)]
        topic, partition = place
        position = self.positions[place]
        part = FetchPartition(partition=partition, fetch_offset=position, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=COMMITTED_ONLY,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )
        answer = self._cluster.leader(topic, partition).send(request, NAMES_VERSION).responses[0].partitions[0]
        if answer.error_code in MOVED:
            time.sleep(WAIT_MS / 1000)
            self._cluster.partitions([topic])
            return None
        if answer.error_code:
            raise KcoreError(f"{topic}-{partition}@{position}: {code_name(answer.error_code)}")
        records, following = read_records(answer, position)
        return (place, records, following) if following > position else None


def read_records(answer: Any, position: int) -> tuple[list[Record], int]:
    """Returns the records of a fetched partition from a position on, without aborted ones (KIP-98).

    Returns:
        The records, and the offset after the last batch.
    """
    data = answer.records or b""
    aborted = sorted((entry.first_offset, entry.producer_id) for entry in answer.aborted_transactions or ())
    open_aborted: set[int] = set()
    records: list[Record] = []
    for start, size in split_batches(data).batches:
        batch = data[start : start + size]
        header = parse_header(batch)
        while aborted and aborted[0][0] <= header.base_offset:
            open_aborted.add(aborted.pop(0)[1])
        if header.is_control:
            open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            records += [found for found in iter_records(batch, decompress=decompress) if found.offset >= position]
        position = max(position, header.next_offset)
    return records, position


Records = list[tuple[Place, Record]]


def _standalone(reader: Reader, follow: bool) -> Generator[Records, None, None]:
    """Yields records up to the initial end of every partition; endlessly with `follow`."""
    ends = {place: reader.end(place) for place in reader.positions}
    while True:
        places = [place for place, offset in reader.positions.items() if follow or offset < ends[place]]
        if not places:
            return
        yield from _one_fetch(reader, places, WAIT_MS if follow else 0)


def _one_fetch(reader: Reader, places: list[Place], wait_ms: int) -> Generator[Records, None, None]:
    found = reader.fetch(places, wait_ms // max(1, len(places)))
    if found is not None:
        place, records, following = found
        if records:
            yield [(place, record) for record in records]
        if reader.positions[place] >= (records[-1].offset + 1 if records else 0):
            reader.positions[place] = following  # after control batches and compacted records


class Membership:
    """The position at which a member begins to read its partitions, and the end at which it stops.

    Args:
        node: the cluster.
        group_id: the group.
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
                self.consumer.seek(partition, self._first(partition))
        self.joined = True

    def _first(self, partition: TopicPartition) -> int:
        kind, value = self._start
        if kind == "offset":
            return value
        topic = self._node.topics[partition.topic]
        if value == EARLIEST:
            return topic.start_offsets()[partition.partition]
        found = None if value == LATEST else topic.offsets_at(value / 1000)[partition.partition]
        return self.ends[partition] if found is None else found  # no record is that late

    def at_end(self) -> bool:
        """Returns True once all records that existed at the assignment were returned."""
        assert self.consumer is not None, "set before the consumer joins"
        if not self.joined:
            return False
        positions = {place: self.consumer.position(place) for place in self.consumer.assignment}
        return all(
            position is not None and position >= self.ends.get(place, 0) for place, position in positions.items()
        )


def _consume_as_member(options: argparse.Namespace, start: tuple[str, int]) -> int:
    """Prints records as a member of a group, and commits those that were printed."""
    show = _shown_as(options.format)
    left = options.max
    with kcore.connect(options.bootstrap, timeout=TIMEOUT_S, security=target.security(options)) as node:
        membership = Membership(node, options.group, start)
        consumer = membership.consumer = node.group(options.group).consume(
            options.topic, protocol="classic", assignors=["range"], auto_commit=None, on_assigned=membership.assigned
        )
        with consumer:
            while left is None or left > 0:
                if not options.follow and membership.at_end():
                    break
                records = consumer.poll(WAIT_MS / 1000, left)
                for record in records:
                    print(show(record.topic_partition, record))
                if records:
                    sys.stdout.flush()
                    consumer.commit()
                left = None if left is None else left - len(records)
    return 0


def _shown_as(form: str) -> Callable[[Place, Any], str]:
    """Chooses the output format: control characters are escaped only on a terminal."""
    if form == "json":
        return as_json
    if sys.stdout.isatty():
        return lambda _, record: clean(as_text(record), keep="\n\t")
    return lambda _, record: as_text(record)


def as_text(record: Any) -> str:
    """Formats a record's value as one line; escapes bytes that are not UTF-8."""
    return "" if record.value is None else record.value.decode(errors="backslashreplace")


def as_json(place: Place, record: Any) -> str:
    """Formats a record as a JSON object."""
    fields: dict[str, Any] = {
        "topic": place[0],
        "partition": place[1],
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
