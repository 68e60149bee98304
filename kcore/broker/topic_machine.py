"""The metadata shard: the state machine whose log is `__cluster_metadata`-0, in KRaft's records (KIP-631)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kcore.broker.features import FEATURES, bootstrap_records
from kcore.broker.image import ConfigKey, ConfigType, MetadataImage
from kcore.broker.names import CLUSTER_METADATA, METADATA_TOPIC_ID
from kcore.broker.records import Fact
from kcore.log.interface import PartitionKey
from kcore.protocol.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
)
from kcore.runtime.machine import Outcome, Record
from kcore.runtime.shard import Shard

if TYPE_CHECKING:
    from kcore.broker.topics import Topics
    from kcore.clock import Now
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.loader import ShardLog
    from kcore.runtime.machine import ShardContext
    from kcore.runtime.slices import Slices
    from kcore_ext.timer_wheel import TimerWheel

METADATA_PARTITION = PartitionKey(METADATA_TOPIC_ID, 0)
"""Where the metadata's log is kept."""

MAX_METADATA_BATCH_BYTES = 8 * 1024 * 1024
"""What one decision may write: Kafka's largest metadata batch (`QuorumController`), enough for 10 000 partitions."""


class MetadataMachine:
    """The cluster's metadata.

    Args:
        context: the machine's hands.
        topics: shows the image to the rest of the node and knows the listeners.

    Attributes:
        image: what the metadata says now.
        block_next: the next id of the block of producer ids in hand; soft, as the rest of a block is given up at a
            restart.
        block_end: the first id behind that block.
    """

    __slots__ = ("_changed", "_loaded", "_open", "block_end", "block_next", "context", "image", "topics")

    def __init__(self, context: ShardContext, topics: Topics) -> None:
        self.context = context
        self.topics = topics
        self.image = MetadataImage()
        self.block_next = 0
        self.block_end = 0
        self._loaded = False
        self._open = 0  # how many records of the present decision are still to be replayed
        # Who is to be told of what, once the present decision is whole.
        self._changed: dict[tuple[str, Any], Callable[[], None]] = {}

    def outcome(self, records: list[Record], reply: Any = None) -> Outcome:
        """What was decided. Every decision of this machine is made by it, so that listeners see decisions whole."""
        self._open = len(records)
        return Outcome(records, reply)

    # ---- durable state

    def replay(self, offset: int, producer_id: int, key: Any, value: Fact) -> None:
        """Applies one record. Listeners are told after the last one of a decision: a topic has all its partitions."""
        record = value.record
        REPLAY[type(record)](self, offset, record)
        if self._loaded:
            self._open -= 1
            if not self._open:
                changed, self._changed = self._changed, {}
                for tell in changed.values():
                    tell()

    def replay_marker(self, offset: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Never called: producers do not write here."""
        raise AssertionError("the metadata log holds no transactions of producers")

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
        """A record of the log. One that is not known fails the load: it may change what those behind it mean."""
        assert value is not None, "the metadata log has no tombstones"
        return None, Fact(decode_metadata_record(value))

    def _replay_topic(self, offset: int, record: TopicRecord) -> None:
        self.image.add_topic(record.name, record.topic_id)
        self._change(("topic", record.topic_id), lambda: self.topics.created(self.image.ids[record.topic_id]))

    def _replay_partition(self, offset: int, record: PartitionRecord) -> None:
        topic = self.image.ids[record.topic_id]
        first = topic.partitions
        assert record.partition_id == first, f"{topic.name}: partition {record.partition_id} after {first}"
        self.image.add_partition(topic, tuple(record.replicas))
        if ("topic", topic.topic_id) not in self._changed:
            self._change(
                ("partitions", topic.topic_id), lambda: self.topics.grown(self.image.ids[topic.topic_id], first)
            )

    def _replay_remove_topic(self, offset: int, record: RemoveTopicRecord) -> None:
        topic = self.image.ids[record.topic_id]
        self.image.remove_topic(topic)
        self._change(("removed", topic.topic_id), lambda: self.topics.deleted(topic))

    def _replay_config(self, offset: int, record: ConfigRecord) -> None:
        key = ConfigKey(record.resource_type, record.resource_name)
        self.image.put_setting(key, record.name, record.value)
        if record.resource_type == ConfigType.TOPIC:
            topic = self.image.names.get(record.resource_name)
            if topic is not None and ("topic", topic.topic_id) in self._changed:
                return  # a new topic's settings are part of its creation
        self._change(("config", key), lambda: self.topics.configured(key))

    def _replay_feature(self, offset: int, record: FeatureLevelRecord) -> None:
        name, level = record.name, record.feature_level
        if level:
            self.image.features[name] = level
        else:
            self.image.features.pop(name, None)
        self.image.features_epoch = offset
        self._change(("feature", name), lambda: self.topics.levelled(name, level))

    def _replay_producer_ids(self, offset: int, record: ProducerIdsRecord) -> None:
        if self._loaded:
            self.block_next, self.block_end = self.image.next_producer_id, record.next_producer_id
        self.image.next_producer_id = record.next_producer_id

    def _change(self, what: tuple[str, Any], tell: Callable[[], None]) -> None:
        if self._loaded:
            self._changed.setdefault(what, tell)

    # ---- life

    def on_loaded(self) -> None:
        """The log was read: everybody sees this image now. An empty log gets the features that a new cluster has."""
        self._loaded = True
        self.topics.replace(self.image)
        if any(name not in self.image.features for name in FEATURES) and self.image.features_epoch < 0:
            self.context.in_slices(self._bootstrap())

    def _bootstrap(self) -> Iterator[Outcome | None]:
        yield self.outcome(bootstrap_records())

    def on_unloaded(self) -> None:
        """Nothing is told any more: the next machine compares with what was shown."""
        self._loaded = False


REPLAY: dict[type, Callable[[MetadataMachine, int, Any], None]] = {
    TopicRecord: MetadataMachine._replay_topic,
    PartitionRecord: MetadataMachine._replay_partition,
    RemoveTopicRecord: MetadataMachine._replay_remove_topic,
    ConfigRecord: MetadataMachine._replay_config,
    FeatureLevelRecord: MetadataMachine._replay_feature,
    ProducerIdsRecord: MetadataMachine._replay_producer_ids,
}
"""What each record does."""


def metadata_shard(
    log: ShardLog, topics: Topics, *, pipeline: CommitPipeline, wheel: TimerWheel, slices: Slices, now: Now
) -> Shard[MetadataMachine]:
    """The shard of the metadata, not loaded yet.

    Args:
        log: the log at `METADATA_PARTITION`.
        topics: what the rest of the node sees of it.
        pipeline: commits what is decided.
        wheel: the node's timers.
        slices: where it is loaded.
        now: the time of the round.
    """
    return Shard(
        CLUSTER_METADATA,
        0,
        log,
        lambda context: MetadataMachine(context, topics),
        pipeline=pipeline,
        wheel=wheel,
        slices=slices,
        now=now,
        max_batch_bytes=MAX_METADATA_BATCH_BYTES,
    )
