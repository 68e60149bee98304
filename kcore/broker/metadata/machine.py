"""The metadata shard: the state machine whose log is `__cluster_metadata`-0, in KRaft's records (KIP-631)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from kcore.broker.acl.entries import Acl
from kcore.broker.metadata.brokers import BrokerRegistration
from kcore.broker.metadata.features import FEATURES, bootstrap_records
from kcore.broker.metadata.image import ConfigKey, ConfigType, MetadataImage
from kcore.broker.metadata.image_parts import image_parts, image_size
from kcore.broker.metadata.names import CLUSTER_METADATA, METADATA_TOPIC_ID
from kcore.broker.metadata.partition_range import MetadataBlock, MetadataItem, PartitionRange, record_count
from kcore.broker.metadata.records import MetadataValue
from kcore.errors import KafkaError
from kcore.log.interface import PartitionKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.records.metadata import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    decode_metadata_record,
)
from kcore.runtime.cluster import Leader
from kcore.runtime.loader import replay_batch
from kcore.runtime.machine import Outcome, Record
from kcore.runtime.shard import Shard

if TYPE_CHECKING:
    from kcore.broker.metadata.topics import Topics
    from kcore.log.errors import LogError
    from kcore.log.interface import PartitionLog
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.machine import ShardContext
    from kcore.runtime.shard_services import ShardServices
    from kcore.runtime.topics import TopicInfo

METADATA_PARTITION = PartitionKey(METADATA_TOPIC_ID, 0)
"""The partition of the metadata log."""

MAX_METADATA_BATCH_BYTES = 8 * 1024 * 1024
"""Maximum size of one decision's batch, as in Kafka's `QuorumController`. It is enough for 10,000 partitions."""

LEADER_UNCHANGED = -2
"""Value of the leader field in a PartitionChangeRecord; it means that the leader does not change."""

COMPACT_FROM_RECORDS = 10_000
"""Threshold for compaction. The machine compacts only logs with at least this number of records."""
COMPACT_RATIO = 4
"""Threshold for compaction. The machine compacts a log that has at least this many times the records of its image."""


class MetadataMachine:
    """State machine of the cluster's metadata.

    The log is compacted in place. When it has many more records than its image needs, the machine writes the whole
    image in slices. Once the last slice is durable, it deletes the log before the first slice. A replay of the image
    over the older records changes nothing, so a node can stop safely at any moment of the compaction.

    Between two slices, other decisions can change objects that a later slice will contain. So if a log begins with an
    image, the replay ignores a change of an object that it has not read yet. The later slice contains the object after
    this change.

    Args:
        context: the machine's access to its shard.
        topics: makes the image visible to all other code of the node and notifies listeners.
        truncate: deletes the log before an offset, once the current decision is durable.
        start_offset: the start of the log. The batch that contains this offset may have older records, which are
            ignored.
        min_insync_replicas: the node's static min.insync.replicas; the first value of this setting in a new cluster.
        leads: returns True if this node is the controller. Only the controller decides; other nodes replay.
        node_id: the id of this node, which uses only blocks of producer ids that are allocated to it.

    Attributes:
        image: the current metadata.
        replayed_to: the offset after the last replayed record.
        block_next: the next id of the current block of producer ids. It is not durable, so a restart discards the
            remaining ids of the block.
        block_end: the first id after the current block.
    """

    __slots__ = (
        "_changed",
        "_compact_at",
        "_image_size",
        "_image_start",
        "_loaded",
        "_min_insync_replicas",
        "_node_id",
        "_open",
        "_own_id",
        "_records",
        "_start_offset",
        "_truncate",
        "block_end",
        "block_next",
        "context",
        "image",
        "leads",
        "replayed_to",
        "topics",
    )

    def __init__(
        self,
        context: ShardContext,
        topics: Topics,
        truncate: Callable[[int], None],
        start_offset: int,
        min_insync_replicas: int = 1,
        leads: Callable[[], bool] = lambda: True,
        node_id: int = -1,
    ) -> None:
        self.context = context
        self.leads = leads
        self._own_id = node_id
        self.replayed_to = start_offset
        self._min_insync_replicas = min_insync_replicas
        self.topics = topics
        self._truncate = truncate
        self._start_offset = start_offset
        self._image_size = 0  # number of records of the current decision if it rewrites a part of the image, else 0
        self._image_start = -1  # offset of the first part of the image that is being written; -1: none yet
        self._node_id = -1  # the node that allocated the last block of producer ids
        self._records = 0  # number of records in the log
        self._compact_at = COMPACT_FROM_RECORDS
        self.image = MetadataImage()
        self.block_next = 0
        self.block_end = 0
        self._loaded = False
        self._open = 0  # number of records of the current decision that are not replayed yet
        # Changed object -> its notification, run once the whole decision is replayed.
        self._changed: dict[tuple[str, Any], Callable[[], None]] = {}

    def outcome(self, records: Sequence[MetadataItem], reply: Any = None) -> Outcome:
        """Makes the outcome of a decision. Every decision must use this function, because it lets listeners see only
        whole decisions.

        Raises:
            KafkaError: NOT_CONTROLLER if another node of the cluster decides.
        """
        if not self.leads():
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        items = list(records)
        self._open = record_count(items)
        self._image_size = 0
        if self._open == len(items):
            return Outcome(cast("list[Record]", items), reply)
        return Outcome(MetadataBlock(items), reply)

    # ---- durable state

    def replay(self, offset: int, producer_id: int, key: Any, value: MetadataValue) -> None:
        """Applies one record.

        Notifies listeners after the last record of a decision, because only then are topics complete.
        """
        if offset < self._start_offset:
            return
        record = value.record
        REPLAY[type(record)](self, offset, record)
        self._records += 1
        self.replayed_to = offset + 1
        if self._loaded:
            self._open -= 1
            if not self._open:
                self._decided(offset)

    def replay_block(self, first_offset: int, producer_id: int, block: MetadataBlock) -> None:
        """Applies the records of a decision that contains ranges of partitions; not used during a load."""
        offset = first_offset
        for item in block.items:
            if not isinstance(item, PartitionRange):
                self.replay(offset, producer_id, item.key, cast("MetadataValue", item.value))
                offset += 1
                continue
            self._replay_range(item)
            offset += len(item)
            self.replayed_to = offset
            self._records += len(item)
            self._open -= len(item)
            if not self._open:
                self._decided(offset - 1)

    def _decided(self, offset: int) -> None:
        """Notifies listeners after the last record of a decision, at `offset`; starts or ends a compaction.

        Not used during a load.
        """
        changed, self._changed = self._changed, {}
        self.topics.deciding = decided_here = self.leads()
        try:
            for notify in changed.values():
                notify()
        finally:
            self.topics.deciding = False
        if not decided_here:
            return
        if self._image_size:
            if self._image_start < 0:
                self._image_start = offset - self._image_size + 1
                self._records = self._image_size
            self._image_size = 0
        elif self._records >= self._compact_at:
            self._consider_compaction()

    def follow(self, batch: bytes, record_count: int) -> None:
        """Applies a batch that another node has written; listeners see all of its records or none."""
        self._open = record_count
        replay_batch(batch, self)

    def replay_marker(self, offset: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Raises an error, because producers do not write to the metadata log."""
        raise AssertionError("the metadata log holds no transactions of producers")

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
        """Decodes a record.

        An unknown record makes the load fail, because it may change the meaning of later records.
        """
        assert value is not None, "the metadata log has no tombstones"
        return None, MetadataValue(decode_metadata_record(value))

    def _replay_topic(self, offset: int, record: TopicRecord) -> None:
        if record.topic_id in self.image.ids:
            return  # rewritten by a compaction, as below
        self.image.add_topic(record.name, record.topic_id)
        self._change(("topic", record.topic_id), lambda: self.topics.created(self.image.ids[record.topic_id]))

    def _replay_partition(self, offset: int, record: PartitionRecord) -> None:
        topic = self._known(record.topic_id)
        if topic is None:
            return
        first = topic.partitions
        if record.partition_id < first or (self._begins_with_image and record.partition_id > first):
            return
        assert record.partition_id == first, f"{topic.name}: partition {record.partition_id} after {first}"
        self.image.add_partition(topic, tuple(record.replicas))
        if record.leader_epoch > 0 or record.leader != record.replicas[0]:
            self.image.set_leader(topic.topic_id, first, Leader(record.leader, record.leader_epoch))
        if record.adding_replicas:
            self.image.set_successor(topic.topic_id, first, record.adding_replicas[0])
        self._grown(topic.topic_id, first)

    def _replay_partition_change(self, offset: int, record: PartitionChangeRecord) -> None:
        topic = self._known(record.topic_id)
        index = record.partition_id
        if topic is None or (self._begins_with_image and index >= topic.partitions):
            return
        image = self.image
        before = image.leader(topic.topic_id, index)
        assert before is not None, f"{topic.name} has no partition {index}"
        if record.replicas is not None:
            image.replicas[topic.topic_id][index] = tuple(record.replicas)
            image.set_leader(topic.topic_id, index, before)
        if record.adding_replicas:
            image.set_successor(topic.topic_id, index, record.adding_replicas[0])
            self._change(("successor", (topic.topic_id, index)), lambda: self.topics.planned(topic, index))
        if record.leader != LEADER_UNCHANGED:
            image.set_leader(topic.topic_id, index, Leader(record.leader, before.epoch + 1))
            image.set_successor(topic.topic_id, index, None)
            if ("topic", topic.topic_id) not in self._changed:
                self._change(("leader", (topic.topic_id, index)), lambda: self.topics.moved(topic, index))

    def _replay_register_broker(self, offset: int, record: RegisterBrokerRecord) -> None:
        self.image.brokers[record.broker_id] = BrokerRegistration.of(record)
        self._change(("brokers", None), self.topics.brokers_changed)

    def _replay_broker_change(self, offset: int, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.image.brokers.get(record.broker_id)
        if broker is not None:
            self.image.brokers[record.broker_id] = broker.changed(record)
            self._change(("brokers", None), self.topics.brokers_changed)

    def _replay_unregister_broker(self, offset: int, record: UnregisterBrokerRecord) -> None:
        if self.image.brokers.pop(record.broker_id, None) is not None:
            self._change(("brokers", None), self.topics.brokers_changed)

    def _replay_range(self, added: PartitionRange) -> None:
        topic = self.image.ids[added.topic_id]
        first = topic.partitions
        new = added.assignments[max(0, first - added.first) :]
        if not new:
            return  # rewritten by a compaction
        assert added.first <= first, f"{topic.name}: partition {added.first} after {first}"
        self.image.add_partitions(topic, new)
        self._grown(topic.topic_id, topic.partitions)

    def _grown(self, topic_id: bytes, first: int) -> None:
        """Queues the notification of new partitions, numbered from `first` on."""
        if ("topic", topic_id) not in self._changed:
            self._change(("partitions", topic_id), lambda: self.topics.grown(self.image.ids[topic_id], first))

    @property
    def _begins_with_image(self) -> bool:
        return self._start_offset > 0

    def _known(self, topic_id: bytes) -> TopicInfo | None:
        """Returns the topic with this id.

        If the topic is unknown and the log begins with an image, returns None, because a later part of the image can
        contain the topic.

        Raises:
            KeyError: the topic is unknown, and the log does not begin with an image.
        """
        return self.image.ids.get(topic_id) if self._begins_with_image else self.image.ids[topic_id]

    def _replay_remove_topic(self, offset: int, record: RemoveTopicRecord) -> None:
        topic = self._known(record.topic_id)
        if topic is None:
            return
        self.image.remove_topic(topic)
        self._change(("removed", topic.topic_id), lambda: self.topics.deleted(topic))

    def _replay_config(self, offset: int, record: ConfigRecord) -> None:
        key = ConfigKey(record.resource_type, record.resource_name)
        topic = self.image.names.get(record.resource_name)
        if record.resource_type == ConfigType.TOPIC and topic is None and self._begins_with_image:
            return
        # A request with the same value of a broker's setting is a change: it reloads the file that the value names.
        same = self.image.settings_of(*key).get(record.name) == record.value
        if same and (record.resource_type != ConfigType.BROKER or self._image_size):
            return
        self.image.put_setting(key, record.name, record.value)
        is_topic = record.resource_type == ConfigType.TOPIC
        if is_topic and topic is not None and ("topic", topic.topic_id) in self._changed:
            return  # a new topic's settings are part of its creation
        self._change(("config", key), lambda: self.topics.configured(key))

    def _replay_feature(self, offset: int, record: FeatureLevelRecord) -> None:
        name, level = record.name, record.feature_level
        if self.image.features.get(name, 0) == level:
            return
        if level:
            self.image.features[name] = level
        else:
            self.image.features.pop(name, None)
        self.image.features_epoch = offset
        self._change(("feature", name), lambda: self.topics.levelled(name, level))

    def _replay_producer_ids(self, offset: int, record: ProducerIdsRecord) -> None:
        self._node_id = record.broker_id
        own = self._own_id in (-1, record.broker_id)
        if own and self._loaded and self.leads() and record.next_producer_id > self.image.next_producer_id:
            self.block_next, self.block_end = self.image.next_producer_id, record.next_producer_id
        self.image.next_producer_id = record.next_producer_id

    def _replay_quota(self, offset: int, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        self.image.put_quota(entity, record.key, None if record.remove else record.value)
        self._change(("quotas", None), self.topics.quotas_changed)

    def _replay_acl(self, offset: int, record: AccessControlEntryRecord) -> None:
        if record.id in self.image.acls.by_id:
            return  # rewritten by a compaction
        acl = Acl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        self.image.acls.add(record.id, acl)

    def _replay_remove_acl(self, offset: int, record: RemoveAccessControlEntryRecord) -> None:
        if not self._begins_with_image or record.id in self.image.acls.by_id:
            self.image.acls.remove(record.id)

    def _replay_scram(self, offset: int, record: UserScramCredentialRecord) -> None:
        # Imported here: a node without users does not need hashes.
        from kcore.security.scram import ScramCredential, ScramMechanism  # noqa: PLC0415

        mechanism = ScramMechanism(record.mechanism)
        self.image.put_scram(
            record.name,
            ScramCredential(mechanism, record.salt, record.stored_key, record.server_key, record.iterations),
        )

    def _replay_remove_scram(self, offset: int, record: RemoveUserScramCredentialRecord) -> None:
        from kcore.security.scram import ScramMechanism  # noqa: PLC0415

        mechanism = ScramMechanism(record.mechanism)
        if not self._begins_with_image or mechanism in self.image.scram.get(record.name, {}):
            self.image.remove_scram(record.name, mechanism)

    def _change(self, changed: tuple[str, Any], notify: Callable[[], None]) -> None:
        if self._loaded:
            self._changed.setdefault(changed, notify)

    # ---- lifecycle

    def on_loaded(self) -> None:
        """Publishes the image of the loaded log. If this node is the controller, it begins to handle requests."""
        self._loaded = True
        self.topics.replace(self.image)
        if self.leads():
            self.take_over()

    def take_over(self) -> None:
        """Begins to handle requests as the controller.

        Called after the whole log was replayed: at the start, or when this node becomes the controller.
        """
        if any(name not in self.image.features for name in FEATURES) and self.image.features_epoch < 0:
            self.context.in_slices(self._bootstrap())
        if self._records >= self._compact_at:
            self._consider_compaction()

    def rewrite(self) -> None:
        """Starts a compaction in slices, which replaces the records of the log by the current image."""
        self._records = image_size(self.image)
        self.context.in_slices(self._compaction())

    def _consider_compaction(self) -> None:
        """Compacts the log if it is long enough; else sets the length at which to check again."""
        needed = image_size(self.image)
        self._compact_at = max(COMPACT_FROM_RECORDS, COMPACT_RATIO * needed)
        if self._records >= self._compact_at:
            self._records = needed  # do not request the compaction twice
            self.context.in_slices(self._compaction())

    def _compaction(self) -> Iterator[Outcome | None]:
        """Writes the image in parts, and deletes the older records unless a part was refused."""
        self._image_start = -1
        for part in image_parts(self.image, self._node_id):
            if not part:
                continue
            if not self.leads():
                return  # the next controller compacts the log
            outcome = self.outcome(part)
            self._image_size = self._open
            yield outcome
            if self._image_size:
                self._image_size = 0
                return
        if self._image_start >= 0:
            self._truncate(self._image_start)

    def _bootstrap(self) -> Iterator[Outcome | None]:
        yield self.outcome(bootstrap_records(self.image, self._min_insync_replicas))

    def on_unloaded(self) -> None:
        """Stops notifying listeners. The next machine compares its image with the published image."""
        self._loaded = False
        self.topics.unloaded()


REPLAY: dict[type, Callable[[MetadataMachine, int, Any], None]] = {
    TopicRecord: MetadataMachine._replay_topic,
    PartitionRecord: MetadataMachine._replay_partition,
    PartitionChangeRecord: MetadataMachine._replay_partition_change,
    RegisterBrokerRecord: MetadataMachine._replay_register_broker,
    BrokerRegistrationChangeRecord: MetadataMachine._replay_broker_change,
    UnregisterBrokerRecord: MetadataMachine._replay_unregister_broker,
    RemoveTopicRecord: MetadataMachine._replay_remove_topic,
    ConfigRecord: MetadataMachine._replay_config,
    FeatureLevelRecord: MetadataMachine._replay_feature,
    ClientQuotaRecord: MetadataMachine._replay_quota,
    ProducerIdsRecord: MetadataMachine._replay_producer_ids,
    AccessControlEntryRecord: MetadataMachine._replay_acl,
    RemoveAccessControlEntryRecord: MetadataMachine._replay_remove_acl,
    UserScramCredentialRecord: MetadataMachine._replay_scram,
    RemoveUserScramCredentialRecord: MetadataMachine._replay_remove_scram,
}
"""Record type -> method that replays it."""


class Truncation:
    """The deletion of a log's records before an offset, once the records from that offset on are durable.

    It is a participant of two commits: the commit of the records from the offset on, and the commit that deletes the
    older records.
    """

    __slots__ = ("_log", "_offset", "_pipeline")

    # Neither commit may run in the background: the first has decisions of the metadata shard, which every component
    # sees before the commit, and the second moves the log's start.
    allows_background_commit = False

    def __init__(self, log: PartitionLog, pipeline: CommitPipeline, offset: int) -> None:
        self._log = log
        self._pipeline = pipeline
        self._offset = offset
        pipeline.enlist(self)

    def seal(self) -> None:
        """Does nothing: `committed` stages the deletion."""

    def committed(self) -> None:
        """Stages the deletion once the records from the offset on are durable; does nothing after the second commit."""
        log = self._log
        if log.log_start_offset < self._offset < log.high_watermark:
            log.delete_before(self._offset)
            self._pipeline.enlist(self)

    def failed(self, error: LogError) -> None:
        """Deletes nothing; the next compaction tries again."""


def metadata_shard(
    log: PartitionLog,
    topics: Topics,
    services: ShardServices,
    *,
    min_insync_replicas: int = 1,
    leads: Callable[[], bool] = lambda: True,
    node_id: int = -1,
) -> Shard[MetadataMachine]:
    """Makes the metadata shard, not loaded yet.

    Args:
        log: the log of `METADATA_PARTITION`.
        topics: makes the metadata visible to all other code of the node.
        services: the components that all shards of the node use.
        min_insync_replicas: the node's static min.insync.replicas.
        leads: returns True if this node is the controller.
        node_id: the id of this node in a cluster; -1: the node is not part of a cluster.
    """

    def truncate(offset: int) -> None:
        Truncation(log, services.pipeline, offset)

    return Shard(
        CLUSTER_METADATA,
        0,
        log,
        lambda context: MetadataMachine(
            context, topics, truncate, log.log_start_offset, min_insync_replicas, leads, node_id
        ),
        services,
        max_batch_bytes=MAX_METADATA_BATCH_BYTES,
        allows_background_commit=False,  # other components look topics up, outside of this shard's decisions
    )
