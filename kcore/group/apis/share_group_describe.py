"""ShareGroupDescribe (API key 77), v1: epochs, members and their assignments (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.apis.group_describe import GroupDescribeApi
from kcore.group.group import GroupType, not_found
from kcore.group.share.describe import describe
from kcore.group.share.group import ShareGroup
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from kcore.group.description import Description
    from kcore.group.shard import GroupShard


class ShareGroupDescribeApi(GroupDescribeApi[ShareGroupDescribeRequest, ShareGroupDescribeResponse]):
    """Handler of ShareGroupDescribe requests."""

    key = ApiKey.SHARE_GROUP_DESCRIBE
    request_type = ShareGroupDescribeRequest
    response_type = ShareGroupDescribeResponse
    group_response_type = DescribedGroup
    versions = (1, 1)

    __slots__ = ()

    def describe(self, machine: GroupShard, group_id: str) -> Description:
        """Returns the description of a share group.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND if the group is not a share group.
        """
        group = machine.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            raise not_found(group_id, group, GroupType.SHARE)
        return describe(group)
