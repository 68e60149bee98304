"""`kcore produce`: writes lines of the standard input to a topic."""

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

READ_BYTES = 65_536  # bytes of one read: lines that arrive together are sent together
RECORD_OVERHEAD_BYTES = 40  # largest size of a record without key and value
BATCH_OVERHEAD_BYTES = 100
TIMEOUT_MS = 30_000
NAMES_VERSION = 9  # the newest Produce version that addresses topics by name; old servers support it
TRIES, PAUSE_S = 50, 0.2
ACKS = {"all": -1, "1": 1}

AGAIN = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # just created and not yet known to all brokers
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""Errors after which no record was stored, so that a retry stores each once."""

Line = tuple[bytes | None, bytes]
"""A key, or None, and a value."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    target.add_bootstrap(parser, required=True)
    parser.add_argument(
        "--topic", metavar="NAME", required=True, help="created if the server creates topics automatically"
    )
    parser.add_argument(
        "--partition", type=int, help="the partition of all records; default: by key as Java's producer, or in turn"
    )
    parser.add_argument(
        "--key-separator", metavar="TEXT", help="separates the key from the value; a line without it has no key"
    )
    parser.add_argument(
        "--acks",
        choices=sorted(ACKS),
        default="all",
        help="required acknowledgements (kcore responds once the records are on disk)",
    )
    parser.add_argument(
        "--compression", choices=[kind.name.lower() for kind in CompressionType], default="none", help="of the batches"
    )


def run(options: argparse.Namespace) -> int:
    """Produces until the input ends; prints the number of acknowledged records."""
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


class Producer:
    """Sends lines to one topic and waits for their acknowledgement.

    Args:
        cluster: the brokers.
        topic: the topic.
        partition: the partition of all records; None: by key, or in turn.
        acks: 1, or -1 for all.
        compression: the codec of batches.

    Raises:
        KcoreError: the topic does not exist and is not created, or it has no such partition.
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
        raise KcoreError(f"no such topic: {self._topic!r}")

    def send(self, lines: list[Line]) -> int:
        """Sends lines; returns their number once all are acknowledged.

        Raises:
            KcoreError: a line was refused; the lines before it were stored.
        """
        own = self._partition if self._partition is not None else next(self._turn)  # for lines without a key
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
            assert taken, "the batch is large enough for its lines"
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
            response = self._cluster.leader(self._topic, partition).send(request, NAMES_VERSION)
            result = response.responses[0].partition_responses[0]
            code, message = result.error_code, result.error_message
            if not code:
                return
            if code not in AGAIN:
                break
            time.sleep(PAUSE_S)
            self._find()
        raise KcoreError(f"{self._topic}-{partition}: {code_name(code)}{': ' + message if message else ''}")
