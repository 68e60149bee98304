"""Creates test brokers that have the groups and offsets that a server had at a moment in the past."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from kcore.broker.metadata.machine import METADATA_PARTITION
from kcore.log import LmdbLogEngine
from kcore.log.batch_header import offsets_and_timestamp
from kcore.log.data_folder import DATA_NAME
from kcore.log.errors import DataFolderError
from kcore.log.interface import PartitionLog
from kcore.log.lmdb_copy import copy_folder
from kcore.log.memory_engine import MemoryStorage, _MemoryPartition
from kcore.log.write_set import PartitionMeta
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.protocol.records.metadata import TopicRecord, decode_metadata_record
from kcore.testing.arguments import check_type
from kcore.testing.broker import Broker
from kcore_ext.batch import iter_records

COORDINATORS = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
"""The topics with the state of coordinators. `replay` copies their records only up to the requested moment."""


def replay(
    log_folder: str | os.PathLike[str],
    at: datetime | str | float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Broker:
    """Returns a broker, not yet started, with the groups and offsets that a data folder had at a moment.

    The folder is only read; a server of another process may have it open. Topics keep all their records, so that
    consumers can read on from the offsets of the moment. The broker's wall clock begins at the moment.

    The members that the groups had at the moment are still in the groups. `broker.clock.advance(60)` ends their
    sessions, so that joins of the test's consumers need not wait for these members.

    A server compacts `__consumer_offsets`. The test broker lacks the records that this compaction has removed.

    Args:
        log_folder: a data folder, or a copy made by `kcore log copy`.
        at: the moment, as a datetime with a time zone, as text ("2026-03-01T02:14:00Z"), or in seconds since the
            epoch; None: the end of the log.
        settings: settings of the broker by Kafka's names.

    Raises:
        DataFolderError: the folder is damaged, or is not a data folder.
        ValueError: `at` has no time zone.
    """
    check_type("log_folder", log_folder, str, os.PathLike)
    check_type("at", at, datetime, str, int, float, optional=True)
    at_ms = None if at is None else _epoch_ms(at)
    if not os.path.exists(os.path.join(log_folder, DATA_NAME)):
        raise DataFolderError(
            os.fspath(log_folder),
            "this is no kcore data folder. replay() needs the folder of `kcore serve --data` or a copy of it. The "
            "files of `kcore export` are no data folder; `kcore spark rebuild --data-folder` makes one of them",
            DATA_NAME,
        )
    broker = Broker(settings)
    with tempfile.TemporaryDirectory(prefix="kcore-replay-") as folder:
        copy = os.path.join(folder, "copy")
        copy_folder(os.fspath(log_folder), copy)
        engine = LmdbLogEngine(copy, "os", create=False)
        try:
            broker._disk.load(_storage(engine, at_ms))
        finally:
            engine.close()
    if at_ms is not None:
        broker._steppable.step_wall(at_ms - time.time_ns() // 1_000_000)
    return broker


def _epoch_ms(at: datetime | str | float) -> int:
    if isinstance(at, int | float):
        return round(at * 1000)
    try:
        moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        raise ValueError(f"at={at!r} is not a time in ISO 8601, such as 2026-01-31T12:00:00+00:00") from None
    if moment.tzinfo is None:
        raise ValueError(f"at={at} has no time zone; use for example datetime(..., tzinfo=timezone.utc)")
    return round(moment.timestamp() * 1000)


def _storage(engine: LmdbLogEngine, at_ms: int | None) -> MemoryStorage:
    """Copies an engine's log into memory. Of the coordinators' topics, copies only the batches up to the moment."""
    storage = MemoryStorage()
    storage._opened = True
    cut = _coordinator_topics(engine)
    storage.node_epoch = engine.node_epoch
    for number, key in enumerate(engine.partitions(), 1):
        log = engine.get(key)
        assert log is not None, f"the engine lists {key}"
        stored = storage._partitions[number] = _MemoryPartition()
        bases, batches = stored.lists
        for base, batch in _until(log, at_ms if key.topic_id in cut else None):
            bases.append(base)
            batches.append(batch)
            stored.size_bytes += len(batch)
            stored.end_offset = offsets_and_timestamp(batch)[1] + 1
        epochs = tuple(entry for entry in log.committed_epochs if entry.start_offset <= stored.end_offset)
        cleaned_to = min(log.cleaned_to, stored.end_offset)
        storage._keys[key] = PartitionMeta(number, log.log_start_offset, epochs, None, cleaned_to)
        storage._next_number = number + 1
    for name in engine.meta_names():
        value = engine.get_meta(name)
        if value is not None:
            storage._metas[name] = value
    return storage


def _coordinator_topics(engine: LmdbLogEngine) -> set[bytes]:
    """Returns the ids of the coordinators' topics, from the node's metadata."""
    log = engine.get(METADATA_PARTITION)
    found = set()
    for _, batch in () if log is None else log.batches():
        for record in iter_records(batch):
            decoded = None if record.value is None else decode_metadata_record(record.value)
            if isinstance(decoded, TopicRecord) and decoded.name in COORDINATORS:
                found.add(decoded.topic_id)
    return found


def _until(log: PartitionLog, cut_ms: int | None) -> Iterator[tuple[int, bytes]]:
    """Yields the batches of a partition up to a time; None: all batches."""
    for base, batch in log.batches():
        if cut_ms is not None and offsets_and_timestamp(batch)[2] > cut_ms:
            return
        yield base, batch
