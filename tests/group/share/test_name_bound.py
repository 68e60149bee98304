"""The limit on the number of distinct topics to which the members of a share group may subscribe by name."""

from __future__ import annotations

from typing import Any

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.group.share.world import GROUP, World

LIMIT = 2_000


def beat(world: World, member: str, first: int, count: int, epoch: int = 0) -> Any:
    names = [f"absent-{number}" for number in range(first, first + count)]
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=member, member_epoch=epoch, subscribed_topic_names=names
    )
    return world.node.send(request)


def test_the_members_of_a_share_group_name_a_limited_number_of_topics() -> None:
    world = World(**{"kcore.max.request.elements": LIMIT // 2})
    one = beat(world, "one", 0, 900)
    assert one.error_code == ErrorCode.NONE
    assert beat(world, "two", 900, 900).error_code == ErrorCode.NONE
    refused = beat(world, "three", 5_000, 201)
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert f"the maximum is {LIMIT}" in refused.error_message
    assert beat(world, "three", 5_000, 200).error_code == ErrorCode.NONE, "exactly the limit"
    assert beat(world, "four", 500, 900).error_code == ErrorCode.NONE, "all of these topics are named already"
    # A member may replace topics that it alone names.
    assert beat(world, "three", 6_000, 200).error_code == ErrorCode.NONE
