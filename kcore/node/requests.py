"""Requests and responses of the client API: built and read without I/O, shared by both API styles."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kcore.client.consumer_coordinator.interface import OffsetAndMetadata
from kcore.client.fetching import Unvalidated
from kcore.client.isolation import isolation_level
from kcore.client.share_consumer import Acquired
from kcore.errors import KafkaError, raise_partition_errors
from kcore.node.arguments import (
    MAX_COUNT,
    MAX_OFFSET,
    MAX_PARTITION,
    check_number,
    check_offsets,
    check_text,
    is_whole,
)
from kcore.node.types import LONGEST_TOPIC, Offsets, PartitionDict, Record, SharePosition, as_partitions
from kcore.protocol.compression import CompressionType, compress, decompress
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsResponse
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kcore.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kcore.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.batch import BatchBuilder, CorruptBatchError, iter_records, parse_header, split_batches, validate_crc
from kcore_ext.client.fetched import FetchedRecords, reuse_memory

reuse_memory(Record)

RECORD_OVERHEAD_BYTES = 64
"""Upper bound, in bytes, of the size of a record without its key, value and headers."""
BATCH_OVERHEAD_BYTES = 100
HEADER_OVERHEAD_BYTES = 16
UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1
LIST_OFFSETS_TIMEOUT_MS = 30_000  # for brokers that read the offsets from a remote storage
MAX_DECOMPRESSED_BYTES = 64 << 20
"""Number of decompressed bytes after which a consumer drops the other batches of a response, and fetches them again."""
NEW_TOPIC_TIMEOUT_S = 10.0
"""The longest time in seconds for which a client waits until a topic that it has just created has leaders."""
SESSIONLESS = -1  # the session epoch of a Fetch without a session


def error_about(code: int, subject: str) -> KafkaError:
    """Returns the error of a code. Its message names the object and has the default text of the code.

    Args:
        code: the error code of a response that has no message.
        subject: the object: "topic 'orders'".
    """
    error = KafkaError.of(code)
    return KafkaError.of(code, f"{subject}: {error.code.message}" if error.code == code else subject)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Groups partition numbers by topic."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


# ---- offsets


def to_commit(offset: Any) -> OffsetAndMetadata:
    """Converts an offset to commit, which callers may write as a number.

    Raises:
        TypeError: the offset is neither an int nor an OffsetAndMetadata.
        ValueError: the offset is negative or too large, or its metadata are too long.
    """
    return _to_offset("the offset to commit", "an int or an OffsetAndMetadata", offset)


def to_position(offset: Any) -> OffsetAndMetadata:
    """Converts the offset of a position, which callers may write as a number. Refuses a datetime.

    Raises:
        TypeError: the offset is neither an int nor an OffsetAndMetadata.
        ValueError: the offset is negative or too large.
    """
    return _to_offset("the offset of the position", "an int, an OffsetAndMetadata or a datetime", offset)


def _to_offset(what: str, valid: str, offset: Any) -> OffsetAndMetadata:
    converted = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
    if not isinstance(converted, OffsetAndMetadata) or not is_whole(converted.offset):
        raise TypeError(f"{what} is {offset!r}; valid: {valid}")
    if not 0 <= converted.offset <= MAX_OFFSET:
        raise ValueError(f"{what} is {converted.offset}; valid: the offset of the next record, 0 or more")
    if converted.metadata is not None and not isinstance(converted.metadata, str):
        raise TypeError(f"{what} has the metadata {converted.metadata!r}; valid: a string")
    if converted.metadata:  # most offsets have none, and a consumer commits many offsets
        check_text("metadata", converted.metadata)
    if converted.leader_epoch is not None:
        check_number("the leader epoch of an offset", converted.leader_epoch, MAX_COUNT)
    return converted


def _commit_entry(topic: str, partition: int, offset: int | OffsetAndMetadata) -> OffsetCommitRequestPartition:
    if not (isinstance(topic, str) and is_whole(partition) and 0 <= partition <= MAX_PARTITION):
        raise ValueError(f"{(topic, partition)!r} is not a partition")
    if len(topic) > LONGEST_TOPIC or not topic.isascii():
        check_text("the name of a topic", topic)
    if type(offset) is int and 0 <= offset <= MAX_OFFSET:
        return OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    offset = to_commit(offset)
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def commit_request(
    group_id: str, offsets: Offsets, member_id: str = "", epoch: int = -1, instance_id: str | None = None
) -> OffsetCommitRequest:
    """Builds an OffsetCommit request.

    Raises:
        TypeError: a key is not a partition, or a value is not an offset.
        ValueError: a partition or an offset is negative or too large, or a text is too long.
    """
    try:
        if len(offsets) == 1:
            ((topic, partition), offset) = next(iter(offsets.items()))
            topics = [OffsetCommitRequestTopic(name=topic, partitions=[_commit_entry(topic, partition, offset)])]
        else:
            grouped: dict[str, list[OffsetCommitRequestPartition]] = {}
            for (topic, partition), offset in offsets.items():
                grouped.setdefault(topic, []).append(_commit_entry(topic, partition, offset))
            topics = [OffsetCommitRequestTopic(name=topic, partitions=listed) for topic, listed in grouped.items()]
    except ValueError:  # a key is not a pair of a text and a number
        as_partitions(offsets)
        raise
    except AttributeError:
        check_offsets(offsets)
        raise
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=topics,
    )


def check_commit(action: str, response: Any, total: int) -> None:
    """Raises the errors of an OffsetCommit or TxnOffsetCommit response.

    Raises LookupError if the response lacks partitions.
    """
    rows = 0
    for topic in response.topics:
        rows += len(topic.partitions)
        for row in topic.partitions:
            if row.error_code:
                codes = {
                    TopicPartition(each.name, entry.partition_index): entry.error_code
                    for each in response.topics
                    for entry in each.partitions
                }
                raise_partition_errors(action, codes, total)
    if rows < total:
        raise LookupError(f"the response has the results of {rows} of {total} partitions")


def offset_fetch_request(
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    stable: bool,
    member_id: str | None = None,
    epoch: int = -1,
) -> OffsetFetchRequest:
    """Builds a request for committed offsets; None requests all partitions of the group."""
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    group = OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=epoch, topics=topics)
    return OffsetFetchRequest(groups=[group], require_stable=bool(stable))


def committed_offsets(response: OffsetFetchResponse) -> PartitionDict[OffsetAndMetadata]:
    """Reads the committed offsets of one group; partitions without a committed offset are left out.

    Raises:
        KafkaError, PartitionErrors: the server refused the request.
    """
    (group,) = response.groups
    return _committed(group)


def committed_of_groups(response: OffsetFetchResponse) -> dict[str, PartitionDict[OffsetAndMetadata]]:
    """Reads the committed offsets of several groups; partitions without a committed offset are left out.

    Raises:
        KafkaError, PartitionErrors: the server refused a group.
    """
    return {group.group_id: _committed(group) for group in response.groups}


def _committed(group: Any) -> PartitionDict[OffsetAndMetadata]:
    if group.error_code:
        raise error_about(group.error_code, f"offsets of group {group.group_id!r}")
    offsets: PartitionDict[OffsetAndMetadata] = PartitionDict()
    codes: dict[TopicPartition, int] = {}
    total = 0
    for topic in group.topics:
        for row in topic.partitions:
            total += 1
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                codes[partition] = row.error_code
            elif row.committed_offset >= 0:
                epoch = None if row.committed_leader_epoch < 0 else row.committed_leader_epoch
                offsets[partition] = OffsetAndMetadata(row.committed_offset, row.metadata or "", epoch)
    raise_partition_errors(f"fetch of the committed offsets of group {group.group_id!r}", codes, total)
    return offsets


def pending_offsets(response: OffsetFetchResponse) -> set[TopicPartition]:
    """Returns the partitions with a pending offset, which an open transaction will commit.

    The response must belong to a request with `require_stable`.

    Raises:
        KafkaError, PartitionErrors: the server refused the request.
    """
    (group,) = response.groups
    if group.error_code:
        raise error_about(group.error_code, f"offsets of group {group.group_id!r}")
    codes = {
        TopicPartition(topic.name, row.partition_index): row.error_code
        for topic in group.topics
        for row in topic.partitions
    }
    pending = {partition for partition, code in codes.items() if code == ErrorCode.UNSTABLE_OFFSET_COMMIT}
    others = {
        partition: code
        for partition, code in codes.items()
        if code not in (ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    }
    raise_partition_errors(f"fetch of the pending offsets of group {group.group_id!r}", others, len(codes))
    return pending


def share_positions(response: DescribeShareGroupOffsetsResponse) -> PartitionDict[SharePosition]:
    """Reads start offset and lag of a share group's partitions.

    Raises:
        KafkaError, PartitionErrors: the server refused the request.
    """
    (group,) = response.groups
    if group.error_code:
        raise KafkaError.of(group.error_code, group.error_message)
    rows = {
        TopicPartition(topic.topic_name, row.partition_index): row for topic in group.topics for row in topic.partitions
    }
    codes = {partition: row.error_code for partition, row in rows.items()}
    raise_partition_errors(f"offsets of share group {group.group_id!r}", codes, len(rows))
    positions: PartitionDict[SharePosition] = PartitionDict()
    for partition, row in sorted(rows.items()):
        start = None if row.start_offset == UNKNOWN_OFFSET else row.start_offset
        positions[partition] = SharePosition(start, None if row.lag == UNKNOWN_OFFSET else row.lag)
    return positions


# ---- offsets of a log


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int],
    isolation: str,
    epoch_of: Callable[[TopicPartition], int] = lambda _: UNKNOWN_EPOCH,
) -> ListOffsetsRequest:
    """Builds a request for the offsets at timestamps.

    Args:
        timestamps: partition -> a time in milliseconds; -1 is the end and -2 the start of a log.
        isolation: "read_committed" or "read_uncommitted".
        epoch_of: returns the leader epoch of a partition, by which a broker detects stale metadata.
    """
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in timestamps.items():
        epoch = epoch_of(TopicPartition(topic, partition))
        row = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
        topics.setdefault(topic, []).append(row)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level(isolation),
        topics=[ListOffsetsTopic(name=topic, partitions=rows) for topic, rows in topics.items()],
        timeout_ms=LIST_OFFSETS_TIMEOUT_MS,
    )


def validation_request(positions: Mapping[TopicPartition, Unvalidated]) -> OffsetForLeaderEpochRequest:
    """Builds a request for the end offset of each position's leader epoch (KIP-320)."""
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for (topic, partition), position in positions.items():
        row = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=position.leader_epoch, leader_epoch=position.epoch
        )
        topics.setdefault(topic, []).append(row)
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=rows) for topic, rows in topics.items()]
    )


def listed_offsets(response: Any, total: int) -> dict[TopicPartition, int]:
    """Reads the offset of each partition from a ListOffsets response; -1 if no record has the timestamp or a later
    timestamp.
    """
    rows = {
        TopicPartition(topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions
    }
    raise_partition_errors("lookup of offsets", {key: row.error_code for key, row in rows.items()}, total)
    return {key: row.offset for key, row in rows.items()}


# ---- records


def record_size(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Returns an upper bound of the size of an encoded record.

    Raises:
        TypeError: a header is not a pair of a name and bytes. The error concerns only the append of this record.
            Without this check, the whole batch of the record would fail later.
    """
    if headers is None:
        raise TypeError("headers: None; valid: a list of pairs of a name (str) and a value (bytes or None)")
    size = RECORD_OVERHEAD_BYTES + (0 if key is None else len(key)) + (0 if value is None else len(value))
    for header in headers:
        match header:
            case (str(name), bytes() | None as data):
                size += HEADER_OVERHEAD_BYTES + 4 * len(name) + (0 if data is None else len(data))
            case _:
                raise TypeError(
                    f"{header!r} is not a header; valid: a pair of a name (str) and a value (bytes or None)"
                )
    return size


def build_batch(
    records: Sequence[tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]],
    compression: CompressionType,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    size_bytes: int = 0,
) -> bytes:
    """Builds a record batch from rows of timestamp in ms, key, value and headers.

    Args:
        records: the rows of the batch, in order.
        compression: the codec with which the batch is compressed.
        producer_id, producer_epoch, base_sequence, transactional: the fields of the batch's header.
        size_bytes: the sum of `record_size` of the records; 0: this function computes it.
    """
    size = BATCH_OVERHEAD_BYTES + (size_bytes or sum(record_size(*row[1:]) for row in records))
    builder = BatchBuilder(
        size,
        base_timestamp_ms=records[0][0],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        compression=int(compression),
        compress=compress,
    )
    for timestamp_ms, key, value, headers in records:
        if not builder.append(timestamp_ms, key, value, headers):
            raise AssertionError("the batch is too small for its records")
    return builder.build()


def produce_request(
    batches: Mapping[TopicPartition, bytes], acks: int, timeout_ms: int, transactional_id: str | None = None
) -> ProduceRequest:
    """Builds a request that appends one batch to each partition."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for (topic, partition), batch in batches.items():
        topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=batch))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=rows) for topic, rows in topics.items()],
    )


def fetch_request(
    positions: Mapping[TopicPartition, int], isolation: str, max_bytes: int, wait_ms: int, min_bytes: int = 1
) -> FetchRequest:
    """Builds a Fetch without a session."""
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, partition), offset in positions.items():
        entry = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        topics.setdefault(topic, []).append(entry)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level(isolation),
        session_epoch=SESSIONLESS,
        topics=[FetchTopic(topic=topic, partitions=rows) for topic, rows in topics.items()],
    )


def fetched_row(partition: TopicPartition, response: Any) -> Any:
    """Returns the entry of the only partition in a FetchResponse.

    Raises:
        KafkaError: the server refused the request.
    """
    if response.error_code:
        raise KafkaError.of(response.error_code)
    row = response.responses[0].partitions[0]
    if row.error_code:
        raise KafkaError.of(row.error_code, None, [partition])
    return row


def read_fetched(
    partition: TopicPartition,
    row: Any,
    position: int,
    committed: bool,
    most_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> FetchedRecords[Record]:
    """Reads the batches of a fetched partition from a position on.

    Batches beyond `most_bytes` of decompressed records are left out; the next fetch returns them.

    Args:
        partition: the topic and the partition number.
        row: the partition's entry in a FetchResponse.
        position: the first offset to return.
        committed: True to leave out the records of aborted transactions (KIP-98).
        most_bytes: the size of decompressed batches after which further batches are left out.

    Raises:
        CorruptMessageError: a batch is invalid, or does not match its checksum.
    """
    fetched = FetchedRecords(Record, *partition)
    aborted = None
    if committed and row.aborted_transactions:
        aborted = sorted(((entry.first_offset, entry.producer_id) for entry in row.aborted_transactions), reverse=True)
    try:
        fetched.add(row.records or b"", position, aborted, decompress, most_bytes)
    except CorruptBatchError as error:
        after = max(position, fetched.following)
        raise KafkaError.of(
            ErrorCode.CORRUPT_MESSAGE, f"the batch at or after offset {after} cannot be read: {error}", [partition]
        ) from error
    return fetched


def read_batches(partition: TopicPartition, row: Any, position: int, committed: bool) -> tuple[list[Record], int, int]:
    """Reads a fetched partition like `read_fetched`, and creates all of its records.

    Returns:
        The records, the offset after the last batch, and the leader epoch of the last batch.

    Raises:
        CorruptMessageError: a batch is invalid, or does not match its checksum.
    """
    fetched = read_fetched(partition, row, position, committed)
    return fetched.take(len(fetched)), max(position, fetched.following), fetched.leader_epoch


class AcquiredBatch(NamedTuple):
    """A record batch of a ShareFetchResponse, not decoded yet.

    Attributes:
        partition: the topic and the partition number.
        data: the encoded batch; empty if the response has no batch with the acquired offsets.
        acquired: the acquired offsets in the range of the batch: disjoint ascending ranges.
    """

    partition: TopicPartition
    data: bytes
    acquired: list[Acquired]

    def deliveries(self, offset: int) -> int | None:
        """Returns the number of deliveries of an offset; None if the offset was not acquired."""
        index = bisect_right(self.acquired, offset, key=_first) - 1
        return self.acquired[index].delivery_count if index >= 0 and offset <= self.acquired[index].last else None

    def gaps(self, offsets: Iterable[int]) -> list[tuple[int, int]]:
        """Returns the ranges of acquired offsets that are not in `offsets`, each as its first and last offset."""
        remaining = sorted(offsets, reverse=True)
        gaps: list[tuple[int, int]] = []
        for first, last, _ in self.acquired:
            begin = first
            while remaining and remaining[-1] <= last:
                offset = remaining.pop()
                if offset > begin:
                    gaps.append((begin, offset - 1))
                begin = max(begin, offset + 1)
            if begin <= last:
                gaps.append((begin, last))
        return gaps


def _first(acquired: Acquired) -> int:
    return acquired.first


def acquired_batches(partition: TopicPartition, row: Any, acquired: Iterable[Acquired]) -> list[AcquiredBatch]:
    """Groups the acquired offsets of a partition in a ShareFetchResponse by batch.

    The broker sends whole batches, so a batch may also have records that were not acquired.

    Args:
        partition: the topic and the partition number.
        row: the partition's entry in the response.
        acquired: the acquired offsets: disjoint ascending ranges.
    """
    data = row.records or b""
    remaining = list(acquired)[::-1]
    missing: list[Acquired] = []
    batches: list[AcquiredBatch] = []
    for start, size in split_batches(data).batches:
        header = parse_header(data, start)
        in_batch: list[Acquired] = []
        while remaining and remaining[-1].first <= header.last_offset:
            current = remaining.pop()
            before = min(current.last, header.base_offset - 1)
            if current.first <= before:
                missing.append(current._replace(last=before))
                current = current._replace(first=before + 1)
            last_inside = min(current.last, header.last_offset)
            if current.first <= last_inside:
                in_batch.append(current._replace(last=last_inside))
                current = current._replace(first=last_inside + 1)
            if current.first <= current.last:
                remaining.append(current)
        if in_batch:
            batches.append(AcquiredBatch(partition, data[start : start + size], in_batch))
    missing += remaining[::-1]
    if missing:
        batches.append(AcquiredBatch(partition, b"", missing))
    return batches


def read_acquired(batch: AcquiredBatch) -> list[Record]:
    """Reads the acquired records of a batch; offsets without a record are left out.

    Raises:
        CorruptMessageError: the batch does not match its checksum, is invalid, or its decompressed records are too
            large.
    """
    data, (topic, number) = batch.data, batch.partition
    if not data:
        return []
    try:
        validate_crc(data)
        if parse_header(data).is_control:
            return []
        return [
            Record(topic, number, one.offset, one.timestamp_ms, one.key, one.value, one.headers)
            for one in iter_records(data, decompress=decompress)
            if batch.deliveries(one.offset) is not None
        ]
    except CorruptBatchError as error:
        raise KafkaError.of(ErrorCode.CORRUPT_MESSAGE, str(error), [batch.partition]) from error
