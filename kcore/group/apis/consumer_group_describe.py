"""ConsumerGroupDescribe (API key 69), v0-1: epochs, members, their assignments and targets (KIP-848).

v1 identifies members of the classic protocol (KIP-1099).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.apis.group_describe import GroupDescribeApi
from kcore.group.consumer.describe import describe
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.group import GroupType, not_found
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from kcore.group.description import Description
    from kcore.group.shard import GroupShard


class ConsumerGroupDescribeApi(GroupDescribeApi[ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse]):
    """Handler of ConsumerGroupDescribe requests."""

    key = ApiKey.CONSUMER_GROUP_DESCRIBE
    request_type = ConsumerGroupDescribeRequest
    response_type = ConsumerGroupDescribeResponse
    group_response_type = DescribedGroup
    versions = (0, 1)

    __slots__ = ()

    def describe(self, machine: GroupShard, group_id: str) -> Description:
        """Returns the description of a consumer group.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND if the group is not a consumer group.
        """
        group = machine.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise not_found(group_id, group, GroupType.CONSUMER)
        return describe(group)
