"""`kcore log verify`: detects damage in a data folder."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import closing

from kcore.broker.compaction.check import check_compacted, check_records, check_rehearsed
from kcore.broker.metadata.names import CLUSTER_METADATA, INTERNAL_TOPICS, METADATA_TOPIC_ID
from kcore.cli import output
from kcore.cluster.store import METADATA
from kcore.cluster.urls import is_store_url, open_store
from kcore.config.paths import check_path
from kcore.errors import KafkaError, KcoreError
from kcore.log import Finding, LmdbLogEngine, LogEngine, PartitionKey, PartitionLog, verify_folder
from kcore.log.errors import CorruptLogError, DataFolderError, FailureReason, LogError
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.verify import verify_columns, verify_partition
from kcore.log.write_set import StoredPartition
from kcore.printable import counted
from kcore.protocol import DecodeError
from kcore.protocol.compression import decompress
from kcore.protocol.records import CONSUMER_OFFSETS, TRANSACTION_STATE, UnknownRecord, decode_key, decode_value
from kcore.protocol.records.metadata import RemoveTopicRecord, TopicRecord, decode_metadata_record
from kcore_ext.batch import CorruptBatchError, iter_entries, parse_header

ATTEMPTS = 5
"""Maximum number of checks of one partition. A check is repeated if the partition's leader changed the partition
meanwhile."""

SNAPSHOTTED = (CONSUMER_OFFSETS, TRANSACTION_STATE)
"""Names of the topics whose compacted logs contain the state of coordinators."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the action's arguments."""
    parser.add_argument(
        "data", metavar="DIR", help="a data folder that no server has open, or the URL of a cluster's store"
    )
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints each finding with its partition and offset. Returns 1 if there are findings, else 0."""
    check_path("DIR", options.data)
    findings, names, partitions = (verify_store if is_store_url(options.data) else verify)(options.data)
    rows = [(partition_name(finding, names), finding.offset, finding.kind, finding.detail) for finding in findings]
    if rows or options.format == "json":
        output.print_rows(("partition", "offset", "finding", "detail"), rows, options.format)
    else:
        print(f"no findings in {counted(partitions, 'partitions')}")
    return 1 if rows else 0


def partition_name(finding: Finding, names: dict[bytes, str]) -> str | None:
    """Returns `topic-0`, or the topic's id if its name is unknown; None for a finding without a partition."""
    key = finding.partition
    return None if key is None else f"{names.get(key.topic_id, key.topic_id.hex())}-{key.partition}"


def verify(path: str) -> tuple[list[Finding], dict[bytes, str], int]:
    """Checks a folder completely: its pages, every batch, every record, and the results of compaction.

    Args:
        path: the folder; no process may have it open.

    Returns:
        The findings, the topic names by id, and the number of partitions.

    Raises:
        DataFolderError: the folder cannot be opened at all.
    """
    findings = verify_folder(path)
    engine = LmdbLogEngine(path, create=False, allow_orphans=True)
    try:
        keys = engine.partitions()
        names = _topic_names(engine.get(PartitionKey(METADATA_TOPIC_ID, 0)))
        damaged = {finding.partition for finding in findings}
        for key in keys:
            log = engine.get(key)
            # Skip record checks if the bytes of a log are damaged.
            if log is not None and key not in damaged:
                findings += _check(engine, log, names.get(key.topic_id))
        return findings, names, len(keys)
    finally:
        engine.close()


def verify_store(url: str) -> tuple[list[Finding], dict[bytes, str], int]:
    """Checks the logs in the store of a cluster: every batch, every record, and the results of compaction.

    The nodes may run. If the leader of a partition deletes or compacts batches meanwhile, the check is repeated.

    Args:
        url: the store's URL.

    Returns:
        The findings, the topic names by id, and the number of partitions.

    Raises:
        ConfigError: no kind of store has this scheme, or a package that it needs is not installed.
        LogError: the store cannot be reached.
    """
    with closing(open_store(url)) as store:
        findings = store.damaged_rows()
        damaged = {finding.partition for finding in findings}
        engine = SharedLogEngine(store.reader())
        try:
            names = {} if METADATA in damaged else _topic_names(engine.follow(METADATA))
            keys = [row.key for row in store.leaders()]
            findings += _stray_entries(engine, findings)
        except (LogError, DataFolderError) as error:
            # Without the names and keys of all partitions, those that can be read are not checked.
            found = _unreadable(None, error)
            return [*findings, *([] if found in findings else [found])], {}, 0
        for key in keys:
            if key not in damaged:
                findings += _verify_stored(engine, key, names.get(key.topic_id))
    return findings, names, len(keys)


def _stray_entries(engine: SharedLogEngine, damaged_rows: list[Finding]) -> list[Finding]:
    """Returns the findings about batches of unknown partitions. If rows of partitions are damaged, these batches cannot
    be recognized, and the result is empty.
    """
    try:
        return engine.shared.stray_entries({})
    except DataFolderError as error:
        return [] if damaged_rows else [_unreadable(None, error)]


def _unreadable(key: PartitionKey | None, error: LogError | DataFolderError) -> Finding:
    """Returns the finding for an error of a read. Raises the error again if damage is not its reason."""
    if isinstance(error, CorruptLogError):
        return Finding(key, error.offset, "storage", error.what)
    if isinstance(error, LogError) and error.reason is not FailureReason.CORRUPT:
        raise error
    return Finding(key, None, "storage", str(error))


def _verify_stored(engine: SharedLogEngine, key: PartitionKey, topic: str | None) -> list[Finding]:
    """Checks one partition of a cluster, again if its leader changes it meanwhile."""
    found: list[Finding] = []
    for _ in range(ATTEMPTS):
        try:
            before = engine.shared.look_up(key)
            found = [] if before is None else _check_stored(engine, before, topic)
            after = engine.shared.look_up(key) if found else before
        except (LogError, DataFolderError) as error:
            return [_unreadable(key, error)]
        if not found or (before is not None and after is not None and before.meta == after.meta):
            break
    return found


def _check_stored(engine: SharedLogEngine, stored: StoredPartition, topic: str | None) -> list[Finding]:
    """Checks one partition of a cluster."""
    findings = verify_partition(engine.shared, stored.key, stored.meta, stored.end_offset, deep=True)
    findings = findings or verify_columns(engine.shared, stored.key, stored.meta, stored.end_offset)
    return findings or list(_check(engine, engine.show(stored), topic))


def _check(engine: LogEngine, log: PartitionLog, topic: str | None) -> Iterator[Finding]:
    if log.log_start_offset >= log.high_watermark:
        return
    offset = log.log_start_offset
    try:
        unreadable = list(check_records(log))
        yield from unreadable
        if unreadable:
            return
        yield from check_compacted(log)
        if topic in INTERNAL_TOPICS:
            yield from _decode(log, topic)
        if topic in SNAPSHOTTED:
            yield from check_rehearsed(engine, log, time.time_ns() // 1_000_000)
    except (KcoreError, KafkaError, CorruptBatchError) as error:
        yield Finding(log.key, offset, "storage", str(error))


def _decode(log: PartitionLog, topic: str) -> Iterator[Finding]:
    """Yields a finding for each coordinator record that cannot be decoded; such a record makes a load fail."""
    for _, batch in log.batches(check_crc=False):
        if parse_header(batch).is_control:
            continue
        for offset, _, key, value in iter_entries(batch, decompress=decompress):
            try:
                typed = None if key is None else decode_key(topic, key)
                if typed is not None and value is not None and not isinstance(typed, UnknownRecord):
                    decode_value(typed, value)
            except DecodeError as error:
                yield Finding(log.key, offset, "record", f"a record of {topic} cannot be decoded: {error}")


def _topic_names(log: PartitionLog | None) -> dict[bytes, str]:
    """Reads topic names by id, as far as the metadata log is readable, including the names of deleted topics."""
    names = {METADATA_TOPIC_ID: CLUSTER_METADATA}
    try:
        for _, batch in log.batches() if log is not None else ():
            for _, _, _, value in iter_entries(batch):
                metadata = None if value is None else decode_metadata_record(value)
                if isinstance(metadata, TopicRecord):
                    names[metadata.topic_id] = metadata.name
                elif isinstance(metadata, RemoveTopicRecord):
                    names.setdefault(metadata.topic_id, metadata.topic_id.hex())
    except (KcoreError, CorruptBatchError, DecodeError, ValueError):
        pass  # the findings of that log report the cause
    return names
