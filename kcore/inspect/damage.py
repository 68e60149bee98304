"""Assesses stored batches for a repair: batches that cannot be loaded, their contents, and missing topics.

The log checks only the bytes and offsets of batches. This module also checks the rules of the components that load the
batches: records must be decodable, and the metadata must name each topic before its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kcore.broker.metadata.internal_topics import internal_topic
from kcore.broker.metadata.names import CLUSTER_METADATA, INTERNAL_TOPICS, METADATA_TOPIC_ID
from kcore.broker.metadata.records import producer_ids_record, topic_records
from kcore.config.node import Config
from kcore.errors import KcoreError
from kcore.inspect.rehearsal import REHEARSED, Rehearsal
from kcore.log import EpochEntry, PartitionKey
from kcore.log.repair_partition import Loss, PartitionPlan
from kcore.log.repair_plan import Plan
from kcore.log.write_set import PartitionMeta
from kcore.protocol import DecodeError
from kcore.protocol.compression import decompress
from kcore.protocol.records import CONSUMER_OFFSETS, TRANSACTION_STATE, UnknownRecord, decode_key, decode_value
from kcore.protocol.records.metadata import (
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
)
from kcore.protocol.schema import Struct
from kcore.runtime.machine import Record
from kcore_ext.batch import BatchBuilder, CorruptBatchError, iter_entries, parse_header, validate

MAX_BATCH_BYTES = 1 << 20
PRODUCER_IDS_AHEAD = 1_000
"""The size of the blocks in which producer ids are allocated. A partly used block counts as used."""
_UNREADABLE = (KcoreError, CorruptBatchError, DecodeError, ValueError, IndexError, OverflowError, MemoryError)

Batches = Callable[[PartitionPlan], Iterator[tuple[int, bytes]]]


class FolderRules:
    """The rules for the repair of one damaged folder; implements `kcore.log.repair_plan.RepairRules`.

    Attributes:
        names: topic id -> name, including deleted topics.
    """

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {METADATA_TOPIC_ID: CLUSTER_METADATA}
        self._partitions: dict[bytes, int] = {}
        self._node_id = 1
        self._next_producer_id = 0
        self._highest_producer_id = -1
        self._rehearsal: Rehearsal | None = None

    def refusal(self, key: PartitionKey, base: int, batch: bytes) -> str | None:
        """Returns the reason why an undamaged batch cannot be loaded, or None."""
        try:
            validate(batch, decompress=decompress)
            header = parse_header(batch)
            self._highest_producer_id = max(self._highest_producer_id, header.producer_id)
            topic = self.names.get(key.topic_id)
            if topic == CLUSTER_METADATA:
                return self._judge_metadata(batch)
            if topic in INTERNAL_TOPICS and not header.is_control:
                for offset, _, name, value in iter_entries(batch, decompress=decompress):
                    try:
                        _decode(str(topic), name, value)
                    except DecodeError as error:
                        return f"the record at {offset} cannot be read: {error}"
            if topic in REHEARSED:
                return self._rehearse(str(topic), key, batch)
        except CorruptBatchError as error:
            return f"its records cannot be read: {error.reason}"
        return None

    def _rehearse(self, topic: str, key: PartitionKey, batch: bytes) -> str | None:
        if self._rehearsal is None:
            self._rehearsal = Rehearsal()
        return self._rehearsal.refusal(topic, key, batch)

    def close(self) -> None:
        """Closes the engine in memory that tested coordinator records, if it was used."""
        if self._rehearsal is not None:
            self._rehearsal.close()
            self._rehearsal = None

    def _judge_metadata(self, batch: bytes) -> str | None:
        """Refuses a batch that would make the load fail: an unknown record, or a partition of a missing topic."""
        names, partitions = dict(self.names), dict(self._partitions)
        for offset, _, _, value in iter_entries(batch, decompress=decompress):
            try:
                refusal = self._apply(decode_metadata_record(value or b""), names, partitions)
            except DecodeError as error:
                refusal = f"cannot be read: {error}"
            if refusal is not None:
                return f"the record at {offset} {refusal}"
        self.names, self._partitions = names, partitions
        return None

    def _apply(self, record: MetadataRecord, names: dict[bytes, str], partitions: dict[bytes, int]) -> str | None:
        if isinstance(record, TopicRecord):
            names[record.topic_id] = record.name
            partitions.setdefault(record.topic_id, 0)
        elif isinstance(record, PartitionRecord):
            count = partitions.get(record.topic_id)
            if count is None or record.partition_id > count:
                return f"is partition {record.partition_id} of a topic that has {count or 'no'} partitions"
            partitions[record.topic_id] = max(count, record.partition_id + 1)
            self._node_id = record.replicas[0] if record.replicas else self._node_id
        elif isinstance(record, RemoveTopicRecord):
            if record.topic_id not in partitions:
                return "deletes a topic that does not exist"
            del partitions[record.topic_id]
        elif isinstance(record, ProducerIdsRecord):
            self._next_producer_id = max(self._next_producer_id, record.next_producer_id)
        return None

    # ---- lost metadata

    def amend(self, plan: Plan, batches: Batches) -> None:
        """Restores the lost metadata of topics whose partitions exist.

        If the log contains producer ids that the metadata does not record as allocated, records their allocation.
        """
        by_topic: dict[bytes, list[PartitionPlan]] = {}
        for partition in plan.partitions:
            topic_id = partition.key.topic_id
            if topic_id != METADATA_TOPIC_ID and topic_id not in self._partitions:
                by_topic.setdefault(topic_id, []).append(partition)
        records: list[Record] = []
        lost = _lost_topics(plan.losses)
        taken = {self.names[topic_id] for topic_id in self._partitions}
        for topic_id, partitions in by_topic.items():
            name = lost.get(topic_id) or self._guess(partitions, batches) or f"recovered-{topic_id.hex()}"
            if name in taken:
                name = f"recovered-{topic_id.hex()}"
            taken.add(name)
            self.names[topic_id] = name
            made_with = internal_topic(name, Config())
            count = max(partition.key.partition for partition in partitions) + 1
            settings = {} if made_with is None else made_with.settings
            records += topic_records(name, topic_id, settings, [[self._node_id]] * count)
            detail = (
                f"the topic's metadata is lost: the repair creates the topic again as {name!r} with {count} partitions"
            )
            plan.losses.append(Loss(PartitionKey(topic_id, 0), None, None, None, "metadata", detail))
        if self._highest_producer_id >= self._next_producer_id and plan.losses:
            block_end = (self._highest_producer_id // PRODUCER_IDS_AHEAD + 1) * PRODUCER_IDS_AHEAD
            records.append(producer_ids_record(self._node_id, block_end))
        if records:
            _append_metadata(plan, records)

    def _guess(self, partitions: list[PartitionPlan], batches: Batches) -> str | None:
        """Returns the internal topic to which partitions probably belong, judged by their first records.

        Returns None if no record shows the topic.
        """
        for partition in partitions:
            for _, batch in batches(partition):
                if not parse_header(batch).record_count or parse_header(batch).is_control:
                    continue
                for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
                    try:
                        pairs = [(name, value) for _, _, name, value in iter_entries(batch, decompress=decompress)]
                        if all(_decode(topic, name, value) for name, value in pairs):
                            return topic
                    except _UNREADABLE:
                        continue
                break
        return None


def _decode(topic: str, name: bytes | None, value: bytes | None) -> bool:
    """Decodes a coordinator record; returns True if its type is known. Raises DecodeError."""
    if name is None:
        return False
    typed = decode_key(topic, name)
    if isinstance(typed, UnknownRecord):
        return False
    if value is not None:
        decode_value(typed, value)
    return True


def _lost_topics(losses: list[Loss]) -> dict[bytes, str]:
    """Returns topic names from damaged metadata batches, as far as the batches are readable."""
    found = {}
    for loss in losses:
        if loss.partition is not None and loss.partition.topic_id == METADATA_TOPIC_ID and loss.batch:
            for _, value in _entries(loss.batch):
                try:
                    record = decode_metadata_record(value or b"")
                except _UNREADABLE:
                    continue
                if isinstance(record, TopicRecord) and record.name.isprintable() and 0 < len(record.name) < 250:
                    found[record.topic_id] = record.name
    return found


def _append_metadata(plan: Plan, records: list[Record]) -> None:
    """Appends records to the metadata log, in as many batches as they need. Creates the log if it is lost."""
    key = PartitionKey(METADATA_TOPIC_ID, 0)
    log = next((one for one in plan.partitions if one.key == key), None)
    if log is None:
        number = plan.take_number()
        log = PartitionPlan(key, PartitionMeta(number, 0, (), None))
        plan.partitions.append(log)
    if not log.meta.epochs:
        log.meta = log.meta._replace(epochs=(EpochEntry(0, log.end_offset),))
    builder = BatchBuilder(MAX_BATCH_BYTES, base_timestamp_ms=0)
    for record in records:
        assert record.value is not None, "the metadata log has no tombstones"
        value = record.value.encode_value(record.version)
        if not builder.append(0, None, value):
            log.append(builder.build(log.end_offset, log.meta.epochs[-1].epoch), builder.count)
            builder = BatchBuilder(MAX_BATCH_BYTES, base_timestamp_ms=0)
            builder.append(0, None, value)
    log.append(builder.build(log.end_offset, log.meta.epochs[-1].epoch), builder.count)
    log.changed = True


# ---- contents of a loss


def contents(loss: Loss, topic: str | None, limit: int) -> list[str]:
    """Describes the readable records of a damaged batch. The text of a coordinator record has only its key."""
    found: list[str] = []
    for name, value in _entries(loss.batch):
        if len(found) == limit:
            break
        found.append(_describe(topic, name, value))
    return found


def _entries(batch: bytes) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yields keys and values of a batch that may be damaged, up to the first unreadable record."""
    if not batch:
        return
    try:
        for _, _, name, value in iter_entries(batch, decompress=decompress):
            yield name, value
    except _UNREADABLE:
        return


def _describe(topic: str | None, name: bytes | None, value: bytes | None) -> str:
    try:
        if topic == CLUSTER_METADATA:
            record = decode_metadata_record(value or b"")
            shown = getattr(record, "name", None) or getattr(record, "resource_name", None) or ""
            return f"{type(record).__name__.removesuffix('Record')} {shown}".strip()
        if topic in INTERNAL_TOPICS and name is not None:
            typed = decode_key(str(topic), name)
            if isinstance(typed, Struct):
                fields = " ".join(f"{one.name}={getattr(typed, one.name)}" for one in type(typed).FIELDS)
                return f"{type(typed).__name__.removesuffix('Key')} {fields}"
    except _UNREADABLE:
        pass
    text = name if name is not None else value
    return "null" if text is None else repr(text[:60])
