"""A broker for tests: real shard, real logs in memory, real commits, virtual time, no threads and no sleeps."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from kcore.broker.data.client_quotas import ClientQuotas
from kcore.broker.data.fetch_budget import FetchMemoryBudget
from kcore.broker.data.fetch_session import FetchSessions
from kcore.broker.data.log_dirs import EngineLogDirs
from kcore.broker.data.partitions import Partitions
from kcore.broker.data.transaction_verifier import PartitionVerifier
from kcore.broker.metadata.control_plane import ControlPlane
from kcore.broker.metadata.image import ConfigKey, MetadataImage
from kcore.broker.metadata.machine import METADATA_PARTITION, MetadataMachine, metadata_shard
from kcore.broker.metadata.topics import Topics
from kcore.clock import ManualClock, Now
from kcore.config.node import Config
from kcore.errors import KafkaError
from kcore.log import MemoryLogEngine
from kcore.log.faults import FaultInjectingEngine
from kcore.log.memory_engine import MemoryStorage
from kcore.protocol.messages.alter_configs import AlterableConfig as WholeConfig
from kcore.protocol.messages.alter_configs import AlterConfigsRequest
from kcore.protocol.messages.alter_configs import AlterConfigsResource as WholeResource
from kcore.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.records.metadata import decode_metadata_record
from kcore.runtime import CommitPipeline, Pending, RequestContext, Shard, Slices, TopicInfo
from kcore.runtime.cluster import SingleNodeCluster
from kcore.runtime.deferred import ServedApis
from kcore.runtime.shard_services import ShardServices
from kcore.runtime.topics import MetadataListener
from kcore.served_apis import SERVED_APIS, apis_of
from kcore.transaction.coordinator import TransactionCoordinator
from kcore_ext.batch import iter_records
from kcore_ext.runtime.purgatory import Purgatory
from kcore_ext.runtime.timer_wheel import TimerWheel
from tests.kit import serve

NODE_ID = 1
CLUSTER_ID = "kcore-test-cluster-id0"
HOST, PORT = "broker.test", 9092
VOLUME = (1_000_000, 400_000)
DATA_DIR = "/data/kcore"
BROKER_APIS = [
    row for row in SERVED_APIS if find_spec(f"kcore.broker.apis.{row.key.name.lower()}") and "SHARE" not in row.key.name
]


def no_shard(index: int) -> Shard[Any]:
    """Raises an error: the node has no topic `__transaction_state`."""
    raise AssertionError(f"shard {index} of the transaction coordinator is not part of this test")


def image_contents(image: MetadataImage) -> dict[str, Any]:
    """Returns the whole content of an image of the metadata, by the names of its attributes."""
    found = {name: getattr(image, name) for name in MetadataImage.__slots__}
    return found | {"acls": (image.acls.by_id, image.acls.ids)}


class RecordingListener(MetadataListener):
    """Listener that records its notifications."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def on_topic_created(self, topic: TopicInfo) -> None:
        self.events.append(("created", topic.name, topic.partitions))

    def on_topic_deleted(self, topic: TopicInfo) -> None:
        self.events.append(("deleted", topic.name, topic.partitions))

    def on_partitions_added(self, topic: TopicInfo, first: int) -> None:
        self.events.append(("added", topic.name, first, topic.partitions))

    def on_partitions_removed(self, topic: TopicInfo, first: int) -> None:
        self.events.append(("removed", topic.name, first))

    def on_config_changed(self, resource_type: int, name: str) -> None:
        self.events.append(("config", resource_type, name))

    def on_feature_changed(self, name: str, level: int) -> None:
        self.events.append(("feature", name, level))

    def take(self) -> list[tuple[Any, ...]]:
        """Returns the notifications since the last call."""
        events, self.events = self.events, []
        return events


class BrokerContext:
    """One node's control plane, with its partitions.

    Args:
        settings: settings of the node by their Kafka names, such as {"num.partitions": 3}.
        authorizer: checks permissions; None allows every operation.

    Attributes:
        auto_commit: True to commit every request at once, False if the test calls `commit()`.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, *, authorizer: Any = None) -> None:
        self.settings = {name: str(value) for name, value in (settings or {}).items()}
        self.authorizer = authorizer
        self.clock = ManualClock()
        self.storage = MemoryStorage()
        self.auto_commit = True
        self._next_id = 0
        self._seen = 0
        self._boot()

    # ---- lifecycle

    def _boot(self) -> None:
        self.config = Config.of(self.settings)
        self.now = Now(self.clock)
        self.wheel = TimerWheel(self.now.now_ms)
        self.purgatory = Purgatory(self.wheel)
        self.slices = Slices()
        self.engine = FaultInjectingEngine(MemoryLogEngine(self.storage))
        self.pipeline = CommitPipeline(self.engine)
        self.cluster = SingleNodeCluster(NODE_ID, CLUSTER_ID, self.engine.node_epoch)
        self.cluster.advertise("PLAINTEXT", HOST, PORT)
        self.topics = Topics()
        self.shard = metadata_shard(
            self.engine.open(METADATA_PARTITION),
            self.topics,
            ShardServices(self.pipeline, self.wheel, self.slices, self.now),
        )
        self.control = ControlPlane(self.shard, self.topics, self.config, self.cluster, self.new_uuid, self.now)
        self.partitions = Partitions(self.engine, self.pipeline, self.slices, self.control.topic_configs.effective)
        self.topics.listen(self.partitions)
        self.client_quotas = ClientQuotas(self.topics, self.now, self.config)
        self.fetch_memory_budget = FetchMemoryBudget(self.config.fetch_max_bytes)
        self.fetch_sessions = FetchSessions(self.config.max_incremental_fetch_session_cache_slots, lambda: 1)
        self.partition_verifier = PartitionVerifier(None, self.wheel, self.now)
        self.log_dirs = EngineLogDirs(self.engine, DATA_DIR, lambda: VOLUME)
        self.listener = RecordingListener()
        self.topics.listen(self.listener)
        self.shard.load()
        self.finish()
        self.transactions = TransactionCoordinator(no_shard, self.pipeline)
        self.apis = ServedApis(apis_of(self, BROKER_APIS))  # type: ignore[arg-type] - it has what these APIs use

    def new_uuid(self) -> bytes:
        """Returns an id that contains a consecutive number in place of random bytes."""
        self._next_id += 1
        return b"\x10" + self._next_id.to_bytes(15, "big")

    def restart(self) -> None:
        """Simulates a crash and a restart from the committed state."""
        self.engine.rollback()
        self.engine.close()
        self._boot()

    def finish(self) -> None:
        """Runs all queued slices. With `auto_commit`, also commits until no change is left."""
        self.slices.finish()
        while self.auto_commit and self.pipeline.dirty:
            self.commit()

    def commit(self) -> bool:
        """Commits the staged changes; returns False if the commit failed."""
        done = self.pipeline.commit()
        self.slices.finish()
        return done

    def fail_next_commit(self) -> None:
        """Makes the next commit that writes something fail."""
        self.engine.fail_commit()

    @property
    def machine(self) -> MetadataMachine:
        """The shard's current state machine. Each load of the metadata log creates a new state machine."""
        return self.shard.machine

    # ---- requests

    def send(self, request: Any, version: int | None = None, **context: Any) -> Any:
        """Sends a request, encoded and decoded as on the wire; returns the response or a `Pending`."""
        api = self.apis[request.API_KEY]
        if version is None:
            version = api.versions[1]
        request = type(request).decode(request.encode(version), version)
        self.now.update()
        about = RequestContext(version, **context)
        try:
            return serve(api, about, request)
        except KafkaError as error:  # the engine makes the response, too
            return api.error(about, request, error.code, error.message)

    def call(self, request: Any, version: int | None = None, **context: Any) -> Any:
        """Sends a request and commits; returns the response as a client decodes it."""
        if version is None:
            version = self.apis[request.API_KEY].versions[1]
        result = self.send(request, version, **context)
        self.finish()
        if isinstance(result, Pending):
            assert result.done, f"{type(request).__name__} is parked"
            result = result.response
        return type(result).decode(result.encode(version), version)

    def create(
        self,
        name: str,
        partitions: int = 1,
        replicas: int = 1,
        configs: Mapping[str, str | None] | None = None,
        version: int = 7,
        **more: Any,
    ) -> Any:
        """Creates one topic with CreateTopics; returns its result."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in (configs or {}).items()],
        )
        return self.call(CreateTopicsRequest(topics=[topic], **more), version).topics[0]

    def alter(self, kind: int, name: str, *changes: tuple[str, int, str | None], version: int = 1, **more: Any) -> Any:
        """Sends IncrementalAlterConfigs with (setting, operation, value) for one resource; returns its result."""
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterableConfig(name=n, config_operation=op, value=v) for n, op, v in changes],
        )
        return self.call(IncrementalAlterConfigsRequest(resources=[resource], **more), version).responses[0]

    def alter_whole(self, kind: int, name: str, settings: Mapping[str, str | None], version: int = 2) -> Any:
        """Sends AlterConfigs for one resource; returns its result."""
        resource = WholeResource(
            resource_type=kind,
            resource_name=name,
            configs=[WholeConfig(name=n, value=v) for n, v in settings.items()],
        )
        return self.call(AlterConfigsRequest(resources=[resource]), version).responses[0]

    def describe(self, kind: int, name: str, *keys: str, version: int = 4, **more: Any) -> Any:
        """Sends DescribeConfigs for one resource; returns its result."""
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )
        return self.call(DescribeConfigsRequest(resources=[resource], **more), version).results[0]

    def value(self, kind: int, name: str, key: str) -> tuple[str | None, int]:
        """Returns one setting's value and source."""
        (setting,) = self.describe(kind, name, key).configs
        return setting.value, setting.config_source

    # ---- state

    def records(self) -> list[Any]:
        """Returns the records committed to the metadata log since the last call, decoded."""
        log = self.engine.open(METADATA_PARTITION)
        found = []
        for _, batch in log.batches(start=self._seen):
            for record in iter_records(batch):
                if record.offset >= self._seen:
                    assert record.key is None
                    found.append(decode_metadata_record(record.value))
        self._seen = log.high_watermark
        return found

    def durable_state(self) -> Any:
        """Returns all durable state in a comparable form."""
        image = self.topics.image
        return (
            dict(image.names),
            dict(image.ids),
            {key: list(value) for key, value in image.replicas.items()},
            {ConfigKey(*key): dict(value) for key, value in image.settings.items()},
            dict(image.features),
            image.features_epoch,
            image.next_producer_id,
            dict(image.collisions),
        )
