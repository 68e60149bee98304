"""The session of a ShareFetch request (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.broker.share.requests import MAX_PARTITIONS
from kcore.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, Client, TopicIdPartition
from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.broker.share.sessions import SessionKey, ShareSession
    from kcore.broker.share.share_partitions import SharePartitions
    from kcore.protocol.messages.share_fetch import ShareFetchRequest
    from kcore.runtime.api import RequestContext


def session_of(
    share_partitions: SharePartitions,
    context: RequestContext,
    request: ShareFetchRequest,
    key: SessionKey,
    acknowledges: bool,
) -> ShareSession | None:
    """Opens or continues the session of a request; returns None for the final request of a session.

    Args:
        share_partitions: the share partitions of the node, with its sessions.
        context: the client and the API version of the request.
        request: the ShareFetch request.
        key: the group and the member.
        acknowledges: True if the request has acknowledgements.

    Raises:
        KafkaError: the epoch is wrong, the session does not exist, or there are too many sessions or partitions.
    """
    sessions = share_partitions.sessions
    epoch = request.share_session_epoch
    requested = [
        TopicIdPartition(topic.topic_id, data.partition_index) for topic in request.topics for data in topic.partitions
    ]
    if epoch == INITIAL_EPOCH:
        if acknowledges:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if key in share_partitions.releasing:
            # Otherwise the rest of the release would also release the records of the new session.
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        opened = sessions.open(key, Client(context.client_host, context.connection_id), requested)
        if opened is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        return opened
    session = sessions.get(key)
    if session is None:
        raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
    if epoch == FINAL_EPOCH:
        return None
    if epoch != session.epoch:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    forgotten = (
        TopicIdPartition(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    )
    too_many = len(session.partitions.keys() | requested) > MAX_PARTITIONS
    if too_many or not sessions.update(session, requested, forgotten):
        raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    session.advance()
    return session
