"""A data plane for tests: real APIs, real log in memory, real commits, virtual time, no threads and no sleeps."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from kcore.broker.data.client_quotas import ClientQuotas
from kcore.broker.data.fetch_budget import FetchMemoryBudget
from kcore.broker.data.fetch_session import FetchSessions
from kcore.broker.data.partition import Partition
from kcore.broker.data.partitions import Partitions
from kcore.broker.data.retention import Housekeeping
from kcore.broker.data.transaction_verifier import PartitionVerifier, ProduceVerifier
from kcore.broker.metadata.image import QuotaEntity
from kcore.broker.metadata.topics import Topics
from kcore.clock import ManualClock, Now
from kcore.config.node import Config
from kcore.log import MemoryLogEngine
from kcore.log.faults import FaultInjectingEngine
from kcore.log.memory_engine import MemoryStorage
from kcore.protocol.api_keys import ApiKey
from kcore.runtime import CommitPipeline, Pending, RequestContext, Slices, TopicInfo
from kcore.runtime.cluster import SingleNodeCluster
from kcore.runtime.deferred import ServedApis
from kcore.served_apis import apis_of
from kcore_ext.batch import BatchBuilder, iter_records, parse_header, split_batches
from kcore_ext.runtime.purgatory import Purgatory
from kcore_ext.runtime.timer_wheel import TimerWheel
from tests.kit import serve

NODE_ID = 1


class DataPlane:
    """The data plane of one node: its partitions, and the APIs that use them. `restart` recreates the data plane from
    the committed state.
    """

    def __init__(
        self,
        *,
        wall_ms: int = 1_700_000_000_000,
        verifier: ProduceVerifier | None = None,
        authorizer: Any = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.clock = ManualClock(wall_ms=wall_ms)
        self.now = Now(self.clock)
        self.storage = MemoryStorage()
        self.verifier = verifier
        self.config = Config.of(dict(config or {}))
        self.authorizer = authorizer
        self.settings: dict[str, dict[str, Any]] = {}
        self.topics: dict[str, TopicInfo] = {}
        self._ids = count(1)
        self._open()

    def _open(self) -> None:
        self.log = FaultInjectingEngine(MemoryLogEngine(self.storage))
        self.pipeline = CommitPipeline(self.log)
        self.wheel = TimerWheel(self.now.now_ms)
        self.purgatory = Purgatory(self.wheel)
        self.slices = Slices()
        self.partitions = Partitions(self.log, self.pipeline, self.slices, lambda name: self.settings.get(name, {}))
        for topic in self.topics.values():
            self.partitions.on_topic_created(topic)
        session_ids = count(1001)
        self.cluster = SingleNodeCluster(NODE_ID, "A" * 22, self.log.node_epoch)
        self.cluster.advertise("PLAINTEXT", "localhost", 9092)
        self.client_quotas = ClientQuotas(Topics(), self.now, self.config)
        self.fetch_memory_budget = FetchMemoryBudget(self.config.fetch_max_bytes)
        self.fetch_sessions = FetchSessions(
            self.config.max_incremental_fetch_session_cache_slots,
            lambda: next(session_ids),
            self.config.kcore_max_fetch_session_partitions,
            self.config.kcore_max_request_elements,
        )
        self.partition_verifier = PartitionVerifier(self.verifier, self.wheel, self.now)
        self.apis = ServedApis(apis_of(self))  # type: ignore[arg-type] - it has what the tested APIs use
        self.produce_api: Any = self.apis[ApiKey.PRODUCE]
        self.fetch_api: Any = self.apis[ApiKey.FETCH]
        self.housekeeping = Housekeeping(self.partitions, self.wheel, self.slices, self.now, self.config)

    def restart(self) -> None:
        """Restarts the process on the same storage; uncommitted appends are lost."""
        self._open()
        self.slices.finish()
        self.commit()

    # ---- topics

    def topic(self, name: str, partitions: int = 1, **settings: Any) -> TopicInfo:
        """Creates a topic. Keywords are names of settings, with underscores in place of dots."""
        self.settings[name] = {key.replace("_", "."): value for key, value in settings.items()}
        topic = TopicInfo(name, next(self._ids).to_bytes(16, "big"), partitions)
        self.topics[name] = topic
        self.partitions.on_topic_created(topic)
        self.commit()
        return topic

    def set_quota(self, entity: QuotaEntity, quota: str, bound: float) -> None:
        """Sets a quota of a client entity. `restart` discards the quota."""
        self.client_quotas._topics.image.put_quota(entity, quota, bound)
        self.client_quotas.on_quotas_changed()

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.partitions.get(topic, index)
        assert found is not None
        return found

    # ---- requests

    def send(self, request: Any, version: int, client_id: str = "", connection_id: int = 0) -> Any:
        """Sends a request without a commit; returns a response, None or a `Pending`."""
        context = RequestContext(version, client_id=client_id, connection_id=connection_id)
        return serve(self.apis[request.API_KEY], context, request)

    def call(self, request: Any, version: int, client_id: str = "") -> Any:
        """Sends a request and commits; returns the response as a client decodes it, None, or an open `Pending`."""
        return self.settle(self.send(request, version, client_id), version)

    def settle(self, response: Any, version: int) -> Any:
        """Commits the staged changes. Returns the response, encoded and decoded again as for a client, or the `Pending`
        of a response that is not complete.
        """
        self.commit()
        if isinstance(response, Pending):
            if not response.done:
                return response
            response = response.response
        return response and type(response).decode(response.encode(version), version)

    def commit(self) -> bool:
        good = True
        while self.pipeline.dirty:
            good = self.pipeline.commit() and good
        return good

    def fail_next_commit(self) -> None:
        self.log.fail_commit()

    def advance(self, ms: int) -> None:
        """Advances the time in steps of 1 ms, so that a timer that another timer arms also fires at its time."""
        for _ in range(ms):
            self.clock.advance(1)
            for timer in self.wheel.advance(self.now.update()):
                timer.payload()
            self.commit()


def batch_of(
    *values: bytes | None,
    keys: Mapping[int, bytes] | None = None,
    timestamp_ms: int = 1_700_000_000_000,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    transactional: bool = False,
    compression: int = 0,
    compress: Any = None,
    log_append_time: bool = False,
) -> bytes:
    """Makes a batch as a producer sends it."""
    builder = BatchBuilder(
        1 << 24,
        base_timestamp_ms=timestamp_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        transactional=transactional,
        compression=compression,
        compress=compress,
        log_append_time=log_append_time,
    )
    for index, value in enumerate(values):
        assert builder.append(timestamp_ms, (keys or {}).get(index), value)
    return builder.build()


def values_in(records: bytes) -> list[tuple[int, bytes | None]]:
    """Returns (offset, value) of every record in a fetch response, without control records."""
    found = []
    for position, _ in split_batches(records).batches:
        if not parse_header(records, position).is_control:
            found += [(record.offset, record.value) for record in iter_records(records, position)]
    return found
