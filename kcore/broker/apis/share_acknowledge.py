"""ShareAcknowledge (key 79), v1-2: acknowledges records of a share group without fetching (KIP-932).

v2 can renew locks (KIP-1222).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kcore.broker.share.requests import FEW_PARTITIONS, LEADER_ERRORS, MAX_PARTITIONS, Results, ShareApi
from kcore.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, TopicIdPartition
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kcore.runtime.api import RequestContext
from kcore.runtime.pending import Pending
from kcore.runtime.sliced import step

_SERVER_ERROR: Final = ShareAcknowledgeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
"""The response after an internal error. It exists in advance, because an error can mean that memory is exhausted."""


class ShareAcknowledgeApi(ShareApi[ShareAcknowledgeRequest, ShareAcknowledgeResponse]):
    """Handler of ShareAcknowledge requests. The response waits until the new state is durable.

    Args:
        share_partitions: the share partitions of the node.
        enabled: returns True if share groups are enabled.
        cluster: this node's endpoints.
        authorizer: decides about permissions; None allows all.
    """

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.SHARE_ACKNOWLEDGE
    request_type: ClassVar[type] = ShareAcknowledgeRequest
    response_type: ClassVar[type] = ShareAcknowledgeResponse
    versions: ClassVar[tuple[int, int]] = (1, 2)
    differs: ClassVar[str] = (
        f"A request may have {MAX_PARTITIONS} partitions; a request with more gets INVALID_REQUEST."
    )

    def handle(self, context: RequestContext, request: ShareAcknowledgeRequest) -> Any:
        """Acknowledges the records of each partition, in slices if there are many.

        A request with the final epoch also ends the share session after the acknowledgements.
        """
        error = self.refusal(context, request)
        if error is not ErrorCode.NONE:
            return self.error(context, request, error)
        session_key = SessionKey(request.group_id or "", request.member_id or "")
        sessions = self.share_partitions.sessions
        epoch = request.share_session_epoch
        session = sessions.get(session_key)
        if epoch == INITIAL_EPOCH:
            return self.error(context, request, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if session is None:
            return self.error(context, request, ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                return self.error(context, request, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.advance()
        acknowledgements = [
            (TopicIdPartition(topic.topic_id, data.partition_index), data.acknowledgement_batches)
            for topic in request.topics
            for data in topic.partitions
        ]
        pending = Pending(self, context, request)

        def acknowledged(results: Results) -> None:
            try:
                if epoch == FINAL_EPOCH and sessions.get(session_key) is session:
                    sessions.close(session_key)
                response = self._respond(context, session_key.group_id, results)
            except Exception as error:
                response = self.failed_late(context, error, _SERVER_ERROR)
            pending.complete(response)

        work = self.acknowledge(context, session_key, acknowledgements, request.is_renew_ack, acknowledged)
        if len(acknowledgements) > FEW_PARTITIONS:
            slices = self.share_partitions.partitions.slices
            return slices.requests.run(self, context, request, work, lambda _: pending)
        step(work, -1)
        return pending.response if pending.done else pending

    def error(
        self, context: RequestContext, request: ShareAcknowledgeRequest, code: ErrorCode, message: str | None = None
    ) -> ShareAcknowledgeResponse:
        """Returns a response with a top-level error code."""
        return ShareAcknowledgeResponse(error_code=code, error_message=message)

    def _respond(self, context: RequestContext, group_id: str, results: Results) -> ShareAcknowledgeResponse:
        topics: dict[bytes, list[PartitionData]] = {}
        for key, result in results.items():
            data = PartitionData(partition_index=key.partition, error_code=result.error, error_message=result.message)
            if result.error in LEADER_ERRORS:
                partition = self.find(context, key)
                if not isinstance(partition, ErrorCode) and self._cluster is not None:
                    data.current_leader = LeaderIdAndEpoch(
                        leader_id=self._cluster.node_id, leader_epoch=partition.leader_epoch
                    )
            topics.setdefault(key.topic_id, []).append(data)
        endpoint = self.leader_endpoint(context, {result.error for result in results.values()})
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self.lock_ms(group_id),
            responses=[
                ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=[]
            if endpoint is None
            else [NodeEndpoint(node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)],
        )
