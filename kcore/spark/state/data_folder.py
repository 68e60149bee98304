"""Writes a data folder that `kcore serve` can start from, from the records of coordinator state.

The engine creates the folder and its internal topics. The records are appended unchanged to their logs. Their offsets
change, because superseded records are left out. Users' topics are not created.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from kcore.broker.compaction.rewrite import emptied
from kcore.broker.metadata.records import producer_ids_record
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.errors import KcoreError
from kcore.log import PartitionKey
from kcore.protocol import DecodeError
from kcore.protocol.records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    UnknownRecord,
    decode_key,
    decode_value,
)
from kcore.runtime.partitioner import partition_for
from kcore.spark.events.event import EventRow
from kcore.spark.state.producers import marker_of
from kcore_ext.batch import BatchBuilder, build_control_batch, parse_header

PARTITIONS_SETTINGS: Final = {
    CONSUMER_OFFSETS: "offsets.topic.num.partitions",
    TRANSACTION_STATE: "transaction.state.log.num.partitions",
    SHARE_GROUP_STATE: "share.coordinator.state.topic.num.partitions",
}
BATCH_BYTES: Final = 512 << 10
COMMIT_BATCHES: Final = 200
SEQUENCES: Final = 2**31
"""Number of different sequence numbers: after the largest, a producer continues at 0 (KIP-98)."""


class WrittenFolder(NamedTuple):
    """The content of a written folder: number of records by topic, and the first unused producer id."""

    records: Mapping[str, int]
    next_producer_id: int


def check_empty(folder: Path) -> None:
    """Raises KcoreError unless a folder is empty or does not exist."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise KcoreError(f"{folder} is not empty: name an empty or new folder")


def write_data_folder(folder: str | Path, partitions: Mapping[str, int], rows: Iterable[EventRow]) -> WrittenFolder:
    """Writes a data folder atomically.

    Args:
        folder: the path of the new data folder, which must be empty or not exist.
        partitions: internal topic -> partition count. Groups and ids must be in the partitions that this count implies.
        rows: the results of `LiveRecords.rows`, one partition after another.

    Raises:
        KcoreError: the folder is not empty, or a group or an id is not in the partition that its name implies.
    """
    target = Path(folder)
    check_empty(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        written = _fill(temporary, partitions, rows)
        os.replace(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return written


def _fill(folder: Path, partitions: Mapping[str, int], rows: Iterable[EventRow]) -> WrittenFolder:
    settings = {PARTITIONS_SETTINGS[topic]: str(count) for topic, count in partitions.items()}
    engine = Engine.open(Config.of({**settings, "kcore.data.dir": str(folder), "kcore.durability": "os"}))
    records: dict[str, int] = {}
    next_producer_id = 0
    try:
        for topic in sorted(partitions):
            if not engine.control.internal_topics.ensure(topic):
                raise KcoreError(f"{folder}: the topic {topic} cannot be created")
        engine.commit()
        for (topic, partition), of_partition in groupby(rows, key=lambda row: (row.topic, row.partition)):
            checked = _Checked(partitions)
            records[topic] = records.get(topic, 0) + _append(engine, topic, partition, checked.rows(of_partition))
            next_producer_id = max(next_producer_id, checked.next_producer_id)
        if next_producer_id:
            # Producer ids of transactions must not be allocated again.
            machine = engine.control.shard.machine
            record = producer_ids_record(engine.config.node_id, next_producer_id)
            engine.control.shard.perform(lambda: machine.outcome([record]))
        if not engine.commit():
            raise KcoreError(f"{folder}: the records cannot be committed")
        engine.log.sync()
    finally:
        engine.close()
    return WrittenFolder(records, next_producer_id)


class _Checked:
    """The check that each row is in the partition of its key. It also finds the first unused producer id."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = partitions
        self.next_producer_id = 0

    def rows(self, rows: Iterable[EventRow]) -> Iterator[EventRow]:
        for row in rows:
            if row.key is not None and not row.control:
                self._check(row, row.key)
            self.next_producer_id = max(self.next_producer_id, row.producer_id + 1)
            yield row

    def _check(self, row: EventRow, data: bytes) -> None:
        try:
            key = decode_key(row.topic, data)
            if row.topic == TRANSACTION_STATE and not isinstance(key, UnknownRecord):
                value = decode_value(key, row.value)
                if value is not None:
                    ids = (getattr(value, name, -1) for name in ("producer_id", "next_producer_id"))
                    self.next_producer_id = max(self.next_producer_id, *(one + 1 for one in ids))
        except DecodeError as error:
            raise KcoreError(f"{row.topic}-{row.partition}@{row.offset}: {error}") from error
        name = getattr(key, "group", None) or getattr(key, "group_id", None) or getattr(key, "transactional_id", None)
        if row.topic == SHARE_GROUP_STATE or not isinstance(name, str):
            return
        count = self._partitions[row.topic]
        expected = partition_for(name, count)
        if expected != row.partition:
            raise KcoreError(
                f"{name!r} is in partition {row.partition} of {row.topic}, but belongs to {expected} of {count}: "
                f"pass the right partition count of the topic"
            )


def _append(engine: Engine, topic: str, partition: int, rows: Iterable[EventRow]) -> int:
    """Appends a partition's rows; returns their number."""
    info = engine.topics.by_name(topic)
    assert info is not None, "it was made just now"
    if partition >= info.partitions:
        raise KcoreError(f"{topic} has {info.partitions} partitions, but there are records for partition {partition}")
    log = engine.log.open(PartitionKey(info.topic_id, partition))
    count = 0
    for number, (batch, records) in enumerate(_batches(rows), 1):
        log.append(batch, engine.log.node_epoch)
        count += records
        if not number % COMMIT_BATCHES:
            engine.log.commit()
    engine.log.commit()
    return count


def _batches(rows: Iterable[EventRow]) -> Iterator[tuple[bytearray, int]]:
    """Yields batches of adjacent rows of one producer, each with its number of rows."""

    def writer(row: EventRow) -> tuple[int, int, int, bool, bool]:
        alone = row.control or row.batch_only
        return row.producer_id, row.producer_epoch, row.last_sequence, row.transactional, alone

    for (producer_id, epoch, sequence, transactional, alone), neighbours in groupby(rows, key=writer):
        if alone:
            for row in neighbours:
                yield _producer_batch(row), 1
            continue
        run: Iterator[EventRow] = neighbours
        if sequence >= 0:  # the rest of one batch: small, and its last sequence number must be kept
            left = list(run)
            sequence = (sequence - len(left) + 1) % SEQUENCES  # noqa: PLW2901
            run = iter(left)
        builder: BatchBuilder | None = None
        for row in run:
            if builder is not None and not builder.append(row.timestamp_ms, row.key, row.value, row.headers):
                yield builder.build_bytearray(), builder.count
                builder = None
            if builder is None:
                size = max(BATCH_BYTES, 2 * len(row.value or b"") + 1_000)
                builder = BatchBuilder(
                    size,
                    base_timestamp_ms=row.timestamp_ms,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    transactional=transactional,
                )
                appended = builder.append(row.timestamp_ms, row.key, row.value, row.headers)
                assert appended, "a batch is made large enough for its first record"
        if builder is not None:
            yield builder.build_bytearray(), builder.count


def _producer_batch(row: EventRow) -> bytearray:
    """Returns a marker, or a batch without records that keeps a producer's state."""
    marker = marker_of(row) if row.control else None
    if marker is not None:
        commit, coordinator_epoch = marker
        data = build_control_batch(
            int(commit),
            coordinator_epoch,
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            timestamp_ms=row.timestamp_ms,
        )
        return bytearray(data)
    builder = BatchBuilder(
        BATCH_BYTES,
        base_timestamp_ms=row.timestamp_ms,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        base_sequence=row.last_sequence,
    )
    builder.append(row.timestamp_ms, None, None)
    return bytearray(emptied(parse_header(builder.build())))
