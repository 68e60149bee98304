"""The engine: log, runtime, topics and groups wired together.

It decides requests and does nothing by itself: a driver (see `kcore.drivers`) reads the clock, commits, and lets
timers fire.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from kcore.broker.acl.authorizer import make_authorizer
from kcore.broker.data.data_plane import data_apis
from kcore.broker.data.fetch_budget import FetchMemoryBudget
from kcore.broker.data.fetch_session import FetchSessions
from kcore.broker.data.log_dirs import EngineLogDirs
from kcore.broker.data.partitions import Partitions
from kcore.broker.data.retention import Housekeeping, Periodic
from kcore.broker.metadata.control_plane import ControlPlane
from kcore.broker.metadata.machine import METADATA_PARTITION, metadata_shard
from kcore.broker.metadata.names import INTERNAL_TOPICS
from kcore.broker.metadata.topics import Topics
from kcore.clock import Clock, ManualClock, Now, SystemClock
from kcore.config.node import Config
from kcore.errors import CloseConnectionError, ConfigError, KafkaError, KcoreError, LogError
from kcore.group.consumer.services import ConsumerServices
from kcore.group.served_apis import group_apis
from kcore.group.shard import GroupShard
from kcore.group.topics import GroupTopics
from kcore.log import LmdbLogEngine, LogEngine, MemoryLogEngine
from kcore.process_logging import fields, log_failure
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.records import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcore.protocol.uuids import to_hex, to_text, version_4
from kcore.runtime import Api, CommitPipeline, RequestContext, Shard, Shards, ShardState, Slices
from kcore.runtime.cluster import SingleNodeCluster
from kcore.runtime.deferred import DeferredApi, ServedApis
from kcore.transaction.apis.init_producer_id import TransactionalInitProducerIdApi
from kcore.transaction.coordinator import TransactionCoordinator, TransactionTopic
from kcore.transaction.local_markers import LocalMarkers
from kcore.transaction.served_apis import transaction_apis
from kcore.transaction.shard import Services, TransactionShard
from kcore.transaction.verification import OffsetsVerifier, PartitionVerifier
from kcore_ext.runtime.purgatory import Purgatory
from kcore_ext.runtime.timer_wheel import TimerWheel

logger = logging.getLogger(__name__)

CLUSTER_ID_META = "cluster.id"
RECLAIM_INTERVAL_MS = 10_000
RECLAIM_BATCHES = 2_000
TIMER_RETRY_MS = 100  # a timer that found no memory fires again after this
LOAD_AGAIN_INTERVAL_MS = 30_000  # a log that cannot be read now may be later: memory, a disk that comes back


def random_uuid() -> bytes:
    """A new uuid of version 4, sixteen bytes."""
    return version_4(os.urandom(16))


class Recovery(NamedTuple):
    """What an engine found when it was opened.

    Attributes:
        shards: how many coordinator partitions were loaded.
        records: how many of their records were replayed.
        size_bytes: the bytes of the batches they stood in.
        groups: how many groups there are.
        topics: how many topics there are, internal ones included.
        elapsed_ms: how long it took, all told.
    """

    shards: int
    records: int
    size_bytes: int
    groups: int
    topics: int
    elapsed_ms: int


class Engine:
    """One node.

    Args:
        log: where everything durable lives; closed with the engine.
        config: the node's settings.
        clock: where time comes from.
        new_uuid: makes random uuids (member ids, topic ids), sixteen bytes each.
        wait: whether coordinators and partitions are loaded when this returns. If not, they are in `slices`, and answer
            COORDINATOR_LOAD_IN_PROGRESS and NOT_LEADER_OR_FOLLOWER meanwhile; topics and settings are there at once.

    Attributes:
        apis: the APIs that are served, by key; each is made when it is first asked for.
        fetch_memory_budget: how much fetches may answer with.
        fetch_sessions: the fetch sessions; a server ends those of a connection with it.
        pipeline: commits what was decided.
        now: the time of the round.
        slices: long work; the driver steps it.
        cluster: this node and its addresses.
        topics: the topics.
        authorizer: who may do what; None: everybody everything.
        partitions: their partitions.
        groups: the shards of `__consumer_offsets`.
        consumer_groups: what consumer groups need of this node; `consumer_groups.events` tells of their changes.
        transactions: the transaction coordinator, and the shards of `__transaction_state`.
        recovery: what was found when it was opened, as far as it is loaded.
    """

    def __init__(
        self,
        log: LogEngine,
        config: Config,
        clock: Clock,
        new_uuid: Callable[[], bytes] = random_uuid,
        *,
        wait: bool = True,
    ) -> None:
        self.log = log
        self.config = config
        self.clock = clock
        self._new_uuid = new_uuid
        self.now = Now(clock)
        self._wait = wait
        self._when_loaded: list[Callable[[], None]] = []
        started_ms = self.now.now_ms
        self.wheel = TimerWheel(self.now.now_ms)
        self.purgatory = Purgatory(self.wheel)
        self.slices = Slices()
        self.pipeline = CommitPipeline(log)
        self.cluster = SingleNodeCluster(config.node_id, self._cluster_id(), log.node_epoch)
        self.topics = Topics()
        metadata = metadata_shard(
            log.open(METADATA_PARTITION),
            self.topics,
            pipeline=self.pipeline,
            wheel=self.wheel,
            slices=self.slices,
            now=self.now,
        )
        self.control = ControlPlane(metadata, self.topics, config, self.cluster, new_uuid)
        self.partitions = Partitions(
            log, self.pipeline, self.slices, self.control.topic_configs.effective, leader_epoch=log.node_epoch
        )
        self.topics.listen(self.partitions)
        self.authorizer = make_authorizer(config, self.topics)
        self.control.shard.load()
        self._finish("metadata")
        if not self.control.internal_topics.ensure(CONSUMER_OFFSETS):
            raise KcoreError(f"{CONSUMER_OFFSETS} cannot be made: see the log")
        self._finish(CONSUMER_OFFSETS)
        metadata_log = log.open(METADATA_PARTITION)
        self.consumer_groups = ConsumerServices(
            config,
            self.topics,
            version=lambda: metadata_log.end_offset,
            settings=self.control.group_configs,
            enabled=lambda: self.topics.feature_level("group.version") > 0,
            pipeline=self.pipeline,
        )
        self.groups: Shards[GroupShard] = self._group_shards()
        self.topics.listen(GroupTopics(self.groups, self.consumer_groups))
        self.consumer_groups.metadata.loaded()
        for index in range(self.groups.partitions):
            self.groups.load(index, log.node_epoch)
        self.markers = LocalMarkers(self.partitions.get, self._shard_of, self.now)
        self.transactions = TransactionCoordinator(self._transaction_shard, self.pipeline)
        self.topics.listen(TransactionTopic(self.transactions, log.node_epoch))
        self._finish("groups and transactions")
        self.fetch_memory_budget = FetchMemoryBudget(min(config.fetch_max_bytes, config.kcore_max_response_bytes))
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots,
            lambda: int.from_bytes(self._new_uuid()) % (2**31 - 1) + 1,
            config.kcore_max_fetch_session_partitions,
        )
        self.apis = ServedApis(self._deferred_apis())
        Housekeeping(self.partitions, self.wheel, self.slices, self.now, config).start()
        Periodic(self.wheel, self.slices, self.now, RECLAIM_INTERVAL_MS, self._reclaim).start()
        Periodic(self.wheel, self.slices, self.now, LOAD_AGAIN_INTERVAL_MS, self._load_again).start()
        self.recovery = self._recovery(self.now.update() - started_ms)
        if self.loading:
            self.slices.add(self._await_loads(started_ms))

    @classmethod
    def open(cls, config: Config, *, clock: Clock | None = None, create: bool = True, wait: bool = True) -> Engine:
        """Opens the folder that `kcore.data.dir` names, or nothing but memory.

        Args:
            config: the settings.
            clock: where time comes from; None: the system's.
            create: whether a folder that is not there may be made.
            wait: whether everything is loaded when this returns; see the class.

        Raises:
            DataFolderError: the folder is damaged, locked, of an unknown version, or no kcore folder.
            ConfigError: no folder was named, but the durability needs one.
        """
        path = config.kcore_data_dir
        log: LogEngine
        if config.kcore_durability == "memory" or (not path and config.source("kcore.durability") == "default"):
            log = MemoryLogEngine()
        elif not path:
            raise ConfigError(f"durability {config.kcore_durability!r} needs a data folder (--data, kcore.data.dir)")
        else:
            log = LmdbLogEngine(path, config.kcore_durability, create=create, map_size_bytes=config.kcore_map_size)
        try:
            return cls(log, config, clock or SystemClock(), wait=wait)
        except BaseException:
            log.close()
            raise

    # ---- making

    def _cluster_id(self) -> str:
        """The cluster's id: the folder's own, else the configured one, else a new one that the folder keeps."""
        kept = self.log.get_meta(CLUSTER_ID_META)
        wanted = self.config.cluster_id
        if kept is not None:
            found = kept.decode()
            if wanted and wanted != found:
                raise ConfigError(f"cluster.id={wanted} was set, but the data folder belongs to cluster {found}")
            return found
        made = wanted or to_text(self._new_uuid())
        self.log.put_meta(CLUSTER_ID_META, made.encode())
        return made

    def _finish(self, what: str) -> None:
        """Loads to the end, or the metadata alone, and commits what that decided."""
        while (self._wait or self.control.shard.state is ShardState.LOADING) and self.slices.step():
            pass
        if not self.commit():
            raise KcoreError(f"the first commit ({what}) failed: see the log")
        if self._wait:
            self.slices.finish()

    @property
    def loading(self) -> bool:
        """Whether any coordinator is still being loaded from its log."""
        transactions = self.transactions.shards
        return self.groups.loading or (transactions is not None and transactions.loading)

    def when_loaded(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once every coordinator is loaded, or has failed to be: at once if they are."""
        if self.loading:
            self._when_loaded.append(callback)
        else:
            callback()

    def _await_loads(self, started_ms: int) -> Iterator[None]:
        while self.loading:
            yield
        self.recovery = self._recovery(self.now.update() - started_ms)
        for callback in self._when_loaded:
            callback()

    def _group_shards(self) -> Shards[GroupShard]:
        topic = self.topics.by_name(CONSUMER_OFFSETS)
        assert topic is not None, "it was made just now"

        def make(index: int) -> Shard[GroupShard]:
            partition = self.partitions.get(CONSUMER_OFFSETS, index)
            assert partition is not None, f"{CONSUMER_OFFSETS} has {topic.partitions} partitions"
            return Shard(
                CONSUMER_OFFSETS,
                index,
                partition,
                lambda context: GroupShard(
                    context, self.config, self.topics, self._new_member_id, consumer=self.consumer_groups
                ),
                pipeline=self.pipeline,
                wheel=self.wheel,
                slices=self.slices,
                now=self.now,
            )

        return Shards(CONSUMER_OFFSETS, topic.partitions, make, self.pipeline)

    def _transaction_shard(self, index: int) -> Shard[TransactionShard]:
        partition = self.partitions.get(TRANSACTION_STATE, index)
        assert partition is not None, f"{TRANSACTION_STATE} was made with partition {index}"
        services = Services(
            self.config,
            self.topics,
            self.control.producer_ids.take,
            self.markers,
            partial(self.topics.feature_level, "transaction.version"),
        )
        return Shard(
            TRANSACTION_STATE,
            index,
            partition,
            lambda context: TransactionShard(context, services),
            pipeline=self.pipeline,
            wheel=self.wheel,
            slices=self.slices,
            now=self.now,
            allows_background_commit=False,  # whether a transaction is open is asked outside its decisions, too
        )

    def _shard_of(self, topic: str, index: int) -> Shard[Any] | None:
        """The shard whose log a partition of an internal topic is."""
        if topic == CONSUMER_OFFSETS:
            return self.groups.get(index)
        if topic == TRANSACTION_STATE and self.transactions.shards is not None:
            return self.transactions.shards.get(index)
        return None

    def _new_member_id(self) -> str:
        return to_hex(self._new_uuid())

    def _deferred_apis(self) -> list[DeferredApi]:
        config = self.config
        path = os.path.abspath(config.kcore_data_dir) if isinstance(self.log, LmdbLogEngine) else "memory"
        apis: list[DeferredApi] = [
            *self.control.apis(
                EngineLogDirs(self.log, path, lambda: _volume_bytes(path)),
                transactional=TransactionalInitProducerIdApi(self.transactions, config),
                authorizer=self.authorizer,
            ),
            *data_apis(
                self.partitions,
                self.pipeline,
                self.purgatory,
                self.now,
                config,
                sessions=self.fetch_sessions,
                cluster=self.cluster,
                verifier=PartitionVerifier(self.transactions),
                room=self.fetch_memory_budget,
                authorizer=self.authorizer,
            ),
            *transaction_apis(
                self.transactions,
                self.markers,
                topics=self.topics,
                internal_topics=INTERNAL_TOPICS,
                pipeline=self.pipeline,
                authorizer=self.authorizer,
            ),
            *group_apis(
                self.groups,
                config=config,
                topics=self.topics,
                cluster=self.cluster,
                make_topic=self.control.internal_topics.ensure,
                verifier=OffsetsVerifier(self.transactions),
                authorizer=self.authorizer,
                consumer=self.consumer_groups,
            ),
        ]
        versions = self.control.api_versions()
        versions.serve(apis)
        return [*apis, DeferredApi(versions.key, versions.versions, lambda: versions)]

    def _reclaim(self) -> Iterator[None]:
        """Gives back the space of what was deleted, a bounded transaction at a time."""
        while self.log.reclaim(RECLAIM_BATCHES):
            yield

    def _load_again(self) -> Iterator[None]:
        """Tries shards again whose load failed; what failed is in the log."""
        for shard in (self.control.shard, *self.groups, *(self.transactions.shards or ())):
            if shard.load_again():
                yield

    def _recovery(self, elapsed_ms: int) -> Recovery:
        reports = [shard.report for shard in (*self.groups, *(self.transactions.shards or ()))]
        return Recovery(
            shards=len(reports),
            records=sum(report.records for report in reports),
            size_bytes=sum(report.size_bytes for report in reports),
            groups=sum(len(shard.machine.groups) for shard in self.groups),
            topics=len(list(self.topics.all())),
            elapsed_ms=elapsed_ms,
        )

    # ---- requests

    def submit(self, context: RequestContext, request: Any) -> Any:
        """Decides one request.

        Args:
            context: who asks, and in which version.
            request: the request, one whose API is in `apis`.

        Returns:
            The response; a `Pending` if it comes later; None where the protocol has no answer.

        Raises:
            CloseConnectionError: it failed, and the protocol has no answer that could say so (Produce, acks=0).
        """
        api = self.apis.made.get(request.API_KEY) or self.apis[request.API_KEY]
        try:
            fast = api.fast
            response = None if fast is None else fast(context, request)
            return api.handle(context, request) if response is None else response
        except Exception as error:
            return self.failed(api, context, request, error)

    def failed(self, api: Api[Any, Any], context: RequestContext, request: Any, error: Exception) -> Any:
        """The response to a request whose `handle` raised `error`. What is not a refusal is logged.

        Raises:
            CloseConnectionError: the protocol has no answer that could say so (Produce, acks=0).
        """
        if isinstance(error, KafkaError):
            if logger.isEnabledFor(logging.INFO):
                event = fields(
                    api=type(api).__name__.removesuffix("Api"),
                    error=error.code.name,
                    client_id=context.client_id,
                    connection=context.connection_id,
                )
                logger.info("refused: %s", error, extra=event)
            return api.error(context, request, error.code, error.message)
        if isinstance(error, CloseConnectionError):
            raise error
        if isinstance(error, LogError):
            logger.error("%s: %s", type(request).__name__, error)
            return api.error(context, request, api.storage_error)
        logger.error("%s failed", type(request).__name__, exc_info=error)
        return api.error(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)

    def newest_version(self, request: Any) -> int:
        """The newest version of a request that is served.

        Raises:
            KcoreError: the API is not served.
        """
        if request.API_KEY not in self.apis:
            raise KcoreError(f"{type(request).__name__} is not served by this engine")
        return int(self.apis[request.API_KEY].versions[1])

    # ---- what a driver calls

    def commit(self) -> bool:
        """Makes everything decided durable and gives the answers out. False if the log refused."""
        return self.pipeline.commit()

    def next_deadline_ms(self) -> int:
        """The monotonic time in ms at which a timer wants to fire next; -1: none is armed."""
        return self.wheel.next_deadline_ms()

    def fire_timers(self) -> None:
        """Reads the clock and lets every timer fire that is due."""
        for timer in self.wheel.advance(self.now.update()):
            try:
                timer.payload()
            except Exception as error:
                if isinstance(error, MemoryError):
                    # It may not have begun at all. A timer looks at the state when it fires, so it may fire twice.
                    timer.extend(self.now.now_ms + TIMER_RETRY_MS)
                log_failure(logger, error, "a timer failed: %r", timer.payload)

    def turn(self) -> None:
        """Reads the clock, fires timers, does all long work: for a driver whose callers wait anyway."""
        now_ms = self.now.update()
        deadline_ms = self.wheel.next_deadline_ms()
        if 0 <= deadline_ms <= now_ms:
            self.fire_timers()
        if self.slices:
            self.slices.finish()

    def advance(self, ms: int) -> None:
        """Moves a `ManualClock` by `ms`: every timer fires at its own time, and what it decides is committed."""
        clock = self.clock
        assert isinstance(clock, ManualClock), "only a manual clock can be moved"
        end_ms = clock.monotonic_ms() + ms
        while 0 <= (deadline_ms := self.wheel.next_deadline_ms()) <= end_ms:
            clock.advance(max(0, deadline_ms - clock.monotonic_ms()))
            self.fire_timers()
            self.slices.finish()
            self.commit()
        clock.advance(end_ms - clock.monotonic_ms())
        self.turn()
        while self.pipeline.dirty:
            self.commit()
            self.slices.finish()

    def close(self) -> None:
        """Commits what is there and closes the log. Parked requests stay unanswered: their callers are gone too.

        An engine whose memory may disagree with its log is abandoned instead: see `CommitPipeline`.
        """
        if self.pipeline.settling:
            self.abandon()
            return
        try:
            self.commit()
            self.log.close()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Closes the log and releases the data folder without a commit. Nothing acknowledged is lost.

        It may be called again after an exception, and after `close`.
        """
        self.pipeline.abandon()
        self.log.close()


def _volume_bytes(path: str) -> tuple[int, int]:
    """All bytes of the volume that a folder is on, and those that are free; -1 each for no folder."""
    try:
        volume = os.statvfs(path)
    except OSError:
        return -1, -1
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
