"""Produce (key 0), v3-13: appends batches.

v7 adds zstd, v8 errors of single records, v10 the current leader (KIP-951), v12 the implicit addition of partitions to
transactions (KIP-890), v13 topic ids (KIP-516).

ApiVersions also advertises v0-2: without v0, old librdkafka releases assume that the broker does not support
compression (KAFKA-18659). At a request of these versions, as of any unsupported version, the server closes the
connection.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kcore.broker.data.append import RecordsRefusedError, append, read_header
from kcore.broker.data.client_quotas import PRODUCER_BYTE_RATE
from kcore.broker.data.decompression import DecompressionBudget
from kcore.broker.data.long_produce import LongProduce
from kcore.broker.data.transactional_produce import ProduceItem, TransactionalProduce
from kcore.broker.metadata.names import CLUSTER_METADATA
from kcore.errors import CloseConnectionError, KafkaError
from kcore.log.errors import FencedLeaderEpochError, LogError
from kcore.protocol import DecodeError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.batch_layout import CONTROL_BIT, TRANSACTIONAL_BIT
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
from kcore.runtime.topic_permissions import FEW_TOPICS, TopicPermissions
from kcore_ext.batch import CorruptBatchError, iter_entries
from kcore_ext.broker.produce import ProduceFastPath

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from kcore.broker.data.client_quotas import ClientQuotas
    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import Partitions, TopicPartitions
    from kcore.broker.data.transaction_verifier import PartitionVerifier
    from kcore.clock import Now
    from kcore.config.node import Config
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.commit import CommitPipeline

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_LEADER = 10
ADMIN_CLIENT_ID = "__admin_client"
"""The only client id that may write to internal topics, and only if an authorizer allows the write.

Kafka allows the write even without an authorizer. kcore does not, because any client can use this id. A record that a
coordinator cannot read would make the load of that coordinator's partition fail.
"""

# Errors of the log whose responses do not contain the log's start offset; responses to other errors contain it.
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


class ProduceApi(Api[ProduceRequest, ProduceResponse]):
    """Handler of Produce requests.

    The fast path serves a request if every batch is valid and next in its sequence. In addition, every batch must
    belong to no transaction, or to a transaction that is already open in the partition.

    Args:
        partitions: the node's partitions.
        pipeline: commits appends; responses wait for it.
        now: the clock, which the driver reads once for each round of requests.
        partition_verifier: verifies transactions.
        cluster: the leaders, for responses that name them.
        authorizer: decides about WRITE of each topic; None allows all.
        config: the node's settings; None: transactions are verified.
        quotas: measures the rates of clients; None: there are no quotas.
    """

    __slots__ = (
        "_authorizer",
        "_cluster",
        "_config",
        "_now",
        "_partitions",
        "_pipeline",
        "_quotas",
        "fast",
        "partition_verifier",
    )

    key = ApiKey.PRODUCE
    request_type = ProduceRequest
    response_type = ProduceResponse
    versions = (0, 13)
    small_responses = True
    differs = (
        "kcore refuses a compressed batch with more than 16 MiB of decompressed records with MESSAGE_TOO_LARGE. A "
        "request may have 64 MiB of decompressed records, or 32 times the size of its batches if that is more. Further "
        "batches of the request get MESSAGE_TOO_LARGE. Kafka has neither limit."
    )
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
        config: Config | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._partitions = partitions
        self._pipeline = pipeline
        self._now = now
        self._cluster = cluster
        self._authorizer = authorizer
        self.partition_verifier = partition_verifier
        self._config = config
        path = ProduceFastPath(
            self,
            names=partitions.names,
            ids=partitions.ids,
            pipeline=pipeline,
            now=now,
            allowed=None if authorizer is None else self._allowed,
            forbidden=CLUSTER_METADATA,
            decompress=decompress,
        )
        self.fast = path.serve
        self._quotas: ClientQuotas | None = None  # None while no producer has a quota
        if quotas is not None:
            quotas.observe(lambda: self._follow(quotas, path))

    def _follow(self, quotas: ClientQuotas, path: ProduceFastPath) -> None:
        """Starts or stops measuring rates. The rates of producers are measured while any producer has a quota."""
        path.declines = quotas.has(PRODUCER_BYTE_RATE)
        self._quotas = quotas if path.declines else None

    def throttle(self, context: RequestContext, request: ProduceRequest, response: ProduceResponse) -> None:
        """Counts the records of a request for the client's quota, and sets the throttle time of the response."""
        if self._quotas is None:
            return
        size_bytes = sum(len(data.records or b"") for topic in request.topic_data for data in topic.partition_data)
        response.throttle_time_ms = self._quotas.charge(PRODUCER_BYTE_RATE, context, size_bytes)

    @property
    def verify_transactions(self) -> bool:
        """True if partitions verify transactions: `transaction.partition.verification.enable`."""
        return self._config is None or self._config.transaction_partition_verification_enable

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

    def handle(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse | Pending | None:
        """Finds partitions, verifies transactions and appends the batches; the response waits for the commit.

        Raises:
            CloseConnectionError: an error in a request with acks=0, which has no response.
        """
        if self._authorizer is None:
            return self._append(context, request, None)
        writable = TopicPermissions(self._authorizer, context, Operation.WRITE)
        slices = self._partitions.slices.requests
        if len(request.topic_data) <= FEW_TOPICS or not slices.enabled:
            return self._append(context, request, writable)
        names = self._topic_names(request, context.api_version)
        decided = partial(self._append_parked, context, request, writable)
        response: Pending = slices.run(self, context, request, writable.steps(names), decided)
        return response

    def _append_parked(
        self, context: RequestContext, request: ProduceRequest, writable: TopicPermissions, _: Any
    ) -> Any:
        """Appends the batches of a request that was parked. With acks=0, returns None even after an error."""
        try:
            return self._append(context, request, writable)
        except CloseConnectionError:
            return None

    def _topic_names(self, request: ProduceRequest, version: int) -> Iterator[str | None]:
        """Yields the topics of a request, None for unknown ids."""
        if version < FIRST_VERSION_WITH_TOPIC_IDS:
            return (topic.name for topic in request.topic_data)
        found = (self._partitions.ids.get(topic.topic_id) for topic in request.topic_data)
        return (None if topic is None else topic.name for topic in found)

    def _append(
        self, context: RequestContext, request: ProduceRequest, writable: TopicPermissions | None
    ) -> ProduceResponse | Pending | None:
        """Serves a request.

        Args:
            context: the client and the API version of the request.
            request: the Produce request.
            writable: the client's permissions to write to topics; None allows all topics.
        """
        items, transactional = self._read(context, request, writable)
        if isinstance(items, KafkaError):
            return self.reply(request, self.error(context, request, items.code, items.message), True)
        if transactional:
            return self._handle_transactional(context, request, items)
        return self.finish(context, request, items)

    @property
    def wall_ms(self) -> int:
        """The wall-clock time of the current round of requests, in ms since the epoch."""
        return self._now.wall_ms

    def reply(self, request: ProduceRequest, response: ProduceResponse, failed: bool) -> ProduceResponse | None:
        """Returns the response; None with acks=0.

        Raises:
            CloseConnectionError: a request with acks=0 failed.
        """
        if request.acks != 0:
            return response
        if failed:
            raise CloseConnectionError("a Produce request with acks=0 failed")
        return None

    # ---- reading the request

    def _read(
        self, context: RequestContext, request: ProduceRequest, writable: TopicPermissions | None
    ) -> tuple[list[ProduceItem] | KafkaError, bool]:
        """Looks up the request's partitions and parses their batch headers.

        Returns:
            A pair. First: the requested partitions, each with the error found so far, or the error of the whole
            request. Second: True if a batch belongs to a transaction.
        """
        version = context.api_version
        items = []
        transactional = False
        for topic in request.topic_data:
            partitions, topic_error = self._find(topic, version, writable)
            for data in topic.partition_data:
                header, error = None, topic_error
                try:
                    header = read_header(data.records or b"", version)
                    if header.attributes & TRANSACTIONAL_BIT:
                        transactional = True
                except KafkaError as refusal:
                    if refusal.message is not None:
                        # Kafka finds bytes that are not a batch when it looks for transactions, and refuses the whole
                        # request.
                        return refusal, False
                    error = error or refusal
                partition = None if partitions is None else partitions.get(data.index)
                if partition is None and topic_error is None:
                    error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                items.append(ProduceItem(data, partition, header, error))
        return items, transactional

    def _find(
        self, topic: TopicProduceData, version: int, writable: TopicPermissions | None
    ) -> tuple[TopicPartitions | None, KafkaError | None]:
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            partitions = self._partitions.ids.get(topic.topic_id)
            if partitions is None:
                return None, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            partitions = self._partitions.names.get(topic.name)
        if writable is not None and not writable[topic.name if partitions is None else partitions.name]:
            return None, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return partitions, None

    def _allowed(self, context: RequestContext, topic: str) -> bool:
        """Decides if the client may write to a topic."""
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
            return self.reply(request, error, True)
        return TransactionalProduce(self, context, request, items).start()

    # ---- appends

    def finish(
        self, context: RequestContext, request: ProduceRequest, items: list[ProduceItem]
    ) -> ProduceResponse | Pending | None:
        """Appends the batches that passed all checks so far, and makes the response for all partitions.

        Appends the batches of a long request in several parts. All batches of a part become durable in the same commit.

        Raises:
            CloseConnectionError: an error in a request with acks=0, which has no response.
        """
        result: ProduceResponse | Pending | None
        result = LongProduce(self, context, request, items).start(self._partitions.slices)
        return result

    def append_item(
        self, context: RequestContext, item: ProduceItem, acks: int, budget: DecompressionBudget
    ) -> PartitionProduceResponse | Generator[int, None, PartitionProduceResponse]:
        """Appends the batch of one partition unless it is refused, and makes the partition's response.

        Returns:
            The response. If the batch is long when decompressed, or must be converted, the method returns a generator
            of the response instead. The generator yields the cost of each step in microseconds, and appends the batch
            at its end.
        """
        partition, header = item.partition, item.header
        index = item.data.index
        if item.error is not None:
            return self._with_leader(context, partition, refused(index, item.error.code, item.error.message))
        assert partition is not None
        assert header is not None
        if not -1 <= acks <= 1:
            return refused(index, ErrorCode.INVALID_REQUIRED_ACKS)
        if (partition.internal and not self._is_admin(context)) or partition.topic == CLUSTER_METADATA:
            return refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if partition.recovering or partition.closed:
            if header.producer_id >= 0 and not header.is_transactional:  # no coordinator has verified the producer
                partition.producers.refuse(header.producer_id, header.producer_epoch, header.base_sequence)
            return self._with_leader(context, partition, refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        records = item.data.records or b""
        try:
            if partition.internal and not header.attributes & CONTROL_BIT:
                fault = unreadable_record(partition.topic, records, budget)
                if fault is not None:
                    return refused(index, ErrorCode.INVALID_RECORD, fault)
            verify = header.is_transactional and self.verify_transactions
            appended = append(partition, records, header, self._now, item.guard, verify, budget.decompress_in_steps)
        except (KafkaError, LogError) as error:
            return self.append_failed(context, partition, index, error)
        if isinstance(appended, tuple):
            return appended_response(partition, index, acks, appended)
        return self._append_late(context, partition, index, acks, appended)

    def _is_admin(self, context: RequestContext) -> bool:
        """Returns True if the client may write to internal topics."""
        return context.client_id == ADMIN_CLIENT_ID and self._authorizer is not None

    def _append_late(
        self,
        context: RequestContext,
        partition: Partition,
        index: int,
        acks: int,
        steps: Generator[int, None, tuple[int, int]],
    ) -> Generator[int, None, PartitionProduceResponse]:
        """Runs the steps that append a batch, yields their costs, and returns the partition's response."""
        try:
            appended = yield from steps
        except (KafkaError, LogError) as error:
            return self.append_failed(context, partition, index, error)
        return appended_response(partition, index, acks, appended)

    def respond(
        self,
        context: RequestContext,
        request: ProduceRequest,
        response: ProduceResponse,
        failed: bool,
        partitions: Iterable[Partition | None],
    ) -> ProduceResponse | Pending | None:
        """Returns the response immediately if all partitions are durable, else a response that waits for the commit.

        After a commit with an unknown result, the log may have discarded batches that the states of producers in memory
        still include. If a client repeats such a batch, the partition treats it as a duplicate. The response to a
        duplicate therefore also waits for the next commit.

        Raises:
            CloseConnectionError: an error in a request with acks=0, which has no response.
        """
        if request.acks == 0:
            return self.reply(request, response, failed)
        self.throttle(context, request, response)
        if failed and context.api_version >= FIRST_VERSION_WITH_LEADER:
            response.node_endpoints = self._endpoints(context, response)
        if not self._pipeline.uncertain and not any(
            partition is not None and partition.dirty for partition in partitions
        ):
            return response
        pending = Pending(self, context, request)
        self._pipeline.respond_after_commit(pending, response)
        return pending

    def append_failed(
        self, context: RequestContext, partition: Partition, index: int, error: Exception
    ) -> PartitionProduceResponse:
        """Makes the response of a partition whose log refused a batch that had passed every check.

        Raises:
            Exception: `error` itself, unless it is a LogError or a KafkaError.
        """
        if not isinstance(error, KafkaError | LogError):
            raise error
        return self._with_leader(context, partition, refused_by_log(partition, index, error))

    def _with_leader(
        self, context: RequestContext, partition: Partition | None, response: PartitionProduceResponse
    ) -> PartitionProduceResponse:
        """Adds the leader to a response with NOT_LEADER_OR_FOLLOWER, and returns the response."""
        cluster = self._cluster
        if context.api_version < FIRST_VERSION_WITH_LEADER or partition is None or cluster is None:
            return response
        if response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = cluster.leader(partition.topic, partition.index)
            if leader is not None:
                response.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)
        return response

    def _endpoints(self, context: RequestContext, response: ProduceResponse) -> list[NodeEndpoint]:
        """Returns the endpoints of the leaders that the response names."""
        if self._cluster is None:
            return []
        nodes = {
            result.current_leader.leader_id
            for topic in response.responses
            for result in topic.partition_responses
            if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        }
        brokers = [self._cluster.broker(node_id, context.listener) for node_id in sorted(nodes)]
        return [
            NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in brokers
            if broker is not None
        ]


def unreadable_record(topic: str, batch: bytes | memoryview, budget: DecompressionBudget) -> str | None:
    """Returns the reason why a coordinator cannot load a batch; None if it can, or if the bytes are damaged.

    Raises:
        KafkaError: the decompressed records are larger than the budget allows.
    """
    try:
        for offset, _, key, value in iter_entries(batch, decompress=budget.decompress):
            try:
                typed = None if key is None else decode_key(topic, key)
                if value is not None and typed is not None:
                    decode_value(typed, value)
            except DecodeError as error:
                return f"the coordinator cannot decode the record at offset {offset}: {error}"
    except CorruptBatchError:
        return None  # the log's own checks refuse the batch
    return None


def appended_response(
    partition: Partition, index: int, acks: int, appended: tuple[int, int]
) -> PartitionProduceResponse:
    """Makes the response of a partition to which a batch was appended: its base offset, and the time of the append."""
    if acks == 0:
        partition.unacknowledged_end = partition.log.end_offset
    return PartitionProduceResponse(
        index=index,
        base_offset=appended[0],
        log_append_time_ms=appended[1],
        log_start_offset=partition.log.log_start_offset,
    )


def refused(index: int, code: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    """Makes the response for a partition whose records are refused. Its log start offset is -1, which means unknown."""
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)


def refused_by_log(partition: Partition, index: int, error: KafkaError | LogError) -> PartitionProduceResponse:
    """Makes the response of a partition whose log refused the batch or failed."""
    if isinstance(error, FencedLeaderEpochError):
        return refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if isinstance(error, LogError):
        return refused(index, ErrorCode.KAFKA_STORAGE_ERROR)
    response = refused(index, error.code, error.message)
    if error.code not in _WITHOUT_LOG_START:
        response.log_start_offset = partition.log.log_start_offset
    if isinstance(error, RecordsRefusedError):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=text)
            for batch_index, text in error.record_errors
        ]
    return response
