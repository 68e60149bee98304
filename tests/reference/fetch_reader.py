"""Pure-Python definition of the compiled `kcore_ext.broker.fetch_reader`.

Servers use the compiled reader; a test sends the same requests to both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.broker.data.fetch import divergence, read, refusal, refused_early
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.fetch import FetchableTopicResponse
from kcore.protocol.schema import ZERO_UUID
from kcore_ext.broker.fetch_reader import FetchItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import TopicPartitions
    from kcore.protocol.messages.fetch import FetchTopic, PartitionData
    from kcore_ext.broker.fetch_reader import FetchParams, SessionPartition

MAX_READS = 1_000
"""Maximum number of logs that the reader reads for one request. The remaining partitions are read for later requests.
"""


class ReferenceReading:
    """Pure-Python counterpart of `kcore_ext.broker.fetch_reader.Reading`."""

    def __init__(self) -> None:
        self.results: list[PartitionData | None] = []
        self.size_bytes = 0
        self.failed = False
        self.dirty = False
        self.long = False


class ReferenceReader:
    """Pure-Python counterpart of `kcore_ext.broker.fetch_reader.FetchReader`."""

    def requested(
        self,
        topics: Sequence[FetchTopic],
        by_id: bool,
        known: dict[Any, TopicPartitions],
        may_read: Callable[[str], bool] | None,
    ) -> list[FetchItem]:
        """Looks up the partitions of a request without a session, in the request's order."""
        items = []
        for topic in topics:
            partitions = known.get(topic.topic_id if by_id else topic.topic)
            name: str | None = topic.topic
            if by_id:
                name = None if partitions is None else partitions.name
            error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE
            if name is not None and may_read is not None and not may_read(name):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for requested in topic.partitions:
                partition = partitions.get(requested.partition) if partitions is not None and not error else None
                code = error
                if partition is None and not error:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                items.append(FetchItem(name, topic.topic_id if by_id else ZERO_UUID, requested, partition, code))
        return items

    def current(
        self,
        members: Iterable[SessionPartition],
        find: Callable[[SessionPartition], None],
        may_read: Callable[[str], bool] | None,
    ) -> list[SessionPartition]:
        """Looks up the partitions of a session, in the session's order."""
        items = list(members)
        for member in items:
            find(member)
            if may_read is not None and member.topic is not None and not may_read(member.topic):
                member.partition, member.error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return items

    def read(self, items: list[FetchItem], params: FetchParams, sparse: bool) -> ReferenceReading:
        """Reads all partitions and returns the response of each."""
        reading = ReferenceReading()
        reads = 0
        for item in items:
            if item.partition is None:
                reading.failed = True
                reading.results.append(refused_early(item.index, item.error))
                continue
            reading.dirty = reading.dirty or item.partition.dirty
            budget = params.max_bytes - reading.size_bytes
            if reads >= MAX_READS:
                budget = 0
            reads += item.fetch_offset < item.partition.high_watermark
            data = read(item.partition, item, params, budget, not reading.size_bytes)
            if data.records:
                reading.size_bytes += len(data.records)
            elif data.error_code or (item.last_fetched_epoch >= 0 and data.diverging_epoch.epoch >= 0):
                reading.failed = True
            reading.results.append(data)
        reading.long = reads >= MAX_READS
        return reading

    def pending_appends(self, items: list[FetchItem], include_all: bool) -> list[tuple[Partition, int]]:
        """Returns (partition, end offset) of each partition whose appends must become durable before the fetch is
        completed.
        """
        return [
            (item.partition, item.partition.log.end_offset)
            for item in items
            if item.partition is not None and (item.partition.unacknowledged or (include_all and item.partition.dirty))
        ]

    def idle(self, items: list[FetchItem], params: FetchParams) -> bool:
        """Returns True if no partition has new data and none must be refused with an error."""
        for item in items:
            partition = item.partition
            if partition is None or refusal(partition, item) is not None or divergence(partition, item) is not None:
                return False
            limit = partition.last_stable_offset if params.read_committed else partition.high_watermark
            if item.fetch_offset < limit:
                return False
        return True

    def news(
        self, items: list[SessionPartition], results: list[PartitionData], members: dict[Any, SessionPartition]
    ) -> list[FetchableTopicResponse]:
        """Selects the partition responses that changed since the session's last response.

        Partitions with data move to the end of the session.
        """
        changed = []
        for member, data in zip(items, results, strict=True):
            if member.update(data):
                changed.append((member, data))
                if data.records:
                    del members[member.name]
                    members[member.name] = member
        return self.by_topic([member for member, _ in changed], [data for _, data in changed])

    def by_topic(
        self, items: Sequence[FetchItem], results: Sequence[PartitionData | None]
    ) -> list[FetchableTopicResponse]:
        """Groups partition responses by topic, in order. Only adjacent partitions of a topic are grouped."""
        responses = []
        data: list[PartitionData] = []
        last: tuple[str | None, bytes] | None = None
        for item, response in zip(items, results, strict=True):
            if response is None:
                continue
            if (item.topic, item.topic_id) != last:
                last = (item.topic, item.topic_id)
                data = []
                responses.append(
                    FetchableTopicResponse(topic=item.topic or "", topic_id=item.topic_id, partitions=data)
                )
            data.append(response)
        return responses
