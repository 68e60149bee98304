"""A whole node for tests of transactions: a real engine with a log in memory and virtual time.

Its short methods send requests and return the relevant fields of the responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from kcore.log import LogEngine
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kcore.protocol.messages.end_txn import EndTxnRequest
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kcore.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kcore_ext.batch import BatchBuilder, iter_records, parse_header, split_batches
from tests.harness import WALL_MS, EngineHarness

NONE = ErrorCode.NONE


class Identity(NamedTuple):
    """The id and the epoch of a producer."""

    producer_id: int
    producer_epoch: int


class World(EngineHarness):
    """A node whose transaction coordinator is loaded. It has the topic `t`, unless the test names other topics."""

    SETTINGS: ClassVar[Mapping[str, Any]] = {
        "offsets.topic.num.partitions": 2,
        "transaction.state.log.num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
    }

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        topics: Mapping[str, int] | None = None,
        *,
        log: LogEngine | None = None,
        wall_ms: int = WALL_MS,
    ) -> None:
        super().__init__(settings, topics or {"t": 2}, log=log, wall_ms=wall_ms)
        self.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["any"]), 6)
        self.engine.turn()

    def delete_topic(self, name: str) -> None:
        response = self.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000), 6)
        assert not response.responses[0].error_code

    def init(
        self, tid: str, expected: Identity | None = None, *, timeout_ms: int = 60_000, version: int = 5
    ) -> tuple[ErrorCode, Identity]:
        request = InitProducerIdRequest(transactional_id=tid, transaction_timeout_ms=timeout_ms)
        if expected is not None:
            request.producer_id, request.producer_epoch = expected
        response = self.call(request, version)
        return _code(response.error_code), Identity(response.producer_id, response.producer_epoch)

    def begin(self, tid: str, timeout_ms: int = 60_000) -> Identity:
        """Initialises a producer, after aborting an open transaction of an earlier instance."""
        code, identity = self.init(tid, timeout_ms=timeout_ms)
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            code, identity = self.init(tid, timeout_ms=timeout_ms)
        assert code is NONE, code
        return identity

    def add(
        self, tid: str, who: Identity, topic_partitions: Iterable[tuple[str, int]], version: int = 3
    ) -> list[ErrorCode]:
        topics: dict[str, list[int]] = {}
        for topic, index in topic_partitions:
            topics.setdefault(topic, []).append(index)
        response = self.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=tid,
                v3_and_below_producer_id=who.producer_id,
                v3_and_below_producer_epoch=who.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
                ],
            ),
            version,
        )
        return [
            _code(part.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        ]

    def add_offsets(self, tid: str, who: Identity, group: str, version: int = 3) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=tid, producer_id=who.producer_id, producer_epoch=who.producer_epoch, group_id=group
        )
        return _code(self.call(request, version).error_code)

    def end(self, tid: str, who: Identity, commit: bool, version: int = 4) -> tuple[ErrorCode, Identity]:
        response = self.call(end_request(tid, who, commit), version)
        after = Identity(response.producer_id, response.producer_epoch) if version >= 5 else who
        return _code(response.error_code), after

    def produce(
        self,
        tid: str,
        who: Identity,
        sequence: int,
        *values: bytes,
        topic: str = "t",
        index: int = 0,
        version: int = 11,
    ) -> tuple[ErrorCode, int]:
        response = self.call(produce_request(tid, who, sequence, *values, topic=topic, index=index), version)
        part = response.responses[0].partition_responses[0]
        return _code(part.error_code), part.base_offset

    def commit_offset(
        self, tid: str, who: Identity, group: str, offset: int, *, topic: str = "t", index: int = 0, version: int = 3
    ) -> ErrorCode:
        part = TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=tid,
            group_id=group,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        return _code(self.call(request, version).topics[0].partitions[0].error_code)

    def offset(self, group: str, topic: str = "t", index: int = 0, *, stable: bool = True) -> tuple[ErrorCode, int]:
        requested = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[index])]
        )
        response = self.call(OffsetFetchRequest(groups=[requested], require_stable=stable), 8)
        part = response.groups[0].topics[0].partitions[0]
        return _code(part.error_code), part.committed_offset

    def mark(
        self, who: Identity, commit: bool, topic: str = "t", index: int = 0, coordinator_epoch: int = 0
    ) -> ErrorCode:
        """Writes a marker with WriteTxnMarkers."""
        marker = WritableTxnMarker(
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            transaction_result=commit,
            coordinator_epoch=coordinator_epoch,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        )
        response = self.call(WriteTxnMarkersRequest(markers=[marker]), 1)
        return _code(response.markers[0].topics[0].partitions[0].error_code)

    # ---- observable state

    def describe(self, tid: str) -> Any:
        return self.call(DescribeTransactionsRequest(transactional_ids=[tid]), 0).transaction_states[0]

    def state(self, tid: str) -> str:
        return str(self.describe(tid).transaction_state)

    def committed(self, topic: str = "t", index: int = 0) -> list[bytes]:
        """Returns the records that a read_committed consumer gets, by the rules of Kafka's consumers."""
        part = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 24)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 24,
            isolation_level=1,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )
        response = self.call(request, 12).responses[0].partitions[0]
        assert not response.error_code
        aborted = sorted((each.first_offset, each.producer_id) for each in response.aborted_transactions or ())
        data = response.records or b""
        values: list[bytes] = []
        active: set[int] = set()
        for start, size in split_batches(data).batches:
            batch = bytes(data[start : start + size])
            header = parse_header(batch)
            while aborted and aborted[0][0] <= header.last_offset:
                active.add(aborted.pop(0)[1])
            if header.is_control:
                active.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in active):
                values += [record.value for record in iter_records(batch)]
        return values

    def end_offsets(self, topic: str = "t", index: int = 0) -> tuple[int, int]:
        """Returns the last stable offset and the high watermark."""
        partition = self.engine.partitions.get(topic, index)
        assert partition is not None
        return partition.last_stable_offset, partition.high_watermark

    def log_states(self, tid: str) -> list[tuple[str, int, int]]:
        """Returns (state, producer id, epoch) of each record of an id in `__transaction_state`."""
        from kcore.protocol.records import decode_key, decode_value
        from kcore.transaction.states import NAMES, TransactionStatus

        found = []
        for index in range(2):
            partition = self.engine.partitions.get("__transaction_state", index)
            assert partition is not None
            for _, batch in partition.log.batches():
                if parse_header(batch).is_control:
                    continue
                for record in iter_records(batch):
                    key = decode_key("__transaction_state", record.key)
                    if key.transactional_id != tid:
                        continue
                    value = None if record.value is None else decode_value(key, record.value)
                    if value is None:
                        found.append(("tombstone", -1, -1))
                    else:
                        name = NAMES[TransactionStatus(value.transaction_status)]
                        found.append((name, value.producer_id, value.producer_epoch))
        return found


def end_request(tid: str, who: Identity, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=tid, producer_id=who.producer_id, producer_epoch=who.producer_epoch, committed=commit
    )


def produce_request(
    tid: str | None,
    who: Identity,
    sequence: int,
    *values: bytes,
    topic: str = "t",
    index: int = 0,
    wall_ms: int = WALL_MS,
) -> ProduceRequest:
    builder = BatchBuilder(
        1 << 20,
        base_timestamp_ms=wall_ms,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        base_sequence=sequence,
        transactional=tid is not None,
    )
    for value in values or (b"v",):
        assert builder.append(wall_ms, None, value)
    data = PartitionProduceData(index=index, records=builder.build())
    return ProduceRequest(
        transactional_id=tid,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def _code(code: int) -> ErrorCode:
    return next(known for known in ErrorCode if known == code)
