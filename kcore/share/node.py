"""Creates the share coordinator of a node, and connects it to the node's log and timers (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kcore.runtime.loader import ShardLog
from kcore.runtime.shard import Shard
from kcore.runtime.topics import TopicImage
from kcore.share.coordinator import ShareCoordinator
from kcore.share.local import LocalPersister
from kcore.share.shard import TOPIC_NAME, ShareServices, ShareShard

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.config.node import Config
    from kcore.runtime.shard_services import ShardServices
    from kcore.share.persister import Persister


class StateLog(ShardLog, Protocol):
    """The log of a share shard, whose beginning can be deleted."""

    @property
    def high_watermark(self) -> int:
        """The committed end of the log."""
        ...

    def delete_before(self, offset: int) -> int:
        """Stages the deletion of the records below an offset."""
        ...


class FeatureImage(TopicImage, Protocol):
    """The topics of the cluster, and its features."""

    def feature_level(self, name: str) -> int:
        """Returns the finalized level of a feature; 0 is off."""
        ...


def start_share_coordinator(
    config: Config,
    topics: FeatureImage,
    log_of: Callable[[str, int], StateLog | None],
    make_topic: Callable[[str], object],
    services: ShardServices,
    make_persister: Callable[..., Persister] = LocalPersister,
) -> tuple[ShareCoordinator, Persister]:
    """Makes the share coordinator of a node and its persister.

    The caller must add a `ShareStateTopic` to the listeners of the metadata. This listener loads the shards once their
    topic exists.

    Args:
        config: the node's settings.
        topics: the cluster's topics and features.
        log_of: returns the log of a partition; called with topic and partition number.
        make_topic: starts creating an internal topic.
        services: the components that all shards of the node use.
        make_persister: makes the persister; takes the arguments of `LocalPersister`.
    """

    def prune(index: int, before_offset: int) -> None:
        log = log_of(TOPIC_NAME, index)
        if log is not None:
            log.delete_before(min(before_offset, log.high_watermark))

    share = ShareServices(config, topics, lambda: topics.feature_level("share.version") > 0, prune)

    def make(index: int) -> Shard[ShareShard]:
        return services.make_shard(TOPIC_NAME, index, log_of, lambda context: ShareShard(context, share))

    coordinator = ShareCoordinator(make, services.pipeline)
    return coordinator, make_persister(coordinator, topics, make_topic, services.wheel, services.now)
