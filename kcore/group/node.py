"""Creates the group coordinator's shards of a node, and connects them to the node's log and timers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.shard import TOPIC_NAME, GroupShard
from kcore.runtime.shard import Shard
from kcore.runtime.shards import Shards

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.config.node import Config
    from kcore.group.consumer.services import ConsumerServices
    from kcore.group.meters import GroupMeters
    from kcore.group.share.services import ShareGroupServices
    from kcore.group.streams.services import StreamsServices
    from kcore.runtime.loader import ShardLog
    from kcore.runtime.shard_services import ShardServices
    from kcore.runtime.topics import TopicImage


def make_group_shards(
    config: Config,
    topics: TopicImage,
    log_of: Callable[[str, int], ShardLog | None],
    services: ShardServices,
    *,
    new_member_id: Callable[[], str],
    max_record_bytes: Callable[[], int],
    consumer: ConsumerServices,
    streams: StreamsServices,
    share: ShareGroupServices,
    meters: GroupMeters,
) -> Shards[GroupShard]:
    """Makes the shards of `__consumer_offsets`, which must exist. The shards are not loaded yet.

    Args:
        config: the node's settings.
        topics: the cluster's topics.
        log_of: returns the log of a partition; called with topic and partition number.
        services: the components that all shards of the node use.
        new_member_id: makes the random part of member ids.
        max_record_bytes: returns the maximum size of the record batch of one decision, in bytes.
        consumer: the services of consumer groups.
        streams: the services of streams groups.
        share: the services of share groups.
        meters: count members and measure rebalances of all shards.
    """
    topic = topics.by_name(TOPIC_NAME)
    assert topic is not None, f"{TOPIC_NAME} was created before"

    def make(index: int) -> Shard[GroupShard]:
        return services.make_shard(
            TOPIC_NAME,
            index,
            log_of,
            lambda context: GroupShard(
                context,
                config,
                topics,
                new_member_id,
                max_record_bytes(),
                consumer=consumer,
                streams=streams,
                share=share,
                meters=meters,
            ),
            max_batch_bytes=max_record_bytes(),
            codec=config.offsets_topic_compression_codec,
        )

    return Shards(TOPIC_NAME, topic.partitions, make, services.pipeline)
