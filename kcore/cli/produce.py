"""`kcore produce`: writes lines of the standard input to a topic."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import kcore
from kcore.cli import target
from kcore.errors import KcoreError
from kcore.printable import counted
from kcore.protocol.compression import CompressionType

if TYPE_CHECKING:
    from kcore.node._sync.node import Node
    from kcore.node._sync.producer import Producer

READ_BYTES = 65_536  # bytes of one read: lines that arrive together are sent together
ACKS: dict[str, Literal["all", 1]] = {"all": "all", "1": 1}

Line = tuple[bytes | None, bytes]
"""The key (or None) and the value of a record, read from one input line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    target.add_bootstrap(parser, required=True)
    parser.add_argument(
        "--topic",
        metavar="NAME",
        required=True,
        help="the topic; the server creates a missing topic if auto.create.topics.enable is true",
    )
    parser.add_argument(
        "--partition",
        type=int,
        help="the partition of all records; default: the key determines it, as in Java's producer; records without a "
        "key go to the partitions in turn",
    )
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        type=_separator,
        help="the text between key and value; a line without this text becomes a record without a key",
    )
    parser.add_argument(
        "--acks",
        choices=sorted(ACKS),
        default="all",
        help="required acknowledgements; with either value, kcore responds when the records are as durable as "
        "kcore.durability requires",
    )
    parser.add_argument(
        "--compression",
        choices=[kind.name.lower() for kind in CompressionType],
        default="none",
        help="compression of the batches (default none)",
    )


def _separator(text: str) -> bytes:
    """Returns the bytes of the text between key and value.

    Raises:
        ArgumentTypeError: the text is empty.
    """
    if not text:
        raise argparse.ArgumentTypeError("the text is empty; leave out the option for records without keys")
    return text.encode()


def run(options: argparse.Namespace) -> int:
    """Produces until the input ends; prints the number of acknowledged records."""
    count = 0
    with (
        kcore.connect(options.bootstrap, security=target.security(options)) as node,
        node.producer(compression=options.compression, acks=ACKS[options.acks], create_topics=True) as producer,
    ):
        _check_partition(node, producer, options.topic, options.partition)
        try:
            for lines in read_lines(sys.stdin.fileno()):
                for line in lines:
                    key, value = split_key(line, options.key_separator)
                    producer.append(options.topic, value, key, partition=options.partition)
                producer.flush()
                count += len(lines)
        finally:
            print(f"kcore: {counted(count, 'records')}", file=sys.stderr)
    return 0


def _check_partition(node: Node, producer: Producer, topic: str, partition: int | None) -> None:
    """Raises KcoreError if the topic does not have the partition. The lookup first lets the server create the topic."""
    producer.look_up(topic)
    count = node.topics[topic].describe().partitions
    if partition is not None and not 0 <= partition < count:
        raise KcoreError(f"topic {topic!r} has {counted(count, 'partitions')}, no partition {partition}")


def read_lines(file: int) -> Iterator[list[bytes]]:
    """Yields lists of available lines without line ends; the last line may have no end."""
    rest = b""
    while data := os.read(file, READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


def split_key(line: bytes, separator: bytes | None) -> Line:
    """Splits a line into key and value."""
    if separator is None or separator not in line:
        return None, line
    key, _, value = line.partition(separator)
    return key, value
