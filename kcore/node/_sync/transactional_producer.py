# Made by tools/generate_sync.py from _async/transactional_producer.py: change that file, then run the program.
"""The producer of a transactional id: its identity, and the requests of its transactions (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcore.client import versions
from kcore.client.aio.routes import TRANSACTION
from kcore.errors import (
    CommitFailedError,
    KafkaError,
    KcoreError,
    PartitionErrors,
    ProducerFencedError,
    raise_partition_errors,
)
from kcore.node._sync.backend import caller
from kcore.node._sync.calls import REPEATED, Calls
from kcore.node._sync.turns import Turns
from kcore.node.interceptors import UNKNOWN
from kcore.node.requests import build_batch, by_topic, check_commit, error_about, produce_request, to_commit
from kcore.node.types import (
    HeaderList,
    Offsets,
    TopicPartition,
    as_partition,
)
from kcore.protocol.compression import CompressionType
from kcore.protocol.error_codes import RETRIABLE, ErrorCode
from kcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kcore.protocol.messages.end_txn import EndTxnRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 30_000
MAX_SEQUENCE = 0x7FFFFFFF
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
ENDED = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
"""Error codes of EndTxn responses that mean: the coordinator has no open transaction of the producer."""
NOT_A_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""Error codes of TxnOffsetCommit responses that mean: the group has fenced or removed the member."""

Row = tuple[int, bytes | None, bytes | None, HeaderList]
"""A record: timestamp in ms, key, value, headers."""


class TransactionalProducer:
    """The state of the producer with one transactional id: its producer id, its epoch and its sequences.

    Args:
        calls: sends the requests of the node.
        transactional_id: the id of the producer. A new producer with the same id fences the earlier producer.
        timeout_s: the time after which the coordinator aborts an open transaction.

    Attributes:
        turns: the queue of transactions of this producer. The first transaction uses the producer, and the others
            wait.
        unfinished: True from the first request of a transaction until the response that ends it.
    """

    def __init__(self, calls: Calls, transactional_id: str, timeout_s: float) -> None:
        self.calls = calls
        self.transactional_id = transactional_id
        self.timeout_s = timeout_s
        self.turns = Turns()
        self.unfinished = False
        self.producer_id = -1
        self.epoch = -1
        self.implicit = False  # True: brokers add partitions to the transaction (KIP-890)
        self.sequences: dict[TopicPartition, int] = {}
        self._initialized = False
        self._doubtful = False  # True after an InitProducerId without a response: the epoch may be higher
        self._fenced: KafkaError | None = None

    def prepare(self) -> None:
        """Requests a producer id and epoch, unless this producer has valid ones.

        After an interrupt, the previous transaction may still be open in the coordinator. The next transaction would
        continue it, and commit its records. So this method requests a new epoch, which aborts the open transaction.

        If the interrupt came during an earlier request for an epoch, the coordinator may refuse this producer's epoch.
        This method then repeats the request without an epoch, as after a restart of the program.

        Raises:
            ProducerFencedError: another producer of the transactional id has fenced this producer.
            KafkaError: the coordinator refused the request.
        """
        if self._fenced is not None:
            raise ProducerFencedError(self._fenced.message)
        if self._initialized and not self.unfinished:
            return
        self._initialized = False
        self.calls.coordinator(TRANSACTION, self.transactional_id)
        if self.unfinished and not self.implicit and self.producer_id >= 0:
            self._abort_interrupted()
        doubtful = self._doubtful
        try:
            response = self._initialize()
        except ProducerFencedError:
            if not doubtful:
                raise
            response = self._initialize()
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self._doubtful = doubtful
        self.sequences.clear()
        self.unfinished = False
        self.implicit = (
            self.calls.transport.feature("transaction.version") >= 2
            and self.calls.transport.newest(EndTxnRequest) > versions.TRANSACTION_V1_END
        )
        self._initialized = True

    def _initialize(self) -> Any:
        """Requests a producer id and epoch, and returns the response."""

        def read(response: Any) -> Any:
            if response.error_code:
                raise error_about(response.error_code, f"transactional id {self.transactional_id!r}")
            return response

        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=round(self.timeout_s * 1000),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
        )
        doubtful = self._doubtful
        self._doubtful = True  # until the response arrives
        try:
            return self._call(request, read, at_most=versions.INIT_PRODUCER_ID)
        except KafkaError as error:
            self._doubtful = doubtful
            if error.code in FENCED:
                raise self._fence(error) from error
            raise

    def _abort_interrupted(self) -> None:
        """Aborts an interrupted transaction of protocol version 1.

        In version 1, a request for a new epoch would fence this producer while its transaction is open.
        """
        try:
            self.end(False)
        except KafkaError as error:
            if error.code not in ENDED:
                raise

    def _fence(self, error: KafkaError) -> ProducerFencedError:
        """Returns the error for a refused epoch.

        Marks the producer as fenced permanently, unless its own InitProducerId may have raised the epoch.
        """
        if self._doubtful:
            self._initialized = False
            self.producer_id = self.epoch = -1
        else:
            self._fenced = error
        return ProducerFencedError(
            f"another producer of the transactional id {self.transactional_id!r} has fenced this one"
        )

    def require_free(self) -> None:
        """Raises KcoreError if the calling task or thread already has an open transaction of this id.

        A second transaction of the caller would wait forever for the end of the first one. Also raises the errors of
        `Calls.require_owner` and `Calls.require_open`.
        """
        self.calls.require_owner()
        self.calls.require_open()
        if self.turns.is_open_for(caller()):
            raise KcoreError(
                "the same task or thread already has an open transaction of transactional id "
                f"{self.transactional_id!r}; end that transaction first, or use another transactional id"
            )

    def _call(self, request: Any, read: Any, at_most: int | None = None) -> Any:
        """Sends a request of a transaction. Repeats it after every retriable error, as Kafka's producer does.

        A broker recognizes a repeated request. With an embedded engine, errors about missing replicas are not repeated,
        because the engine has no replicas.
        """
        codes = REPEATED if self.calls.local else RETRIABLE
        return self.calls.call(request, read, at_most=at_most, codes=codes)

    def _coordinate(self, request: Any, read: Any, at_most: int | None = None) -> Any:
        """Sends a request to a coordinator; raises ProducerFencedError if the coordinator refuses the epoch."""
        try:
            return self._call(request, read, at_most=at_most)
        except KafkaError as error:
            if error.code in FENCED:
                raise self._fence(error) from error
            raise

    def add_partitions(self, partitions: list[TopicPartition]) -> None:
        """Adds partitions to the transaction. Only version 1 of the protocol needs this request."""
        topics = [
            AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic(partitions).items()
        ]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )

        def read(response: Any) -> None:
            codes = {
                TopicPartition(topic.name, row.partition_index): row.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            }
            for code in codes.values():
                if code in FENCED:
                    raise KafkaError.of(code)
            attempted = {key: code for key, code in codes.items() if code != ErrorCode.OPERATION_NOT_ATTEMPTED}
            raise_partition_errors("addition of partitions to the transaction", attempted, len(partitions))

        unfinished, self.unfinished = self.unfinished, True
        try:
            self._coordinate(request, read, at_most=versions.ADD_PARTITIONS_BY_CLIENT)
        except (KafkaError, PartitionErrors):  # the coordinator has added none
            self.unfinished = unfinished
            raise

    def produce(self, partition: TopicPartition, rows: list[Row], compression: CompressionType) -> tuple[int, int]:
        """Appends a batch to a partition. A repetition has the same sequence, so that the broker stores the batch once.

        Returns:
            The offset of the first record, and the timestamp of the append in ms. The timestamp is -1 unless the topic
            has append times. Both are -1 if the response to a repetition has no offset.
        """
        sequence = self.sequences.get(partition, 0)
        batch = build_batch(
            rows,
            compression,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

        def read(response: Any) -> tuple[int, int]:
            row = response.responses[0].partition_responses[0]
            if row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # stored before; the response has no offset
                return UNKNOWN, UNKNOWN
            if row.error_code:
                raise KafkaError.of(row.error_code, row.error_message, [partition])
            return row.base_offset, row.log_append_time_ms

        request = produce_request({partition: batch}, ACKS_ALL, PRODUCE_TIMEOUT_MS, self.transactional_id)
        at_most = versions.PRODUCE if self.implicit else versions.TRANSACTION_V1_PRODUCE
        stored: tuple[int, int] = self._call(request, read, at_most=at_most)
        self.sequences[partition] = (sequence + len(rows)) & MAX_SEQUENCE
        return stored

    def commit_offsets(self, group: tuple[str, str, int, str | None], offsets: Offsets) -> None:
        """Adds offsets of a group to the transaction.

        In version 2 of the protocol, an InvalidProducerEpochError does not name its cause. The response to the next
        EndTxn shows the cause: the coordinator accepts the EndTxn and responds with the next epoch if it has aborted
        the transaction at its timeout. It refuses the EndTxn if another producer has fenced this producer.

        Raises:
            InvalidProducerEpochError: the coordinator has aborted the transaction, or another producer has fenced this
                producer.
            CommitFailedError: the group has removed the member.
            KafkaError: the coordinator refused the request.
        """
        group_id, member_id, epoch, instance_id = group
        if not self.implicit:

            def added(response: Any) -> None:
                if response.error_code:
                    raise error_about(response.error_code, f"transactional id {self.transactional_id!r}")

            self._coordinate(
                AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    group_id=group_id,
                ),
                added,
            )
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for each, value in offsets.items():
            topic, partition = as_partition(each)
            position = to_commit(value)
            row = TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=position.offset,
                committed_leader_epoch=-1 if position.leader_epoch is None else position.leader_epoch,
                committed_metadata=position.metadata,
            )
            topics.setdefault(topic, []).append(row)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=epoch,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=rows) for topic, rows in topics.items()],
        )
        at_most = None if self.implicit else versions.TRANSACTION_V1_COMMIT
        action = f"commit of group {group_id!r} in a transaction"
        send = self._call if self.implicit else self._coordinate
        try:
            send(request, lambda response: check_commit(action, response, len(offsets)), at_most=at_most)
        except KafkaError as error:
            if self.implicit and error.code in FENCED:
                raise KafkaError.of(ErrorCode.INVALID_PRODUCER_EPOCH, action) from error
            if member_id and error.code in NOT_A_MEMBER:
                raise CommitFailedError("the member was removed from the group before the commit") from error
            raise

    def end(self, commit: bool) -> None:
        """Commits or aborts the transaction."""

        def read(response: Any) -> Any:
            if response.error_code:
                raise error_about(response.error_code, f"transactional id {self.transactional_id!r}")
            return response

        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        at_most = None if self.implicit else versions.TRANSACTION_V1_END
        response = self._coordinate(request, read, at_most)
        if self.implicit and response.producer_id >= 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        self.unfinished = False
        self._doubtful = False  # the epoch was the newest one

    def invalidate(self) -> None:
        """Makes the next transaction begin with a new epoch, because a failed request may still arrive."""
        self._initialized = False


def transactional_producer(
    calls: Calls, producers: Mapping[str, TransactionalProducer], transactional_id: str, timeout_s: float
) -> TransactionalProducer:
    """Returns the node's producer of a transactional id with this timeout, or creates a new producer."""
    existing = producers.get(transactional_id)
    if existing is not None and existing.timeout_s == timeout_s:
        return existing
    return TransactionalProducer(calls, transactional_id, timeout_s)
