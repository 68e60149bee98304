"""StreamsGroupDescribe (API key 89), v0: epochs, topology, members, their tasks and targets (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.apis.group_describe import GroupDescribeApi
from kcore.group.group import GroupType, not_found
from kcore.group.streams.describe import describe
from kcore.group.streams.group import StreamsGroup
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

if TYPE_CHECKING:
    from kcore.group.description import Description
    from kcore.group.shard import GroupShard


class StreamsGroupDescribeApi(GroupDescribeApi[StreamsGroupDescribeRequest, StreamsGroupDescribeResponse]):
    """Handler of StreamsGroupDescribe requests."""

    key = ApiKey.STREAMS_GROUP_DESCRIBE
    request_type = StreamsGroupDescribeRequest
    response_type = StreamsGroupDescribeResponse
    group_response_type = DescribedGroup
    versions = (0, 0)

    __slots__ = ()

    def describe(self, machine: GroupShard, group_id: str) -> Description:
        """Returns the description of a streams group.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND if the group is not a streams group.
        """
        group = machine.groups.get(group_id)
        if not isinstance(group, StreamsGroup):
            raise not_found(group_id, group, GroupType.STREAMS)
        return describe(group)
