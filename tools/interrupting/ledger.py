"""A workload that records acknowledged writes and checks an engine against them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kcore
from kcore.log.lmdb_engine import verify_folder
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.end_txn import EndTxnRequest
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from kcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kcore_ext.batch import BatchBuilder, iter_records, parse_header, split_batches

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "kcore.durability": "os",
}
TOPIC = "t"
IDEMPOTENT, TRANSACTIONAL = 0, 1
"""Partition numbers: one partition of the topic for each kind of producer."""
TRANSACTIONAL_ID = "mover"
SESSION_MS = 300  # the longest wait for a member whose join was interrupted
TRIES = 30
TIMEOUT_S = 20.0
WALL_MS = 1_700_000_000_000

START_AGAIN = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_MEMBER_EPOCH,
}
RETRIABLE = {
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
}


class RefusedError(Exception):
    """Raised for a response with an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)


def check(code: int) -> None:
    """Raises a `RefusedError` for an error code that is not 0."""
    if code:
        raise RefusedError(code)


def sealed(value: int, producer_id: int, epoch: int, sequence: int, transactional: bool) -> bytes:
    """Returns a batch of one record."""
    builder = BatchBuilder(
        200,
        base_timestamp_ms=WALL_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    assert builder.append(WALL_MS, None, b"%d" % value)
    return bytes(builder.build())


class Ledger:
    """A workload on one data folder.

    Each step first repeats the previous operation if its outcome is unknown, as a client does, and then writes a new
    value.

    Args:
        path: the data folder.

    Attributes:
        engine: the engine that has opened the folder.
        reopened: number of times the engine was reopened because it refused all requests.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reopened = 0
        self.engine: Any = None
        self.open()
        self.offsets = 0  # the last offset that was sent
        self.offsets_acked = 0
        self.values = 0  # the idempotent producer sent the values below this
        self.values_acked = 0
        self.producer: tuple[int, int] | None = None
        self.moves = 0  # the transactional producer sent the values below this
        self.moved: dict[int, bool | None] = {}  # by value; None: the outcome is unknown
        self.mover: tuple[int, int, int] | None = None  # (producer id, epoch, next sequence)
        self.member: tuple[str, int] | None = None
        self.member_epoch = 0
        self.steps: dict[str, Callable[[], None]] = {
            "share": self.share,
            "streams": self.streams,
            "commit": self.commit,
            "produce": self.produce,
            "transaction": self.transaction,
            "classic": self.classic,
            "join": self.join,
            "consumer": self.consumer,
            "consumer join": self.consumer_join,
            "init": self.init_producer_id,
        }
        topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        check(self.engine.send(CreateTopicsRequest(topics=[topic], timeout_ms=1_000)).topics[0].error_code)
        self.send(FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTIONAL_ID]))  # creates the internal topic
        for name in self.steps:
            self.until_acknowledged(name)

    # ---- the engine

    def open(self) -> None:
        """Opens the folder."""
        self.engine = kcore.open(self.path, config=SETTINGS)

    def close(self) -> None:
        """Closes the engine."""
        self.engine.close()

    def reopen(self) -> None:
        """Closes the engine and reopens the folder immediately."""
        self.close()
        self.open()

    def send(self, request: Any, version: int | None = None) -> Any:
        """Sends a request."""
        return self.engine.send(request, version, timeout_s=TIMEOUT_S)

    def until_acknowledged(self, name: str) -> None:
        """Repeats a step, as a client does, until it is acknowledged. Reopens an engine that refuses all requests."""
        refused = []
        for _ in range(TRIES):
            try:
                self.steps[name]()
                return
            except RefusedError as error:
                refused.append(error.code.name)
                if error.code not in RETRIABLE | START_AGAIN:
                    raise
            except kcore.errors.EngineInterruptedError:
                self.reopened += 1
                self.reopen()
        raise AssertionError(f"{name} is not acknowledged after {TRIES} tries: {refused}")

    # ---- steps

    def commit(self) -> None:
        """Commits the next offset."""
        self.offsets += 1
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=self.offsets)
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[part])
        response = self.send(OffsetCommitRequest(group_id="g", topics=[topic]), 9)
        check(response.topics[0].partitions[0].error_code)
        self.offsets_acked = self.offsets

    def init_producer_id(self) -> None:
        """Requests a producer id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        check(self.send(request).error_code)

    def produce(self) -> None:
        """Writes the next value with an idempotent producer, or repeats a value that was not acknowledged."""
        if self.producer is None:
            response = self.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
            check(response.error_code)
            self.producer = response.producer_id, response.producer_epoch
        # An unacknowledged batch is sent again with the same sequence.
        value = self.values_acked
        self.values = max(self.values, value + 1)
        self._produce(IDEMPOTENT, value, (*self.producer, value), None)
        self.values_acked = value + 1

    def _produce(self, partition: int, value: int, producer: tuple[int, int, int], transactional: str | None) -> None:
        data = PartitionProduceData(index=partition, records=sealed(value, *producer, transactional is not None))
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=1_000, transactional_id=transactional, topic_data=[topic])
        check(self.send(request, 9).responses[0].partition_responses[0].error_code)

    def transaction(self) -> None:
        """Runs a transaction that writes a record and commits the group's offset. Both have the same value."""
        try:
            self._transaction()
        except BaseException:
            self.mover = None  # the next producer fences this one, which aborts its open transaction
            raise

    def _transaction(self) -> None:
        if self.mover is None:
            request = InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000)
            response = self.send(request)
            check(response.error_code)
            self.mover = response.producer_id, response.producer_epoch, 0
        producer_id, epoch, sequence = self.mover
        self.moves += 1
        value = self.moves
        self.moved[value] = False
        who = {"transactional_id": TRANSACTIONAL_ID, "producer_id": producer_id, "producer_epoch": epoch}
        added = AddPartitionsToTxnTopic(name=TOPIC, partitions=[TRANSACTIONAL])
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[added],
        )
        response = self.send(adding, 3)
        check(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        self._produce(TRANSACTIONAL, value, (producer_id, epoch, sequence), TRANSACTIONAL_ID)
        check(self.send(AddOffsetsToTxnRequest(group_id="m", **who), 3).error_code)
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=value)
        topic = TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])
        response = self.send(TxnOffsetCommitRequest(group_id="m", topics=[topic], **who), 3)
        check(response.topics[0].partitions[0].error_code)
        self.moved[value] = None
        check(self.send(EndTxnRequest(committed=True, **who), 3).error_code)
        self.moved[value] = True
        self.mover = producer_id, epoch, sequence + 1

    def classic(self) -> None:
        """Sends a heartbeat of a classic group's member, or rejoins the group."""
        if self.member is not None:
            name, generation = self.member
            code = self.send(HeartbeatRequest(group_id="c", member_id=name, generation_id=generation)).error_code
            if code == 0:
                return
            if code not in START_AGAIN:
                check(code)
            self.member = None
        joining = JoinGroupRequest(
            group_id="c",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="work",
            protocols=[JoinGroupRequestProtocol(name="any", metadata=b"")],
        )
        # A join with an unknown outcome may have left another member, for which this one waits until its session ends.
        joined = self.send(joining)
        if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            check(joined.error_code)
        joining.member_id = joined.member_id
        joined = self.send(joining)
        check(joined.error_code)
        mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        request = SyncGroupRequest(
            group_id="c",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="work",
            protocol_name="any",
            assignments=[mine] if joined.leader == joined.member_id else [],
        )
        check(self.send(request).error_code)
        self.member = joined.member_id, joined.generation_id

    def join(self) -> None:
        """Leaves the classic group and joins it again."""
        if self.member is not None:
            leaving = MemberIdentity(member_id=self.member[0])
            response = self.send(LeaveGroupRequest(group_id="c", members=[leaving]))
            check(response.error_code)
            if response.members[0].error_code not in START_AGAIN:
                check(response.members[0].error_code)
            self.member = None
        self.classic()

    def consumer_join(self) -> None:
        """Leaves the consumer group and joins it again."""
        if self.member_epoch:
            request = ConsumerGroupHeartbeatRequest(group_id="n", member_id="member", member_epoch=-1)
            code = self.send(request).error_code
            if code not in START_AGAIN:
                check(code)
            self.member_epoch = 0
        self.consumer()

    def consumer(self) -> None:
        """Joins as a member of a consumer group (KIP-848), acknowledges its assignment, and stays."""
        if self.member_epoch == 0:
            response = self.send(
                ConsumerGroupHeartbeatRequest(
                    group_id="n",
                    member_id="member",
                    member_epoch=0,
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_names=[TOPIC],
                    topic_partitions=[],
                )
            )
            check(response.error_code)
            self.member_epoch = response.member_epoch
        response = self.send(
            ConsumerGroupHeartbeatRequest(group_id="n", member_id="member", member_epoch=self.member_epoch)
        )
        if response.error_code in START_AGAIN:
            self.member_epoch = 0
        check(response.error_code)
        self.member_epoch = response.member_epoch

    def share(self) -> None:
        """Leaves a share group (KIP-932), joins it again, and sends a heartbeat."""
        self._leave_and_join(
            lambda epoch: ShareGroupHeartbeatRequest(
                group_id="s",
                member_id="member",
                member_epoch=epoch,
                subscribed_topic_names=[TOPIC] if not epoch else None,
            )
        )

    def streams(self) -> None:
        """Leaves a streams group (KIP-1071), joins it again, and sends a heartbeat."""
        topology = Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[TOPIC])])

        def request(epoch: int) -> StreamsGroupHeartbeatRequest:
            heartbeat = StreamsGroupHeartbeatRequest(group_id="k", member_id="member", member_epoch=epoch)
            if not epoch:
                heartbeat.process_id = "process"
                heartbeat.rebalance_timeout_ms = 60_000
                heartbeat.topology = topology
                heartbeat.active_tasks = heartbeat.standby_tasks = heartbeat.warmup_tasks = []
            return heartbeat

        self._leave_and_join(request)

    def _leave_and_join(self, request: Callable[[int], Any]) -> None:
        code = self.send(request(-1)).error_code
        if code not in (*START_AGAIN, ErrorCode.GROUP_ID_NOT_FOUND):
            check(code)
        joined = self.send(request(0))
        check(joined.error_code)
        beat = self.send(request(joined.member_epoch)) if joined.member_epoch else joined
        check(beat.error_code)
        assert beat.member_epoch >= joined.member_epoch, (joined, beat)

    # ---- the check

    def check(self) -> None:
        """Compares the engine's state with the acknowledged writes.

        Raises:
            AssertionError: an acknowledged write is missing or duplicated, or the engine has a value that was not sent.
        """
        self.until_acknowledged("transaction")  # ends any open transaction
        offset = self.committed("g")
        assert self.offsets_acked <= offset <= self.offsets, (self.offsets_acked, offset, self.offsets)
        values = self.read(IDEMPOTENT)
        expected = list(range(len(values)))
        assert [value for _, value in values] == expected, f"not the values as they were sent: {values[-5:]}"
        assert [offset for offset, _ in values] == expected, f"a gap between offsets: {values[-5:]}"
        assert self.values_acked <= len(values) <= self.values, (self.values_acked, len(values), self.values)
        moved = [value for _, value in self.read(TRANSACTIONAL)]
        certain = [value for value, outcome in self.moved.items() if outcome]
        possible = {value for value, outcome in self.moved.items() if outcome is not False}
        assert moved == sorted(set(moved)), f"a transaction's record twice, or out of order: {moved[-5:]}"
        assert set(certain) <= set(moved) <= possible, sorted(set(certain) ^ set(moved))
        assert self.committed("m") == moved[-1], "a transaction's offset and its record are both there, or neither"

    def check_folder(self) -> None:
        """Closes the engine, verifies the folder, opens it again and compares everything."""
        self.close()
        findings = verify_folder(self.path)
        assert not findings, findings
        self.open()
        self.check()

    def committed(self, group: str) -> int:
        """Returns the offset that a group has committed."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        (response,) = self.send(request, 9).groups
        check(response.error_code)
        ((part,),) = [topic.partitions for topic in response.topics]
        return int(part.committed_offset)

    def read(self, partition: int) -> list[tuple[int, int]]:
        """Reads a partition with read_committed. Returns (offset, value) of every record."""
        records: list[tuple[int, int]] = []
        offset = 0
        while True:
            part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24)
            topics = [FetchTopic(topic=TOPIC, partitions=[part])]
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, isolation_level=1, session_epoch=-1, topics=topics
            )
            (response,) = self.send(request, 12).responses[0].partitions
            check(response.error_code)
            data = response.records or b""
            aborted = sorted((a.first_offset, a.producer_id) for a in response.aborted_transactions or ())
            before = offset
            gone: set[int] = set()
            for start, size in split_batches(data).batches:
                one = data[start : start + size]
                header = parse_header(one)
                offset = header.next_offset
                while aborted and aborted[0][0] <= header.base_offset:
                    gone.add(aborted.pop(0)[1])
                if header.is_control:
                    gone.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in gone):
                    records += [(record.offset, int(record.value or b"-1")) for record in iter_records(one)]
            if offset == before:
                return records
