"""WriteTxnMarkers (key 27), v1-2: ends transactions in the logs of partitions (KIP-98).

Coordinators and operators send this request. The handler does not use the state of this node's coordinator. v2 has the
transaction.version of each marker (KIP-1228).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kcore.runtime.api import Api
from kcore.runtime.pending import Pending, gather
from kcore.transaction.markers import Marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.sliced import Work
    from kcore.runtime.slices import Slices
    from kcore.transaction.local_markers import LocalMarkers

NO_EPOCH = -1
"""The epoch of a producer that has none."""
FEW_PARTITIONS = 200
"""Maximum number of markers that the handler stages without a pause. It stages the markers of longer requests in parts.
"""
PARTITION_COST_US = 20
"""Estimated time in microseconds to stage one marker."""


def _joined(
    request: WriteTxnMarkersRequest, positions: list[tuple[int, int]], parts: list[WriteTxnMarkersResponse]
) -> WriteTxnMarkersResponse:
    """Joins the responses of the parts into the response to the request.

    Args:
        request: the whole request.
        positions: for each part, the index of its marker in the request, and the index of its topic in the marker.
        parts: the responses of the parts.
    """
    results: dict[tuple[int, int], list[WritableTxnMarkerPartitionResult]] = {}
    for position, part in zip(positions, parts, strict=True):
        results.setdefault(position, []).extend(part.markers[0].topics[0].partitions)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=entry.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(name=topic.name, partitions=results.get((number, at), []))
                    for at, topic in enumerate(entry.topics)
                ],
            )
            for number, entry in enumerate(request.markers)
        ]
    )


class WriteTxnMarkersApi(Api[WriteTxnMarkersRequest, WriteTxnMarkersResponse]):
    """Handler of WriteTxnMarkers requests.

    Args:
        markers: writes markers to partitions of this node.
        pipeline: commits the markers; responses wait for it.
        authorizer: decides about permissions; None allows all requests.
        slices: runs long requests in slices; None runs each request at once.
    """

    __slots__ = ("_authorizer", "_markers", "_pipeline", "_slices")

    key: ClassVar[ApiKey] = ApiKey.WRITE_TXN_MARKERS
    request_type: ClassVar[type] = WriteTxnMarkersRequest
    response_type: ClassVar[type] = WriteTxnMarkersResponse
    versions: ClassVar[tuple[int, int]] = (1, 2)
    storage_error: ClassVar[ErrorCode] = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(
        self,
        markers: LocalMarkers,
        pipeline: CommitPipeline,
        authorizer: Authorizer | None = None,
        slices: Slices | None = None,
    ) -> None:
        self._slices = slices
        self._markers = markers
        self._pipeline = pipeline
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: WriteTxnMarkersRequest) -> Any:
        """Authorizes the request and stages the markers, in parts if they are many."""
        authorizer = self._authorizer
        if authorizer is not None and not (
            authorizer.allowed(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
            or authorizer.allowed(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        ):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        request = _without_empty(request)
        count = sum(len(topic.partition_indexes) for entry in request.markers for topic in entry.topics)
        if count <= FEW_PARTITIONS or self._slices is None:
            return self._stage(context, request)

        def join(placed: list[tuple[tuple[int, int], Any]]) -> Any:
            positions = [position for position, _ in placed]

            def build(parts: list[WriteTxnMarkersResponse]) -> WriteTxnMarkersResponse:
                return _joined(request, positions, parts)

            return gather(self, context, request, [part for _, part in placed], build)

        return self._slices.requests.run(self, context, request, self._parts(context, request), join)

    def _parts(self, context: RequestContext, request: WriteTxnMarkersRequest) -> Work:
        """Stages the markers in parts.

        Returns for each part the indices of its marker and its topic in the request, and its result.
        """
        parts: list[tuple[tuple[int, int], Any]] = []
        for number, entry in enumerate(request.markers):
            for at, topic in enumerate(entry.topics):
                for first in range(0, len(topic.partition_indexes), FEW_PARTITIONS):
                    indexes = topic.partition_indexes[first : first + FEW_PARTITIONS]
                    some = _with_topics(entry, [WritableTxnMarkerTopic(name=topic.name, partition_indexes=indexes)])
                    parts.append(((number, at), self._stage(context, WriteTxnMarkersRequest(markers=[some]))))
                    yield PARTITION_COST_US * len(indexes)
        return parts

    def _stage(self, context: RequestContext, request: WriteTxnMarkersRequest) -> Any:
        """Stages the markers; the response waits for their commit."""
        response = WriteTxnMarkersResponse(markers=[self._write(entry) for entry in request.markers])
        if not self._pipeline.has_uncommitted:
            return response
        pending = Pending(self, context, request)
        self._pipeline.respond_after_commit(pending, response)
        return pending

    def _write(self, entry: WritableTxnMarker) -> WritableTxnMarkerResult:
        if entry.producer_id < 0 or entry.producer_epoch == NO_EPOCH:
            # as in Kafka, whose logs refuse such a marker with an exception
            look_up = self._markers.look_up
            exists = any(look_up(topic.name, index) for topic in entry.topics for index in topic.partition_indexes)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return _result(entry, lambda topic, index: code)
        marker = Marker(
            entry.producer_id,
            entry.producer_epoch,
            entry.transaction_result,
            entry.coordinator_epoch,
            entry.transaction_version,
        )
        return _result(entry, lambda topic, index: self._markers.append(marker, topic, index))

    def error(
        self, context: RequestContext, request: WriteTxnMarkersRequest, code: ErrorCode, message: str | None = None
    ) -> WriteTxnMarkersResponse:
        """Returns a response with `code` for every partition of every producer."""
        return WriteTxnMarkersResponse(markers=[_result(entry, lambda topic, index: code) for entry in request.markers])


def _with_topics(entry: WritableTxnMarker, topics: list[WritableTxnMarkerTopic]) -> WritableTxnMarker:
    """Returns a marker of the same transaction for other topics."""
    return WritableTxnMarker(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        transaction_result=entry.transaction_result,
        coordinator_epoch=entry.coordinator_epoch,
        transaction_version=entry.transaction_version,
        topics=topics,
    )


def _without_empty(request: WriteTxnMarkersRequest) -> WriteTxnMarkersRequest:
    """Returns the request without topics that have no partitions, and without markers that have no topics.

    Kafka's response leaves them out.
    """
    if all(entry.topics and all(topic.partition_indexes for topic in entry.topics) for entry in request.markers):
        return request
    markers = []
    for entry in request.markers:
        topics = [topic for topic in entry.topics if topic.partition_indexes]
        if topics:
            markers.append(_with_topics(entry, topics))
    return WriteTxnMarkersRequest(markers=markers)


def _result(entry: WritableTxnMarker, code: Callable[[str, int], ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=entry.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=code(topic.name, index))
                    for index in topic.partition_indexes
                ],
            )
            for topic in entry.topics
            if topic.partition_indexes  # Kafka's response leaves out other topics
        ],
    )
