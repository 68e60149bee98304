"""Produce (key 0), v3-13: appending batches.

v7 has zstd, v8 errors of single records, v10 the leader to turn to (KIP-951), v12 adds partitions to transactions by
itself (KIP-890), v13 topic ids (KIP-516). v0-2 are advertised, because old librdkafka releases look for v0 to learn
of codecs (KAFKA-18659), and close the connection like any version that is not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.broker.data.append import RecordsRefusedError, append, read_header
from kcore.broker.data.transactional_produce import ProduceItem, TransactionalProduce
from kcore.broker.metadata.names import CLUSTER_METADATA
from kcore.errors import CloseConnectionError, KafkaError
from kcore.log.errors import FencedLeaderEpochError, LogError
from kcore.protocol import DecodeError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.compression import decompress
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kcore.protocol.records import decode_key, decode_value
from kcore.runtime.api import Api
from kcore.runtime.pending import Pending
from kcore_ext.batch import CorruptBatchError, iter_entries
from kcore_ext.broker.produce import ProduceCore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import Partitions, TopicPartitions
    from kcore.broker.data.transaction_verifier import PartitionVerifier
    from kcore.clock import Now
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.commit import CommitPipeline

TRANSACTIONAL = 0x10
CONTROL = 0x20
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_LEADER = 10
ADMIN_CLIENT_ID = "__admin_client"
"""The one client that may write to internal topics, if an authorizer allows it. Without an authorizer it may not,
unlike in Kafka: any client can take this id, and an unreadable record fails the load of its coordinator."""

# Refusals by the log that say nothing of where it starts; all others do.
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class ProduceApi(ProduceCore, Api[ProduceRequest, ProduceResponse]):
    """Serves Produce. What producers send all day is served by compiled code: see `ProduceCore`.

    Args:
        partitions: what can be written to.
        pipeline: answers wait for its commit.
        now: the time of the round.
        desk: verifies transactions.
        cluster: who leads, for answers that say so.
        authorizer: who may write what; None allows all.
        verify_transactions: `transaction.partition.verification.enable`.
    """

    __slots__ = (
        "_authorizer",
        "_cluster",
        "_now",
        "_partitions",
        "_pipeline",
        "partition_verifier",
        "verify_transactions",
    )

    key = ApiKey.PRODUCE
    request_type = ProduceRequest
    response_type = ProduceResponse
    versions = (0, 13)
    small_responses = True
    served_versions = (3, 13)
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(
        self,
        partitions: Partitions,
        pipeline: CommitPipeline,
        now: Now,
        partition_verifier: PartitionVerifier,
        *,
        cluster: ClusterView | None = None,
        authorizer: Authorizer | None = None,
        verify_transactions: bool = True,
    ) -> None:
        self._partitions = partitions
        self._pipeline = pipeline
        self._now = now
        self._cluster = cluster
        self._authorizer = authorizer
        super().__init__(
            partitions.names,
            partitions.ids,
            pipeline,
            now,
            allowed=None if authorizer is None else self._allowed,
            forbidden=CLUSTER_METADATA,
            decompress=decompress,
        )
        self.partition_verifier = partition_verifier
        self.verify_transactions = verify_transactions

    def error(
        self, context: RequestContext, request: ProduceRequest, code: ErrorCode, message: str | None = None
    ) -> ProduceResponse:
        """Makes a response with `code` for each partition."""
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[refused(data.index, code, message) for data in topic.partition_data],
                )
                for topic in request.topic_data
            ]
        )

    def handle_generic(
        self, context: RequestContext, request: ProduceRequest, told: Mapping[str, bool] | None = None
    ) -> ProduceResponse | Pending | None:
        """`handle` for any request: this is what produce means, and `ProduceCore` a faster way through most of it.

        Args:
            context: who asks.
            request: the request.
            told: what the authorizer said of topics already, by name: it is not asked twice.

        Raises:
            CloseConnectionError: see `handle`.
        """
        items, transactional = self._read(context, request, told or {})
        if isinstance(items, KafkaError):
            return self._reply(request, self.error(context, request, items.code, items.message), True)
        if transactional:
            return self._handle_transactional(context, request, items)
        return self.finish(context, request, items)

    @property
    def wall_ms(self) -> int:
        """Now, in ms since the epoch."""
        return self._now.wall_ms

    def _reply(self, request: ProduceRequest, response: ProduceResponse, failed: bool) -> ProduceResponse | None:
        """The response, or what stands for it where there is none."""
        if request.acks != 0:
            return response
        if failed:
            raise CloseConnectionError("a request without acks failed")
        return None

    # ---- what is asked

    def _read(
        self, context: RequestContext, request: ProduceRequest, told: Mapping[str, bool]
    ) -> tuple[list[ProduceItem] | KafkaError, bool]:
        """The request's partitions with what is wrong with them before their logs are asked, and whether any batch is
        of a transaction. An error instead of partitions is the whole request's.
        """
        version = context.api_version
        items = []
        transactional = False
        for topic in request.topic_data:
            found, unfound = self._find(context, topic, version, told)
            for data in topic.partition_data:
                header, error = None, unfound
                try:
                    header = read_header(data.records or b"", version)
                    if header.attributes & TRANSACTIONAL:
                        transactional = True
                except KafkaError as refusal:
                    if refusal.message is not None:
                        # Bytes that are no batch at all meet Kafka when it looks for transactions: nothing is served.
                        return refusal, False
                    error = error or refusal
                partition = None if found is None else found.get(data.index)
                if partition is None and unfound is None:
                    error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                items.append(ProduceItem(data, partition, header, error))
        return items, transactional

    def _find(
        self, context: RequestContext, topic: TopicProduceData, version: int, told: Mapping[str, bool]
    ) -> tuple[TopicPartitions | None, KafkaError | None]:
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            found = self._partitions.ids.get(topic.topic_id)
            if found is None:
                return None, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            found = self._partitions.names.get(topic.name)
        if self._authorizer is not None:
            name = topic.name if found is None else found.name
            allowed = told.get(name)
            if allowed is None:
                allowed = self._allowed(context, name)
            if not allowed:
                return None, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return found, None

    def _allowed(self, context: RequestContext, topic: str) -> bool:
        """Whether who asks may write to a topic."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.allowed(context, Operation.WRITE, ResourceType.TOPIC, topic)

    def _handle_transactional(
        self, context: RequestContext, request: ProduceRequest, items: list[ProduceItem]
    ) -> ProduceResponse | Pending | None:
        transactional_id = request.transactional_id
        if transactional_id is None or (
            self._authorizer is not None
            and not self._authorizer.allowed(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        ):
            error = self.error(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return self._reply(request, error, True)
        return TransactionalProduce(self, context, request, items).start()

    # ---- appending

    def finish(
        self, context: RequestContext, request: ProduceRequest, items: list[ProduceItem]
    ) -> ProduceResponse | Pending | None:
        """Appends the partitions that nothing speaks against and answers for all.

        Raises:
            CloseConnectionError: see `handle`.
        """
        acks = request.acks
        by_admin = context.client_id == ADMIN_CLIENT_ID and self._authorizer is not None
        failed = False
        responses: list[TopicProduceResponse] = []
        following = iter(items)
        for topic in request.topic_data:
            answers = []
            for _ in topic.partition_data:
                item = next(following)
                answer = self._append(item, acks, by_admin)
                if answer.error_code:
                    failed = True
                    self._name_leader(context, item.partition, answer)
                answers.append(answer)
            responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        return self.answer_for(
            context, request, ProduceResponse(responses=responses), failed, [item.partition for item in items]
        )

    def answer_for(
        self,
        context: RequestContext,
        request: ProduceRequest,
        response: ProduceResponse,
        failed: bool,
        partitions: Iterable[Partition | None],
    ) -> ProduceResponse | Pending | None:
        """Answers for all partitions, at once if none of them has anything that is not durable.

        Raises:
            CloseConnectionError: see `handle`.
        """
        if request.acks == 0:
            return self._reply(request, response, failed)
        if failed and context.api_version >= FIRST_VERSION_WITH_LEADER:
            response.node_endpoints = self._endpoints(context, response)
        if not any(partition is not None and partition.dirty for partition in partitions):
            return response
        pending = Pending(self, context, request)
        self._pipeline.answer_later(pending, response)
        return pending

    def _append(self, item: ProduceItem, acks: int, by_admin: bool) -> PartitionProduceResponse:
        """One partition."""
        partition, header = item.partition, item.header
        index = item.data.index
        if item.error is not None:
            return refused(index, item.error.code, item.error.message)
        assert partition is not None
        assert header is not None
        if not -1 <= acks <= 1:
            return refused(index, ErrorCode.INVALID_REQUIRED_ACKS)
        if (partition.internal and not by_admin) or partition.topic == CLUSTER_METADATA:
            return refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if partition.recovering or partition.closed:
            return refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition.internal and not header.attributes & CONTROL:
            fault = unreadable_record(partition.topic, item.data.records or b"")
            if fault is not None:
                return refused(index, ErrorCode.INVALID_RECORD, fault)
        try:
            base_offset, append_time_ms = append(
                partition, item.data.records or b"", header, self._now.wall_ms, item.guard, self.verify_transactions
            )
        except (KafkaError, LogError) as error:
            return refused_by_log(partition, index, error)
        if acks == 0:
            partition.unacknowledged_end = partition.log.end_offset
        return PartitionProduceResponse(
            index=index,
            base_offset=base_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=partition.log.log_start_offset,
        )

    def not_taken(
        self, context: RequestContext, partition: Partition, index: int, error: Exception
    ) -> PartitionProduceResponse:
        """The answer of a partition whose log did not take a batch, which had passed every check.

        Raises:
            Exception: `error`, if it is none of a log.
        """
        if not isinstance(error, KafkaError | LogError):
            raise error
        answer = refused_by_log(partition, index, error)
        self._name_leader(context, partition, answer)
        return answer

    def _name_leader(
        self, context: RequestContext, partition: Partition | None, answer: PartitionProduceResponse
    ) -> None:
        cluster = self._cluster
        if context.api_version < FIRST_VERSION_WITH_LEADER or partition is None or cluster is None:
            return
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = cluster.leader(partition.topic, partition.index)
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)

    def _endpoints(self, context: RequestContext, response: ProduceResponse) -> list[NodeEndpoint]:
        """Where the leaders that the response names are."""
        if self._cluster is None:
            return []
        nodes = {
            answer.current_leader.leader_id
            for topic in response.responses
            for answer in topic.partition_responses
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        }
        brokers = [self._cluster.broker(node_id, context.listener) for node_id in sorted(nodes)]
        return [
            NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in brokers
            if broker is not None
        ]


def unreadable_record(topic: str, batch: bytes | memoryview) -> str | None:
    """The reason why a coordinator could not load a batch of its topic, or None; bytes that are no batch give None."""
    try:
        for offset, _, key, value in iter_entries(batch, decompress=decompress):
            try:
                typed = None if key is None else decode_key(topic, key)
                if value is not None and typed is not None:
                    decode_value(typed, value)
            except DecodeError as error:
                return f"record {offset} cannot be read by the coordinator: {error}"
    except CorruptBatchError:
        return None  # the log's own checks refuse it
    return None


def refused(index: int, code: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    """The answer of a partition whose log was not asked, or says nothing of itself."""
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)


def refused_by_log(partition: Partition, index: int, error: KafkaError | LogError) -> PartitionProduceResponse:
    """The answer of a partition whose log refused the batch, or could not take it."""
    if isinstance(error, FencedLeaderEpochError):
        return refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if isinstance(error, LogError):
        return refused(index, ErrorCode.KAFKA_STORAGE_ERROR)
    answer = refused(index, error.code, error.message)
    if error.code not in _WITHOUT_LOG_START:
        answer.log_start_offset = partition.log.log_start_offset
    if isinstance(error, RecordsRefusedError):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=text)
            for place, text in error.record_errors
        ]
    return answer
