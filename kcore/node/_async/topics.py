"""Topics: creation, settings, offsets, appending and reading."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from kcore.client import versions
from kcore.client.fetching import EARLIEST, LATEST
from kcore.client.partitioner import partition_of
from kcore.errors import KafkaError
from kcore.node._async.backend import monotonic, sleep
from kcore.node._async.calls import AsyncCalls
from kcore.node._async.record_deletion import delete_records
from kcore.node._async.settings import TOPIC, change_config, config_of, setting_text
from kcore.node.arguments import (
    check_count,
    check_mapping,
    check_offset,
    check_offsets,
    check_partition_number,
    check_span,
    check_text,
    codec_of,
    names_of,
)
from kcore.node.descriptions import described_topics
from kcore.node.requests import (
    NEW_TOPIC_TIMEOUT_S,
    build_batch,
    error_about,
    fetch_request,
    fetched_row,
    list_offsets_request,
    listed_offsets,
    produce_request,
    read_batches,
)
from kcore.node.types import (
    HeaderList,
    Isolation,
    Partition,
    Record,
    RecordMetadata,
    TopicDescription,
    TopicListing,
    TopicPartition,
    as_partition,
    as_partitions,
    to_bytes,
    to_ms,
    to_timestamp_ms,
)
from kcore.printable import counted
from kcore.protocol.compression import CompressionType
from kcore.protocol.error_codes import NEW_TOPIC_ERRORS, ErrorCode
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.protocol.messages.list_offsets import ListOffsetsRequest

logger = logging.getLogger(__name__)

ACKS_ALL = -1
ADMIN_TIMEOUT_MS = 30_000
PRODUCE_TIMEOUT_MS = 30_000
FETCH_BYTES = 8 << 20

DEFAULT_COUNT = -1
"""Number of partitions or replicas in a request that stands for the server's default."""


class AsyncTopics:
    """The topics of a node: `node.topics`."""

    __iter__ = None  # else Python would iterate without end over topics[0], topics[1], …

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return f"AsyncTopics({str(self._calls.transport)!r})"

    def __getitem__(self, name: str) -> AsyncTopic:
        """Returns a topic, without a request. Operations of a topic that does not exist raise an error.

        Raises:
            TypeError: the name is not a string.
        """
        check_text("the name of a topic", name)
        return AsyncTopic(self._calls, name)

    # sync: def __contains__(self, name: str) -> bool:
    # sync:     """Returns True if the topic exists."""
    # sync:     return self.exists(name)

    async def create(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication: int | None = None,
        config: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> AsyncTopic:
        """Creates a topic.

        Args:
            name: the name of the new topic.
            partitions: the number of partitions; None: the server's default.
            replication: the number of replicas; None: the server's default.
            config: settings by Kafka's names, for example `{"cleanup.policy": "compact"}`.
            exist_ok: True to accept an existing topic, without a change of its partitions and settings. The client logs
                a warning if the topic has another number of partitions; `grow` adds partitions.

        Returns:
            The topic, once its partitions have leaders.

        Raises:
            TopicAlreadyExistsError: the topic exists, and `exist_ok` is False.
            KafkaError: the server refused the request.
            TypeError, ValueError: an argument is not valid.
        """
        check_text("the name of a topic", name)
        for argument, number in (("partitions", partitions), ("replication", replication)):
            if number is not None and number != DEFAULT_COUNT:
                check_count(argument, number)
        if config is not None:
            check_mapping("config", config)
        settings = [
            CreatableTopicConfig(name=key, value=setting_text(key, value)) for key, value in (config or {}).items()
        ]
        topic = CreatableTopic(
            name=name,
            num_partitions=DEFAULT_COUNT if partitions is None else partitions,
            replication_factor=DEFAULT_COUNT if replication is None else replication,
            configs=settings,
        )

        def read(response: Any) -> bool:
            (row,) = response.topics
            if exist_ok and row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
            if row.error_code:
                raise KafkaError.of(row.error_code, row.error_message)
            return True

        created = await self._calls.call(CreateTopicsRequest(topics=[topic], timeout_ms=ADMIN_TIMEOUT_MS), read)
        result = AsyncTopic(self._calls, name)
        await result._wait_for_leaders(partitions if created and partitions is not None else 1)
        if not created and partitions not in (None, -1, result._partitions):
            logger.warning(
                "client: topic %r exists with %s instead of %d; grow() adds partitions",
                name,
                counted(result._partitions, "partitions"),
                partitions,
            )
        return result

    async def list(self, internal: bool = False) -> list[TopicListing]:
        """Returns the topics, sorted by name.

        Args:
            internal: True to include the server's internal topics.
        """
        response = await self._calls.metadata(None)
        listed = [
            TopicListing(row.name or "", row.topic_id, len(row.partitions), row.is_internal)
            for row in response.topics
            if not row.error_code and (internal or not row.is_internal)
        ]
        return sorted(listed, key=lambda topic: topic.name)

    async def describe(
        self, names: str | Iterable[str] | None = None, *, missing_ok: bool = False
    ) -> Sequence[TopicDescription]:
        """Returns topics with their partitions and leaders, sorted by name.

        Args:
            names: one topic or several; None: all topics, including the server's internal topics.
            missing_ok: True to leave out topics that do not exist.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist, and `missing_ok` is False.
        """
        response = await self._calls.metadata(None if names is None else names_of("names", names))
        return described_topics(response, missing_ok)

    async def start_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Returns the first offset of partitions. Partitions that do not exist or have no leader are left out."""
        return await self._offsets(partitions, EARLIEST, "read_uncommitted")

    async def end_offsets(
        self, partitions: Iterable[Partition], isolation: Isolation = "read_committed"
    ) -> dict[TopicPartition, int]:
        """Returns the end offsets of partitions: the offsets before which consumers can read.

        Args:
            partitions: pairs of topic and partition number. The result leaves out partitions that do not exist or have
                no leader.
            isolation: "read_committed": the last stable offset, below which all transactions have ended;
                "read_uncommitted": the high watermark.
        """
        return await self._offsets(partitions, LATEST, isolation)

    async def _offsets(
        self, partitions: Iterable[Partition], timestamp: int, isolation: str
    ) -> dict[TopicPartition, int]:
        listed = as_partitions(partitions)
        if not listed:
            return {}
        response = await self._calls.metadata({partition.topic for partition in listed})
        led = {
            TopicPartition(topic.name or "", row.partition_index)
            for topic in response.topics
            for row in topic.partitions
            if row.leader_id >= 0
        }
        existing = sorted(led.intersection(listed))
        return await offsets_of(self._calls, dict.fromkeys(existing, timestamp), isolation)

    async def delete_records(self, offsets: Mapping[Partition, int | None]) -> dict[TopicPartition, int]:
        """Deletes the records before offsets: `node.topics.delete_records({("jobs", 0): 42})`.

        Args:
            offsets: partition -> the offset of the first record to keep; None: all records are deleted.

        Returns:
            The start offset of each partition.

        Raises:
            OffsetOutOfRangeError: an offset is after the end of its partition.
            PolicyViolationError: the topic is compacted, and its "cleanup.policy" does not include "delete".
            KafkaError, PartitionErrors: the server refused partitions. The records of other partitions may be deleted.
        """
        check_offsets(offsets)
        return await delete_records(self._calls, {as_partition(each): offset for each, offset in offsets.items()})

    async def exists(self, name: str) -> bool:
        """Returns True if the topic exists."""
        check_text("the name of a topic", name)
        (row,) = (await self._calls.metadata([name])).topics
        if row.error_code and row.error_code not in NEW_TOPIC_ERRORS:
            raise error_about(row.error_code, f"topic {name!r}")
        return row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class AsyncTopic:
    """One topic: `node.topics["jobs"]`.

    Attributes:
        name: the topic's name.
    """

    def __init__(self, calls: AsyncCalls, name: str) -> None:
        self._calls = calls
        self.name = name
        self._partitions = 0  # the last known number of partitions

    def __repr__(self) -> str:
        return f"AsyncTopic({self.name!r})"

    # ---- administration

    async def describe(self) -> TopicListing:
        """Returns the topic's id and number of partitions.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        (row,) = (await self._calls.metadata([self.name])).topics
        if row.error_code:
            raise error_about(row.error_code, f"topic {self.name!r}")
        self._partitions = len(row.partitions)
        return TopicListing(self.name, row.topic_id, len(row.partitions), row.is_internal)

    async def partitions(self) -> list[TopicPartition]:
        """Returns the topic's partitions.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        return [TopicPartition(self.name, number) for number in range((await self.describe()).partitions)]

    async def _wait_for_leaders(self, partitions: int) -> None:
        """Waits until a broker returns the leaders of all partitions, for at most `NEW_TOPIC_TIMEOUT_S`."""
        until_s = monotonic() + NEW_TOPIC_TIMEOUT_S
        while True:
            (row,) = (await self._calls.metadata([self.name])).topics
            if row.error_code and row.error_code not in NEW_TOPIC_ERRORS:
                raise error_about(row.error_code, f"topic {self.name!r}")
            ready = [each for each in row.partitions if each.leader_id >= 0]
            if (len(ready) >= partitions and not row.error_code) or monotonic() > until_s:
                self._partitions = len(row.partitions)
                return
            await sleep(0.02)

    async def delete(self) -> None:
        """Deletes the topic with its records.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """

        def read(response: Any) -> None:
            (row,) = response.responses
            if row.error_code:
                raise KafkaError.of(row.error_code, row.error_message)

        newest = await self._calls.transport.newest(DeleteTopicsRequest)
        request = DeleteTopicsRequest(timeout_ms=ADMIN_TIMEOUT_MS)
        if newest >= versions.TOPICS_IN_STRUCTS:
            request.topics = [DeleteTopicState(name=self.name)]
        else:
            request.topic_names = [self.name]
        await self._calls.call(request, read, repeat=self._calls.local)

    async def grow(self, partitions: int) -> None:
        """Raises the number of partitions.

        Args:
            partitions: the new number of partitions.

        Raises:
            InvalidPartitionsError: the topic already has this number of partitions, or more.
            TypeError, ValueError: `partitions` is not a number, below 1, or too large.
        """
        check_count("partitions", partitions)

        def read(response: Any) -> None:
            (row,) = response.results
            if row.error_code:
                raise KafkaError.of(row.error_code, row.error_message)

        topic = CreatePartitionsTopic(name=self.name, count=partitions, assignments=None)
        await self._calls.call(CreatePartitionsRequest(topics=[topic], timeout_ms=ADMIN_TIMEOUT_MS), read)
        await self._wait_for_leaders(partitions)

    async def config(self, *, own: bool = False) -> dict[str, str | None]:
        """Returns the effective settings, by Kafka's names; sensitive values are None.

        Args:
            own: True for the settings that were set for this topic, without defaults.
        """
        return await config_of(self._calls, TOPIC, self.name, own)

    async def set_config(self, config: Mapping[str, Any]) -> None:
        """Changes settings; a value of None restores the default.

        Raises:
            InvalidConfigError: a setting is unknown or its value is not valid. Then no setting is changed.
        """
        await change_config(self._calls, TOPIC, self.name, config)

    async def delete_records(self, offsets: Mapping[int, int | None]) -> dict[int, int]:
        """Deletes the records before offsets: `topic.delete_records({0: 42})`; see `Topics.delete_records`.

        Args:
            offsets: number of a partition -> the offset of the first record to keep; None: all records are deleted.

        Returns:
            The start offset of each partition.
        """
        check_offsets(offsets)
        for number in offsets:
            check_partition_number(number)
        named = {TopicPartition(self.name, number): offset for number, offset in offsets.items()}
        deleted = await delete_records(self._calls, named)
        return {partition.partition: start for partition, start in deleted.items()}

    # ---- records

    async def append(
        self,
        value: bytes | str | None,
        key: bytes | str | None = None,
        *,
        headers: HeaderList = (),
        partition: int | None = None,
        timestamp: datetime | float | None = None,
    ) -> RecordMetadata:
        """Appends a record, and returns its partition and offset once it is durable.

        If the connection is lost, the client repeats the request, which may append the record twice.
        `node.producer()` prevents such duplicates, and sends records in batches.

        Args:
            value: bytes, or a text, which is encoded as UTF-8; None is a tombstone.
            key: bytes, a text or None. Records with equal keys go to the same partition, as with Java's producer.
            headers: names and values.
            partition: the partition number; None: the key selects the partition. Records without a key go to each
                partition in turn.
            timestamp: the time of the record, as a datetime or in seconds since the epoch; None: now.

        Raises:
            UnknownTopicOrPartitionError: the topic or partition does not exist. A connection to a cluster first repeats
                the request for 2 seconds, in case the partition is new.
            KafkaError: the server refused the record.
            TypeError, ValueError: an argument has a wrong type, the partition is negative, or the timestamp is not a
                time in seconds.
        """
        data = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else to_bytes(value)
        name = key.encode() if isinstance(key, str) else key if isinstance(key, bytes) else to_bytes(key)
        if partition is None:
            partition = await self._choose(name)
        else:
            check_partition_number(partition)
        timestamp_ms = self._calls.now_ms() if timestamp is None else to_timestamp_ms(timestamp)
        return (await self._append(partition, [(timestamp_ms, name, data, headers)], CompressionType.NONE))[0]

    async def append_many(
        self,
        records: Iterable[bytes | str | tuple[bytes | str | None, bytes | str | None]],
        *,
        partition: int | None = None,
        compression: str = "none",
    ) -> list[RecordMetadata]:
        """Appends records in one batch per partition; returns their partitions and offsets once they are durable.

        Args:
            records: values, or pairs of key and value.
            partition: the partition of all records; None: the key of a record selects its partition. All records
                without a key go to one partition. The next call of `append_many` or `append` uses the next partition.
            compression: "none", "gzip", "snappy", "lz4" or "zstd".

        Raises:
            KafkaError: the server refused a batch. Batches of other partitions may be stored.
            ConfigError: the compression does not exist.
            TypeError, ValueError: a record or the partition is not valid. No record is stored.
        """
        codec = codec_of(compression)
        if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
            kind = type(records).__name__
            raise TypeError(f"records: {kind}; valid: a list of values, or of pairs (key, value)")
        if partition is not None:
            check_partition_number(partition)
        now_ms = self._calls.now_ms()
        rows: dict[int, list[tuple[int, bytes | None, bytes | None, HeaderList]]] = {}
        order: list[tuple[int, int]] = []
        unkeyed = partition
        for record in records:
            if isinstance(record, tuple) and len(record) != 2:
                raise ValueError(f"a record is a tuple of {len(record)}; valid: a value, or a pair (key, value)")
            key, value = record if isinstance(record, tuple) else (None, record)
            name = key.encode() if isinstance(key, str) else key if isinstance(key, bytes) else to_bytes(key)
            data = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else to_bytes(value)
            if partition is not None:
                number = partition
            elif name is None:
                unkeyed = number = await self._choose(None) if unkeyed is None else unkeyed
            else:
                number = await self._choose(name)
            batch = rows.setdefault(number, [])
            order.append((number, len(batch)))
            batch.append((now_ms, name, data, ()))
        stored = {number: await self._append(number, batch, codec) for number, batch in rows.items()}
        return [stored[number][index] for number, index in order]

    async def _choose(self, key: bytes | None) -> int:
        if not self._partitions:
            await self.describe()
        if key is not None:
            return partition_of(key, self._partitions)
        return self._calls.next_partition(self.name, self._partitions)

    async def _append(
        self, number: int, rows: Sequence[tuple[int, bytes | None, bytes | None, HeaderList]], codec: CompressionType
    ) -> list[RecordMetadata]:
        partition = TopicPartition(self.name, number)

        def read(response: Any) -> Any:
            row = response.responses[0].partition_responses[0]
            if row.error_code:
                raise KafkaError.of(row.error_code, row.error_message, [partition])
            return row

        request = produce_request({partition: build_batch(rows, codec)}, ACKS_ALL, PRODUCE_TIMEOUT_MS)
        row = await self._calls.call(request, read, at_most=versions.PRODUCE)
        base, log_time_ms = row.base_offset, row.log_append_time_ms
        return [
            RecordMetadata(self.name, number, base + index, log_time_ms if log_time_ms >= 0 else rows[index][0])
            for index in range(len(rows))
        ]

    async def read(
        self,
        partition: int,
        offset: int,
        max_records: int = 500,
        *,
        wait: float = 0.0,
        isolation: Isolation = "read_committed",
    ) -> list[Record]:
        """Reads records of a partition from an offset on.

        Args:
            partition: the number of the partition.
            offset: the offset of the first record.
            max_records: the largest number of records to return.
            wait: the time in seconds to wait for a first record.
            isolation: "read_committed" leaves out records of open and aborted transactions.

        Returns:
            The records; fewer than `max_records`, or none, at the end of the partition.

        Raises:
            OffsetOutOfRangeError: the partition does not have the offset.
            TypeError, ValueError: an argument has a wrong type, or a number is negative or too large.
        """
        check_partition_number(partition)
        check_offset(offset)
        check_count("max_records", max_records)
        check_span("wait", wait)
        topic_partition = TopicPartition(self.name, partition)
        committed = isolation == "read_committed"
        records: list[Record] = []
        until_s = monotonic() + wait
        while len(records) < max_records:
            wait_ms = max(0, round((until_s - monotonic()) * 1000)) if not records else 0

            request = fetch_request({topic_partition: offset}, isolation, FETCH_BYTES, wait_ms)
            row = await self._calls.call(request, partial(fetched_row, topic_partition), at_most=versions.FETCH)
            fetched, following, _ = read_batches(topic_partition, row, offset, committed)
            records += fetched
            if following == offset and (records or monotonic() >= until_s):
                break
            offset = following
        return records[:max_records]

    async def read_batches(self, partition: int, offset: int, *, max_bytes: int = FETCH_BYTES) -> bytes:
        """Returns encoded record batches of a partition, including transaction markers and aborted records.

        This method is for programs that copy or examine a log. The first batch contains `offset`, and may begin before
        it. The last batch may be incomplete.

        Args:
            partition: the number of the partition.
            offset: the offset from which to read.
            max_bytes: the maximum size of the result in bytes; the first batch may exceed it.

        Raises:
            OffsetOutOfRangeError: the partition does not have the offset.
        """
        check_partition_number(partition)
        check_offset(offset)
        check_count("max_bytes", max_bytes)
        topic_partition = TopicPartition(self.name, partition)

        def read(response: Any) -> bytes:
            row = fetched_row(topic_partition, response)
            return bytes(row.records or b"")

        request = fetch_request({topic_partition: offset}, "read_uncommitted", max_bytes, 0, 0)
        return await self._calls.call(request, read, at_most=versions.FETCH)

    # ---- offsets

    async def start_offsets(self) -> dict[int, int]:
        """Returns the offset of the first record of each partition."""
        return await self._offsets(EARLIEST, "read_uncommitted")

    async def end_offsets(self, isolation: Isolation = "read_committed") -> dict[int, int]:
        """Returns the end offset of each partition: the offset before which consumers can read.

        Args:
            isolation: "read_committed": the last stable offset, below which all transactions have ended;
                "read_uncommitted": the high watermark.
        """
        return await self._offsets(LATEST, isolation)

    async def offsets_at(self, when: datetime | float) -> dict[int, int | None]:
        """Returns the offset of the first record at or after a time, for each partition; None for partitions without
        such a record.

        Args:
            when: the time, as a datetime or in seconds since the epoch.
        """
        offsets = await self._offsets(max(0, to_ms(when)), "read_uncommitted")
        return {partition: offset if offset >= 0 else None for partition, offset in offsets.items()}

    async def _offsets(self, timestamp: int, isolation: str) -> dict[int, int]:
        offsets = await offsets_of(self._calls, dict.fromkeys(await self.partitions(), timestamp), isolation)
        return {partition.partition: offsets[partition] for partition in sorted(offsets)}


async def offsets_of(
    calls: AsyncCalls, timestamps: Mapping[TopicPartition, int], isolation: str
) -> dict[TopicPartition, int]:
    """Looks up the offsets at timestamps; -1 is the end of a log, -2 its start."""

    def make_request(requested: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        return list_offsets_request(requested, isolation, calls.transport.leader_epoch)

    return await calls.call_leaders(timestamps, make_request, listed_offsets)
