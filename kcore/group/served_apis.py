"""Assembles the APIs of the group coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group import apis
from kcore.group.consumer.services import ConsumerServices
from kcore.group.share.services import ShareGroupServices
from kcore.group.streams.services import StreamsServices
from kcore.protocol.api_keys import ApiKey
from kcore.runtime.deferred import DeferredApi, Maker, deferred_apis

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.config.node import Config
    from kcore.group.offsets.verifier import TransactionVerifier
    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
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
    streams: StreamsServices | None = None,
    share: ShareGroupServices | None = None,
) -> list[DeferredApi]:
    """Returns the APIs of groups and their offsets.

    Args:
        shards: the group shards of this node.
        config: the node's settings.
        topics: the cluster's topics.
        cluster: the leaders of the internal topics' partitions, for FindCoordinator.
        make_topic: starts creating a missing internal topic, by name, for FindCoordinator; None if these topics
            always exist.
        verifier: checks whether a producer's transaction is ongoing; None: TxnOffsetCommit is not served.
        authorizer: checks permissions; None allows all.
        consumer: the services that consumer groups need, the object that the shards use; None: built from `config`
            and `topics`.
        streams: the services that streams groups need, the object that the shards use; None: built from `config`.
        share: the services that share groups need, the object that the shards use; None: built from `config`.
    """
    services = ConsumerServices(config, topics) if consumer is None else consumer
    streams_services = StreamsServices(config, services.metadata) if streams is None else streams
    share_services = ShareGroupServices(config) if share is None else share
    makers: dict[ApiKey, Maker] = {
        ApiKey.FIND_COORDINATOR: lambda: apis.FindCoordinatorApi(
            topics, cluster, make_topic, authorizer, shards.slices
        ),
        ApiKey.JOIN_GROUP: lambda: apis.JoinGroupApi(shards, config, authorizer),
        ApiKey.SYNC_GROUP: lambda: apis.SyncGroupApi(shards, authorizer),
        ApiKey.HEARTBEAT: lambda: apis.HeartbeatApi(shards, authorizer),
        ApiKey.LEAVE_GROUP: lambda: apis.LeaveGroupApi(shards, authorizer),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda: apis.ConsumerGroupHeartbeatApi(shards, services, authorizer),
        ApiKey.CONSUMER_GROUP_DESCRIBE: lambda: apis.ConsumerGroupDescribeApi(shards, services, authorizer),
        ApiKey.STREAMS_GROUP_HEARTBEAT: lambda: apis.StreamsGroupHeartbeatApi(shards, streams_services, authorizer),
        ApiKey.STREAMS_GROUP_DESCRIBE: lambda: apis.StreamsGroupDescribeApi(shards, streams_services, authorizer),
        ApiKey.DESCRIBE_GROUPS: lambda: apis.DescribeGroupsApi(shards, authorizer),
        ApiKey.LIST_GROUPS: lambda: apis.ListGroupsApi(shards, authorizer),
        ApiKey.DELETE_GROUPS: lambda: apis.DeleteGroupsApi(shards, authorizer, share_services),
        ApiKey.OFFSET_COMMIT: lambda: apis.OffsetCommitApi(shards, topics, authorizer),
        ApiKey.OFFSET_FETCH: lambda: apis.OffsetFetchApi(shards, topics, authorizer),
        ApiKey.OFFSET_DELETE: lambda: apis.OffsetDeleteApi(shards, topics, authorizer),
        ApiKey.SHARE_GROUP_HEARTBEAT: lambda: apis.ShareGroupHeartbeatApi(shards, share_services, authorizer),
        ApiKey.SHARE_GROUP_DESCRIBE: lambda: apis.ShareGroupDescribeApi(shards, share_services, authorizer),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda: apis.DescribeShareGroupOffsetsApi(
            shards, share_services, topics, authorizer
        ),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda: apis.AlterShareGroupOffsetsApi(
            shards, share_services, topics, authorizer
        ),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda: apis.DeleteShareGroupOffsetsApi(
            shards, share_services, topics, authorizer
        ),
    }
    if verifier is not None:
        makers[ApiKey.TXN_OFFSET_COMMIT] = lambda: apis.TxnOffsetCommitApi(shards, topics, verifier, authorizer)
    return deferred_apis(apis.VERSIONS, makers)
