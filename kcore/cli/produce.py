"""`kcore produce`: lines of the standard input become records of a topic."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from itertools import cycle

from kcore.cli import target
from kcore.client.cluster import Cluster
from kcore.client.partitioner import partition_of
from kcore.errors import KcoreError
from kcore.protocol.compression import CompressionType, compress
from kcore.protocol.error_codes import ErrorCode, code_name
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore_ext.batch import BatchBuilder

READ_BYTES = 65_536  # what is read at a time: lines that are there together travel together
RECORD_OVERHEAD_BYTES = 40  # of a record beside key and value, at most
BATCH_OVERHEAD_BYTES = 100
TIMEOUT_MS = 30_000
NAMES_VERSION = 9  # the newest Produce that speaks of topics by name, and that old servers know
TRIES, PAUSE_S = 50, 0.2
ACKS = {"all": -1, "1": 1}

AGAIN = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # it was made just now, and not everywhere yet
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""What was refused so was not stored: sending it again stores it once."""

Line = tuple[bytes | None, bytes]
"""A key, or None, and a value."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    target.add_bootstrap(parser, required=True)
    parser.add_argument("--topic", metavar="NAME", required=True, help="made if the server makes topics by itself")
    parser.add_argument(
        "--partition", type=int, help="where all records go; else by key as Java's producer, or in turn"
    )
    parser.add_argument(
        "--key-separator", metavar="TEXT", help="what stands before it in a line is the key; a line without has none"
    )
    parser.add_argument(
        "--acks", choices=sorted(ACKS), default="all", help="whose copies count (kcore answers when it is on the disk)"
    )
    parser.add_argument(
        "--compression", choices=[kind.name.lower() for kind in CompressionType], default="none", help="of the batches"
    )


def run(options: argparse.Namespace) -> int:
    """Produces until the input ends; says how many records were acknowledged."""
    separator = None if options.key_separator is None else options.key_separator.encode()
    count = 0
    with Cluster(options.bootstrap, security=target.security(options)) as cluster:
        producer = Producer(
            cluster, options.topic, options.partition, ACKS[options.acks], CompressionType[options.compression.upper()]
        )
        try:
            for lines in read_lines(sys.stdin.fileno()):
                count += producer.send([split_key(line, separator) for line in lines])
        finally:
            print(f"kcore: {count} record{'' if count == 1 else 's'}", file=sys.stderr)
    return 0


def read_lines(file: int) -> Iterator[list[bytes]]:
    """Lines without their ends, as many at a time as are there; the last one may have no end."""
    rest = b""
    while data := os.read(file, READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


def split_key(line: bytes, separator: bytes | None) -> Line:
    """A line's key and value."""
    if separator is None or separator not in line:
        return None, line
    key, _, value = line.partition(separator)
    return key, value


class Producer:
    """Sends lines to one topic, and waits until they are acknowledged.

    Args:
        cluster: where the topic lives.
        topic: the topic.
        partition: where everything goes; None: by key, or in turn.
        acks: 1 or -1 for all.
        compression: the codec of batches.

    Raises:
        KcoreError: the topic is not there and is not made, or it has no such partition.
    """

    def __init__(
        self, cluster: Cluster, topic: str, partition: int | None, acks: int, compression: CompressionType
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._acks = acks
        self._compression = compression
        self._partitions = self._find()
        if partition is not None and partition not in self._partitions:
            raise KcoreError(f"topic {topic!r} has {len(self._partitions)} partitions, no partition {partition}")
        self._partition = partition
        self._turn = cycle(self._partitions)

    def _find(self) -> list[int]:
        for _ in range(TRIES):
            found = self._cluster.partitions([self._topic], create=True).get(self._topic, [])
            if found:
                return found
            time.sleep(PAUSE_S)
        raise KcoreError(f"there is no topic {self._topic!r}")

    def send(self, lines: list[Line]) -> int:
        """Sends lines; returns how many they were, once all are acknowledged.

        Raises:
            KcoreError: one was refused. What stands before it was taken.
        """
        own = self._partition if self._partition is not None else next(self._turn)  # of lines without a key
        by_partition: dict[int, list[Line]] = {}
        for key, value in lines:
            keyed = key is not None and self._partition is None
            partition = partition_of(key or b"", len(self._partitions)) if keyed else own
            by_partition.setdefault(partition, []).append((key, value))
        for partition, group in by_partition.items():
            self._store(partition, self._batch(group))
        return len(lines)

    def _batch(self, lines: list[Line]) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        size = sum(len(key or b"") + len(value) + RECORD_OVERHEAD_BYTES for key, value in lines)
        builder = BatchBuilder(
            size + BATCH_OVERHEAD_BYTES,
            base_timestamp_ms=now_ms,
            compression=int(self._compression),
            compress=compress,
        )
        for key, value in lines:
            taken = builder.append(now_ms, key, value)
            assert taken, "the batch was made as large as the lines are"
        return bytes(builder.build())

    def _store(self, partition: int, batch: bytes) -> None:
        data = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
        )
        code, message = 0, None
        for _ in range(TRIES):
            answer = self._cluster.leader(self._topic, partition).send(request, NAMES_VERSION)
            result = answer.responses[0].partition_responses[0]
            code, message = result.error_code, result.error_message
            if not code:
                return
            if code not in AGAIN:
                break
            time.sleep(PAUSE_S)
            self._find()
        raise KcoreError(f"{self._topic}-{partition}: {code_name(code)}{': ' + message if message else ''}")
