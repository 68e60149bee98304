"""The APIs of the group coordinator, one per file. The class of an API is imported at its first use.

`kcore.served_apis` creates the APIs.
"""

from typing import TYPE_CHECKING

from kcore.runtime.deferred import api_finder

if TYPE_CHECKING:
    from kcore.group.apis.alter_share_group_offsets import AlterShareGroupOffsetsApi as AlterShareGroupOffsetsApi
    from kcore.group.apis.consumer_group_describe import ConsumerGroupDescribeApi as ConsumerGroupDescribeApi
    from kcore.group.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatApi as ConsumerGroupHeartbeatApi
    from kcore.group.apis.delete_groups import DeleteGroupsApi as DeleteGroupsApi
    from kcore.group.apis.delete_share_group_offsets import DeleteShareGroupOffsetsApi as DeleteShareGroupOffsetsApi
    from kcore.group.apis.describe_groups import DescribeGroupsApi as DescribeGroupsApi
    from kcore.group.apis.describe_share_group_offsets import (
        DescribeShareGroupOffsetsApi as DescribeShareGroupOffsetsApi,
    )
    from kcore.group.apis.find_coordinator import FindCoordinatorApi as FindCoordinatorApi
    from kcore.group.apis.heartbeat import HeartbeatApi as HeartbeatApi
    from kcore.group.apis.join_group import JoinGroupApi as JoinGroupApi
    from kcore.group.apis.leave_group import LeaveGroupApi as LeaveGroupApi
    from kcore.group.apis.list_groups import ListGroupsApi as ListGroupsApi
    from kcore.group.apis.offset_commit import OffsetCommitApi as OffsetCommitApi
    from kcore.group.apis.offset_delete import OffsetDeleteApi as OffsetDeleteApi
    from kcore.group.apis.offset_fetch import OffsetFetchApi as OffsetFetchApi
    from kcore.group.apis.share_group_describe import ShareGroupDescribeApi as ShareGroupDescribeApi
    from kcore.group.apis.share_group_heartbeat import ShareGroupHeartbeatApi as ShareGroupHeartbeatApi
    from kcore.group.apis.streams_group_describe import StreamsGroupDescribeApi as StreamsGroupDescribeApi
    from kcore.group.apis.streams_group_heartbeat import StreamsGroupHeartbeatApi as StreamsGroupHeartbeatApi
    from kcore.group.apis.sync_group import SyncGroupApi as SyncGroupApi
    from kcore.group.apis.txn_offset_commit import TxnOffsetCommitApi as TxnOffsetCommitApi

__getattr__ = api_finder(__name__)
