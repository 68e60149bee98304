"""The requests of a member of a classic group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kcore.client.consumer_coordinator.interface import Generation, MemberSettings
from kcore.client.consumer_coordinator.leader import encode_subscription
from kcore.protocol.consumer_protocol import PROTOCOL_TYPE
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kcore.protocol.topic_partition import TopicPartition


def join_request(
    settings: MemberSettings,
    generation: Generation,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    previous: Iterable[TopicPartition],
    reason: str,
) -> JoinGroupRequest:
    """Builds a JoinGroup, with one subscription for each assignor.

    Args:
        settings: the member's settings.
        generation: the member's last generation.
        topics: the subscribed topics.
        owned: the partitions that the member still owns.
        previous: the partitions of the member's last assignment.
        reason: the reason of the join, which the broker logs.
    """
    protocols = [
        JoinGroupRequestProtocol(
            name=one.name,
            metadata=encode_subscription(one.name, topics, owned, previous, generation.id, settings.rack),
        )
        for one in settings.assignors
    ]
    return JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        member_id=generation.member_id,
        group_instance_id=settings.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=reason or None,
    )


def sync_request(
    settings: MemberSettings, generation: Generation, assignments: Sequence[SyncGroupRequestAssignment]
) -> SyncGroupRequest:
    """Builds a SyncGroup. Only the leader of the group sends assignments."""
    return SyncGroupRequest(
        group_id=settings.group_id,
        generation_id=generation.id,
        member_id=generation.member_id,
        group_instance_id=settings.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=generation.protocol,
        assignments=assignments,
    )


def heartbeat_request(settings: MemberSettings, generation: Generation) -> HeartbeatRequest:
    """Builds a Heartbeat."""
    return HeartbeatRequest(
        group_id=settings.group_id,
        generation_id=generation.id,
        member_id=generation.member_id,
        group_instance_id=settings.instance_id,
    )
