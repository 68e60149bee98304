"""The APIs of the group coordinator, one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.group.apis.consumer_group_describe import ConsumerGroupDescribeApi
from kcore.group.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatApi
from kcore.group.apis.delete_groups import DeleteGroupsApi
from kcore.group.apis.describe_groups import DescribeGroupsApi
from kcore.group.apis.find_coordinator import FindCoordinatorApi
from kcore.group.apis.heartbeat import HeartbeatApi
from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.apis.leave_group import LeaveGroupApi
from kcore.group.apis.list_groups import ListGroupsApi
from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.group.apis.offset_delete import OffsetDeleteApi
from kcore.group.apis.offset_fetch import OffsetFetchApi
from kcore.group.apis.sync_group import SyncGroupApi
from kcore.group.apis.txn_offset_commit import TxnOffsetCommitApi
from kcore.group.consumer.services import ConsumerServices

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.config import Config
    from kcore.group.offsets.verifier import TransactionVerifier
    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import Api
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.shards import Shards
    from kcore.runtime.topics import TopicImage


def group_apis(
    shards: Shards[GroupShard],
    *,
    config: Config,
    topics: TopicImage,
    cluster: ClusterView,
    make_topic: Callable[[str], object] | None = None,
    verifier: TransactionVerifier | None = None,
    authorizer: Authorizer | None = None,
    consumer: ConsumerServices | None = None,
) -> list[Api[Any, Any]]:
    """Every API of groups and their offsets.

    Args:
        shards: the group shards of this node.
        config: the node's settings.
        topics: the cluster's topics.
        cluster: who leads the internal topics' partitions, for FindCoordinator.
        make_topic: begins to make an internal topic that is not there yet, by name, for FindCoordinator; None where
            they are always there.
        verifier: asks whether a producer's transaction goes on; None: TxnOffsetCommit is not served.
        authorizer: who may do what; None allows all.
        consumer: what consumer groups need of the node, the same as the shards have; None: of `config` and `topics`.
    """
    services = ConsumerServices(config, topics) if consumer is None else consumer
    apis: list[Api[Any, Any]] = [
        FindCoordinatorApi(topics, cluster, make_topic, authorizer),
        JoinGroupApi(shards, config, authorizer),
        SyncGroupApi(shards, authorizer),
        HeartbeatApi(shards, authorizer),
        LeaveGroupApi(shards, authorizer),
        ConsumerGroupHeartbeatApi(shards, services, authorizer),
        ConsumerGroupDescribeApi(shards, services, authorizer),
        DescribeGroupsApi(shards, authorizer),
        ListGroupsApi(shards, authorizer),
        DeleteGroupsApi(shards, authorizer),
        OffsetCommitApi(shards, topics, authorizer),
        OffsetFetchApi(shards, topics, authorizer),
        OffsetDeleteApi(shards, topics, authorizer),
    ]
    if verifier is not None:
        apis.append(TxnOffsetCommitApi(shards, topics, verifier, authorizer))
    return apis
