"""Sources of events: the log of a closed data folder, or the topics of a running server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import kcore
from kcore.broker.metadata.names import CLUSTER_METADATA, METADATA_TOPIC_ID
from kcore.cluster.store import METADATA
from kcore.cluster.urls import open_store
from kcore.errors import KcoreError
from kcore.inspect.events import Event, decode_batch
from kcore.log import LmdbLogEngine, PartitionKey, check_folder
from kcore.log.shared_engine import SharedLogEngine
from kcore.node.types import TopicPartition
from kcore.protocol.records.metadata import RemoveTopicRecord, TopicRecord, decode_metadata_record
from kcore_ext.batch import iter_records, parse_header, split_batches

if TYPE_CHECKING:
    from kcore.log import LogEngine, PartitionLog

FETCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of events.

    Attributes:
        topics: the selected topics; empty: all.
        partitions: the selected partitions; empty: all.
        from_offset: the first offset.
        to_offset: the offset before which to stop; None: the end.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    from_offset: int = 0
    to_offset: int | None = None

    def wants(self, topic: str, partition: int) -> bool:
        """Returns True if any event of a partition is selected."""
        return (not self.topics or topic in self.topics) and (not self.partitions or partition in self.partitions)

    def missing(self, existing: Iterable[str]) -> list[str]:
        """Returns the selected topics that do not exist."""
        return sorted(set(self.topics).difference(existing))

    def require(self, existing: Iterable[str]) -> None:
        """Raises KcoreError if a selected topic does not exist."""
        if missing := self.missing(existing):
            raise KcoreError(f"these topics do not exist: {', '.join(missing)}")

    def require_partitions(self, existing: Iterable[tuple[str, int]]) -> None:
        """Raises KcoreError if a selected partition exists in no selected topic.

        Args:
            existing: the topic and the number of each existing partition.
        """
        found = {partition for topic, partition in existing if not self.topics or topic in self.topics}
        missing = sorted(set(self.partitions) - found)
        if missing:
            topics = ", ".join(sorted(set(self.topics))) or "any topic"
            highest = f"; the highest partition is {max(found)}" if found else ""
            raise KcoreError(f"these partitions do not exist in {topics}: {', '.join(map(str, missing))}{highest}")

    def within(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yields the selected events of a partition."""
        for event in events:
            if event.offset >= self.from_offset and (self.to_offset is None or event.offset < self.to_offset):
                yield event


def folder_events(path: str | Path, selection: Selection) -> Iterator[Event]:
    """Yields the events of a data folder that no server has open, by topic, partition and offset.

    Raises:
        DataFolderError: the folder cannot be opened.
        KcoreError: a selected topic or partition does not exist.
        CorruptLogError: a batch is damaged; the batches before it were yielded.
    """
    check_folder(path)
    engine = LmdbLogEngine(path, create=False)
    try:
        names = topic_names(engine)
        selection.require(names.values())
        selection.require_partitions((names.get(key.topic_id, ""), key.partition) for key in engine.partitions())
        for key in sorted(engine.partitions(), key=lambda key: (names.get(key.topic_id, ""), key.partition)):
            topic = names.get(key.topic_id)
            if topic is None or not selection.wants(topic, key.partition):
                continue
            yield from _read(engine.open(key), topic, key.partition, selection)
    finally:
        engine.close()


def cluster_events(url: str, selection: Selection) -> Iterator[Event]:
    """Yields the events in the store of a cluster, by topic, partition and offset. The nodes of the cluster may run.

    Leaves out events that were written to a partition after its first event was read.

    Raises:
        ConfigError: no kind of store has this scheme, or a package that it needs is not installed.
        LogError: the store cannot be reached, or a batch is damaged.
        KcoreError: a selected topic or partition does not exist.
    """
    with closing(open_store(url)) as store:
        engine = SharedLogEngine(store.reader())
        engine.follow(METADATA)
        names = topic_names(engine)
        selection.require(names.values())
        keys = [row.key for row in store.leaders() if row.key.topic_id in names]
        selection.require_partitions((names[key.topic_id], key.partition) for key in keys)
        for key in sorted(keys, key=lambda key: (names[key.topic_id], key.partition)):
            topic = names[key.topic_id]
            log = engine.follow(key) if selection.wants(topic, key.partition) else None
            if log is not None:
                yield from _read(log, topic, key.partition, selection)


def _read(log: PartitionLog, topic: str, partition: int, selection: Selection) -> Iterator[Event]:
    """Yields the selected events of a log."""
    start = max(selection.from_offset, log.log_start_offset)
    if start < log.high_watermark:
        for _, batch in log.batches(start, selection.to_offset):
            yield from selection.within(decode_batch(topic, partition, batch))


def topic_names(engine: LogEngine) -> dict[bytes, str]:
    """Reads the names of existing topics from the metadata log."""
    names = {METADATA_TOPIC_ID: CLUSTER_METADATA}
    log = engine.get(PartitionKey(METADATA_TOPIC_ID, 0))
    for _, batch in log.batches() if log is not None else ():
        for record in iter_records(batch):
            metadata = None if record.value is None else decode_metadata_record(record.value)
            if isinstance(metadata, TopicRecord):
                names[metadata.topic_id] = metadata.name
            elif isinstance(metadata, RemoveTopicRecord):
                names.pop(metadata.topic_id, None)
    return names


def server_events(node: kcore.Node, selection: Selection) -> Iterator[Event]:
    """Fetches the events of a cluster's topics from the partitions' leaders, by topic, partition and offset.

    Raises:
        KafkaError: a server refuses the request, for example because the client may not describe a selected topic.
        KcoreError: a selected topic or partition does not exist.
        ConnectionClosedError: no server can be reached.
    """
    topics = node.topics.describe()
    for name in selection.missing(topic.name for topic in topics):
        # The list lacks topics that the client may not describe. The error for a name tells them from missing topics.
        node.topics.describe(name, missing_ok=True)
    selection.require(topic.name for topic in topics)
    selection.require_partitions((topic.name, row.partition) for topic in topics for row in topic.partitions)
    wanted = [
        TopicPartition(topic.name, row.partition)
        for topic in topics
        for row in topic.partitions
        if row.leader is not None and selection.wants(topic.name, row.partition)
    ]
    starts = node.topics.start_offsets(wanted)
    ends = node.topics.end_offsets(wanted, isolation="read_uncommitted")
    for partition in sorted(starts.keys() & ends.keys()):
        end = ends[partition] if selection.to_offset is None else min(ends[partition], selection.to_offset)
        yield from _fetched(node, partition, max(selection.from_offset, starts[partition]), end, selection)


def _fetched(
    node: kcore.Node, partition: TopicPartition, position: int, end: int, selection: Selection
) -> Iterator[Event]:
    topic = node.topics[partition.topic]
    while position < end:
        records = topic.read_batches(partition.partition, position, max_bytes=FETCH_BYTES)
        found = split_batches(records)
        if not found.batches:
            return
        for start, size_bytes in found.batches:
            batch = records[start : start + size_bytes]
            yield from selection.within(decode_batch(*partition, batch))
            position = parse_header(batch).next_offset
