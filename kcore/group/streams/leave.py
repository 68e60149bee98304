"""Removal of members of streams groups, which leave or whose timer has fired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.errors import KafkaError
from kcore.group.streams import records as group_records
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from kcore.runtime.machine import Outcome

if TYPE_CHECKING:
    from kcore.group.streams.group import StreamsGroup
    from kcore.group.streams.member import StreamsMember
    from kcore.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
    from kcore.runtime.machine import Record


def leave(group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> Outcome:
    """Decides a heartbeat with epoch -1, which may also request the shutdown of the application.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID.
    """
    if request.shutdown_application:
        group.request_shutdown(request.member_id)
    member = group.members.get(request.member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is not a member of group {group.group_id}")
    response = StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    return Outcome(fence(group, member), response)


def fence(group: StreamsGroup, member: StreamsMember) -> list[Record]:
    """Returns the records that remove a member with a new group epoch. Later heartbeats reassign its tasks."""
    return [
        *group_records.member_tombstones(group.group_id, member.member_id),
        group_records.group_epoch(
            group.group_id,
            group.group_epoch + 1,
            group.metadata_hash,
            group.validated_epoch,
            group.assignment_configs,
        ),
    ]
