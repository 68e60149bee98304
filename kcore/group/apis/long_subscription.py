"""Heartbeats of consumers that name thousands of topics. Such a heartbeat runs in several slices.

A single decision about 10,000 topics would take 300 ms. The work has four parts. The first part checks permissions and
computes the hashes of topics. The second part decides the heartbeat, which adds or updates the member. The third part
waits until slices have computed the target. The fourth part decides the same heartbeat again, which assigns the target.
The client receives a single response, after all decisions are durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.heartbeat import JOIN
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.runtime.pending import Pending
from kcore.runtime.shard_state import ShardState
from kcore.runtime.sliced import SLICE_COST_US

if TYPE_CHECKING:
    from kcore.group.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatApi
    from kcore.group.shard import GroupShard
    from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard
    from kcore.runtime.sliced import Work

NAMES_PER_STEP: Final = 200
NAME_COST_US: Final = 20
"""The cost of checking the permission and computing the hash of a topic, in microseconds."""

MAX_DECISIONS: Final = 4
"""Maximum number of decisions for one request.

A request needs at most three decisions: they update the member, start the computation of the target, and assign the
target. A fourth decision follows if another member changes the group meanwhile.
"""


def decisions(
    api: ConsumerGroupHeartbeatApi,
    shard: Shard[GroupShard],
    context: RequestContext,
    request: ConsumerGroupHeartbeatRequest,
) -> Work:
    """Decides the heartbeat, waits for the new target, and decides the heartbeat again.

    Returns the responses of all decisions.
    """
    responses: list[Any] = []
    for _ in range(MAX_DECISIONS):
        responses.append(shard.run(api, context, request))
        yield SLICE_COST_US
        refused = not isinstance(responses[-1], Pending) and responses[-1].error_code
        if refused or not (yield from _target_followed(shard, request.group_id)):
            break
        group = shard.machine.groups.get(request.group_id)
        member = group.members.get(request.member_id) if isinstance(group, ConsumerGroup) else None
        if member is None:
            break
        if request.member_epoch != JOIN:
            request = _repetition(request, member.current.member_epoch)
    return responses


def last_response(responses: list[ConsumerGroupHeartbeatResponse]) -> ConsumerGroupHeartbeatResponse:
    """Merges the responses of the decisions.

    Returns the first response with an error. Without errors, returns the last response, with the assignment of the last
    response that has an assignment.
    """
    merged = responses[0]
    for response in responses[1:]:
        if merged.error_code:
            break
        if response.error_code or response.assignment is not None:
            merged = response
        else:
            response.assignment = merged.assignment
            merged = response
    return merged


def _target_followed(shard: Shard[GroupShard], group_id: str) -> Work:
    """Waits until no target of the group is being computed.

    Returns True if there is a new target, or if the next decision can compute a new target. Returns False at once for a
    large group, because a computation in the background may take long.
    """
    before = -1
    while shard.state is ShardState.ACTIVE:
        group = shard.machine.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or len(group.members) > group.shard.consumer.inline_members:
            return False
        if before < 0:
            before = group.assignment_epoch
        if not group.target_job:
            due = group.group_epoch > group.assignment_epoch and not group.target_must_wait()
            return due or group.assignment_epoch != before
        yield SLICE_COST_US
    return False


def _repetition(request: ConsumerGroupHeartbeatRequest, member_epoch: int) -> ConsumerGroupHeartbeatRequest:
    """Returns a copy of the heartbeat with another member epoch."""
    return ConsumerGroupHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=request.subscribed_topic_names,
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        topic_partitions=request.topic_partitions,
    )
