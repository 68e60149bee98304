"""Commits of many topics on a node with an authorizer: the permissions are checked in slices before the commits reach
the group.
"""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.runtime.topic_permissions import FEW_TOPICS
from tests.group.context import GroupContext

TOPICS = 2_600
NAMES = [f"t{number:04}" for number in range(TOPICS)]
DENIED, ABSENT = "t1700", "absent"


class Readers:
    """An authorizer that denies READ of one topic and records the checked topics."""

    def __init__(self) -> None:
        self.checked: list[str] = []

    def allowed(self, context: Any, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if resource_type is ResourceType.TOPIC:
            self.checked.append(name)
        return name != DENIED


def commit_of(world: GroupContext, names: list[str], version: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topics = []
    for name in names:
        topic = world.topics.by_name(name)
        topic_id = b"\1" * 16 if topic is None else topic.topic_id
        named = {"topic_id": topic_id} if version >= 10 else {"name": name}
        topics.append(OffsetCommitRequestTopic(partitions=[partition], **named))
    return OffsetCommitRequest(group_id="g", topics=topics)


@pytest.mark.parametrize("version", [9, 10])
def test_the_permissions_of_many_topics_are_decided_in_slices(version: int) -> None:
    world, readers = GroupContext(topics=dict.fromkeys(NAMES, 1)), Readers()
    api = OffsetCommitApi(world.shards, world.topics, readers)
    world.slices.requests.enabled = True
    world.auto_commit = False
    finish, world.finish = world.finish, lambda: None  # type: ignore[method-assign]
    call = world.send(api, commit_of(world, [*NAMES, ABSENT], version), version=version)
    checked = len(readers.checked)
    assert FEW_TOPICS < checked < TOPICS, "the first slice has checked a part"
    assert not call.done
    small = world.send(api, commit_of(world, NAMES[:1], version), version=version)
    while world.slices.step():
        assert world.machine.offsets.commits <= 1, "nothing is written before the last permission is decided"
    finish()
    world.pipeline.commit()
    assert small.done
    assert call.done
    codes = [topic.partitions[0].error_code for topic in call.response.topics]
    expected = [ErrorCode.TOPIC_AUTHORIZATION_FAILED if name == DENIED else ErrorCode.NONE for name in NAMES]
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [*expected, unknown]
    for name in NAMES[1:]:
        assert readers.checked.count(name) == 1


def test_few_topics_need_no_slices() -> None:
    world, readers = GroupContext(topics=dict.fromkeys(NAMES, 1)), Readers()
    api = OffsetCommitApi(world.shards, world.topics, readers)
    world.slices.requests.enabled = True
    world.finish = world.pipeline.commit  # type: ignore[method-assign]
    assert world.send(api, commit_of(world, NAMES[:FEW_TOPICS], 9), version=9).done
