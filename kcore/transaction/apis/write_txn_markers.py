"""WriteTxnMarkers (key 27), v1-2: ends transactions in the logs of partitions (KIP-98).

A coordinator or an operator sends it. It neither reads nor changes the state of this coordinator. v2 has the
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
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kcore.runtime.api import Api
from kcore.runtime.pending import Pending
from kcore.transaction.markers import Marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.commit import CommitPipeline
    from kcore.transaction.local_markers import LocalMarkers


class WriteTxnMarkersApi(Api[WriteTxnMarkersRequest, WriteTxnMarkersResponse]):
    """Serves WriteTxnMarkers.

    Args:
        markers: writes markers to partitions of this node.
        pipeline: commits the markers; responses wait for it.
        authorizer: decides about permissions; None allows all requests.
    """

    __slots__ = ("_authorizer", "_markers", "_pipeline")

    key: ClassVar[ApiKey] = ApiKey.WRITE_TXN_MARKERS
    request_type: ClassVar[type] = WriteTxnMarkersRequest
    response_type: ClassVar[type] = WriteTxnMarkersResponse
    versions: ClassVar[tuple[int, int]] = (1, 2)
    storage_error: ClassVar[ErrorCode] = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, markers: LocalMarkers, pipeline: CommitPipeline, authorizer: Authorizer | None = None) -> None:
        self._markers = markers
        self._pipeline = pipeline
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: WriteTxnMarkersRequest) -> Any:
        """Stages the markers; the response waits for their commit."""
        authorizer = self._authorizer
        if authorizer is not None and not (
            authorizer.allowed(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
            or authorizer.allowed(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        ):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        response = WriteTxnMarkersResponse(markers=[self._write(entry) for entry in request.markers])
        if not self._pipeline.has_uncommitted:
            return response
        pending = Pending(self, context, request)
        self._pipeline.respond_after_commit(pending, response)
        return pending

    def _write(self, entry: WritableTxnMarker) -> WritableTxnMarkerResult:
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
        ],
    )
