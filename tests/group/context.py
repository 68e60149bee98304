"""A group shard for tests: a real runtime, a real log in memory, virtual time, no threads and no sleeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from kcore.clock import ManualClock, Now
from kcore.config.node import Config
from kcore.errors import KafkaError
from kcore.group.consumer.services import ConsumerServices
from kcore.group.shard import TOPIC_NAME, GroupShard
from kcore.group.streams.configure import InternalTopic
from kcore.group.streams.services import StreamsServices
from kcore.log import PartitionKey, PartitionLog
from kcore.protocol.records import decode_key, decode_value
from kcore.runtime import Api, CommitPipeline, Pending, RequestContext, Shard, Shards, Slices, TopicInfo
from kcore.runtime.shard_services import ShardServices
from kcore_ext.batch import iter_records, parse_header
from kcore_ext.runtime.timer_wheel import TimerWheel
from tests.harness import WALL_MS, FailingLog
from tests.kit import serve

CONSUMER_OFFSETS_ID = bytes(15) + b"\x02"
CLIENT_HOST = "/127.0.0.1"


class Topics:
    """The cluster's topics, set by the test: name -> number of partitions."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._topics: dict[str, TopicInfo] = {}
        for name, size in partitions.items():
            self.add(name, size)

    def add(self, name: str, partitions: int) -> TopicInfo:
        """Adds a topic, or replaces it. Its id is derived from its name."""
        info = self._topics[name] = TopicInfo(name, name.encode().rjust(16, b"-")[-16:], partitions)
        return info

    def remove(self, name: str) -> TopicInfo:
        """Deletes a topic."""
        return self._topics.pop(name)

    def by_name(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def all(self) -> Iterable[TopicInfo]:
        return self._topics.values()


class RequestedTopics:
    """Records the internal topics that streams groups request. The test creates these topics, or makes their creation
    fail.
    """

    def __init__(self) -> None:
        self.requested: dict[str, InternalTopic] = {}
        self.remembered_ms = 0
        self.failed: dict[str, str] = {}

    def name_fault(self, name: str) -> str | None:
        return "an internal topic" if name.startswith("__") else None

    def create(self, context: RequestContext, topics: Iterable[InternalTopic], remember_ms: int) -> None:
        self.requested.update((topic.name, topic) for topic in topics)
        self.remembered_ms = remember_ms

    def failures(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.failed[name] for name in names if name in self.failed}


class Call:
    """A request that was sent. `done` becomes True with the arrival of the response, and `response` is None before."""

    def __init__(self, api: Api[Any, Any], version: int) -> None:
        self._api = api
        self._version = version
        self.done = False
        self.response: Any = None

    def __repr__(self) -> str:
        return f"<Call {type(self._api).__name__} v{self._version} {self.response if self.done else 'waits'}>"

    def take(self, response: Any) -> None:
        """Stores the response as a client decodes it: encoded and decoded in the request's version."""
        assert not self.done, "a request gets one response"
        self.done = True
        kind = self._api.response_type
        self.response = kind.decode(response.encode(self._version), self._version)


class GroupContext:
    """The partitions of `__consumer_offsets`, each with a group shard and a log. By default there is one partition.

    Args:
        settings: settings of the node by their Kafka names, such as {"group.max.size": 2}.
        topics: topics of the cluster, name -> partitions.
        partitions: the number of partitions of `__consumer_offsets`.

    Attributes:
        consumer: the node's services for consumer groups; a restart makes new ones.
        streams: the node's services for streams groups; a restart makes new ones.
        internal: the internal topics that streams groups requested.
        metadata_version: increases with each change of a topic.
        group_settings: settings of single groups, by (group id, name).
        last_id: the last result of `new_id`.
        auto_commit: True if every request and every timer is committed at once, False if only `commit()` commits.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        topics: Mapping[str, int] | None = None,
        partitions: int = 1,
    ) -> None:
        self.partitions = partitions
        self.config = Config.of({name: str(value) for name, value in (settings or {}).items()})
        self.topics = Topics(topics or {})
        self.clock = ManualClock(wall_ms=WALL_MS)
        self.engine = FailingLog()
        self.auto_commit = True
        self.metadata_version = 1
        self.group_settings: dict[tuple[str, str], Any] = {}
        self.internal = RequestedTopics()
        self._ids = count(1)
        self.last_id = ""
        self._seen = [0] * partitions
        self._boot()

    # ---- life

    def _boot(self) -> None:
        self.now = Now(self.clock)
        self.wheel = TimerWheel(self.now.now_ms)
        self.slices = Slices()
        self.pipeline = CommitPipeline(self.engine)
        self.consumer = ConsumerServices(
            self.config,
            self.topics,
            version=lambda: self.metadata_version,
            settings=self,
            pipeline=self.pipeline,
        )
        self.streams = StreamsServices(self.config, self.consumer.metadata, settings=self, topic_creator=self.internal)
        self.shards: Shards[GroupShard] = Shards(TOPIC_NAME, self.partitions, self._make, self.pipeline)
        for index in range(self.partitions):
            self.shards.load(index, self.engine.node_epoch)
        self.finish()

    def _make(self, index: int) -> Shard[GroupShard]:
        return Shard(
            TOPIC_NAME,
            index,
            self.log(index),
            lambda context: GroupShard(
                context, self.config, self.topics, self.new_id, consumer=self.consumer, streams=self.streams
            ),
            ShardServices(self.pipeline, self.wheel, self.slices, self.now),
        )

    def log(self, index: int = 0) -> PartitionLog:
        """Returns the log of a partition of `__consumer_offsets`."""
        return self.engine.open(PartitionKey(CONSUMER_OFFSETS_ID, index))

    def new_id(self) -> str:
        """Returns numbers from 1 in place of random UUIDs."""
        self.last_id = f"00000000-0000-4000-8000-{next(self._ids):012d}"
        return self.last_id

    def finish(self) -> None:
        """Runs all queued slices and, with `auto_commit`, commits their changes."""
        self.slices.finish()
        if self.auto_commit:
            self.pipeline.commit()
            self.slices.finish()

    def restart(self) -> None:
        """Stops the process and starts it again. Uncommitted changes and soft state are lost."""
        self.engine.rollback()
        self._boot()

    def unload(self) -> None:
        """Unloads the first partition, as a move to another node does."""
        self.shards.unload(0)

    @property
    def shard(self) -> Shard[GroupShard]:
        """Returns the first shard, the only one unless the test created more."""
        shard = self.shards.get(0)
        assert shard is not None, "the shard was unloaded"
        return shard

    @property
    def machine(self) -> GroupShard:
        """Returns the current state machine. Each load of the shard creates a new state machine."""
        return self.shard.machine

    # ---- topics and settings

    def get(self, group_id: str, key: str) -> Any:
        """Returns a group's effective setting."""
        own = self.group_settings.get((group_id, key))
        return self.config.get(f"group.{key}") if own is None else own

    def set_group(self, group_id: str, **settings: Any) -> None:
        """Changes settings of a group. Keywords have _ in place of dots."""
        for name, value in settings.items():
            self.group_settings[group_id, name.replace("_", ".")] = value
        self.consumer.settings_changed()
        self.streams.settings_changed()

    def make_topic(self, name: str, partitions: int) -> TopicInfo:
        """Creates a topic or adds partitions to it, and notifies the groups."""
        is_new = self.topics.by_name(name) is None
        topic = self.topics.add(name, partitions)
        self.metadata_version += 1
        if is_new:
            self.consumer.metadata.created(name)
        else:
            self.consumer.metadata.changed(name)
        self._notify_shards(name)
        return topic

    def create_internal(self) -> list[str]:
        """Creates the internal topics that streams groups have requested; returns their names."""
        requested, self.internal.requested = self.internal.requested, {}
        for name, topic in requested.items():
            self.make_topic(name, topic.partitions)
        return sorted(requested)

    def drop_topic(self, name: str) -> None:
        """Deletes a topic while groups exist."""
        self.topics.remove(name)
        self.metadata_version += 1
        self.consumer.metadata.changed(name)
        self._notify_shards(name)

    def _notify_shards(self, topic: str) -> None:
        for shard in self.shards:
            shard.machine.on_topic_changed(topic)

    # ---- requests

    def send(
        self,
        api: Api[Any, Any],
        request: Any,
        *,
        version: int | None = None,
        client_id: str = "client",
        client_host: str = CLIENT_HOST,
    ) -> Call:
        """Sends a request, encoded and decoded as on the wire. The call is `done` if the request completes at once."""
        if version is None:
            version = api.versions[1]
        call = Call(api, version)
        context = RequestContext(version, client_id, client_host)
        request = type(request).decode(request.encode(version), version)
        self.now.update()
        try:
            result = serve(api, context, request)
        except KafkaError as error:
            result = api.error(context, request, error.code, error.message)
        if isinstance(result, Pending):
            result.on_complete(call.take)
        else:
            call.take(result)
        self.finish()
        return call

    def call(self, api: Api[Any, Any], request: Any, **options: Any) -> Any:
        """Sends a request that completes at once; returns the response."""
        call = self.send(api, request, **options)
        assert call.done, f"{type(request).__name__} is parked"
        return call.response

    # ---- time

    def advance(self, ms: int) -> None:
        """Advances the time by `ms`. Every timer fires at its own time, and the resulting changes are committed."""
        end_ms = self.clock.monotonic_ms() + ms
        while (deadline_ms := self.wheel.next_deadline_ms()) != -1 and deadline_ms <= end_ms:
            self.clock.advance(max(0, deadline_ms - self.clock.monotonic_ms()))
            for timer in self.wheel.advance(self.now.update()):
                timer.payload()
            self.finish()
        self.clock.advance(end_ms - self.clock.monotonic_ms())
        self.wheel.advance(self.now.update())

    # ---- log

    def commit(self) -> bool:
        """Commits explicitly (without `auto_commit`). Returns True if the commit succeeded."""
        done = self.pipeline.commit()
        self.slices.finish()
        return done

    def fail_next_commit(self) -> None:
        """Makes the next commit that writes something fail."""
        self.engine.failures_left += 1

    def records(self) -> list[tuple[Any, Any]]:
        """Returns the records committed since the last call, as typed (key, value) pairs; the value of a tombstone is
        None.
        """
        found = []
        for index in range(self.partitions):
            log = self.log(index)
            for _, batch in log.batches(start=self._seen[index]):
                if parse_header(batch).is_control:
                    continue
                for record in iter_records(batch):
                    if record.offset >= self._seen[index]:
                        assert record.key is not None
                        key = decode_key(TOPIC_NAME, record.key)
                        found.append((key, None if record.value is None else decode_value(key, record.value)))
            self._seen[index] = log.high_watermark
        return found
