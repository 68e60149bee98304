"""The engine: log, runtime, topics, groups and transactions wired together.

The engine only processes requests. A driver (`kcore.drivers`) reads the clock, commits and fires timers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kcore.broker.acl.authorizer import make_authorizer
from kcore.broker.data.client_quotas import ClientQuotas
from kcore.broker.data.fetch_budget import FetchMemoryBudget
from kcore.broker.data.fetch_session import FetchSessions
from kcore.broker.data.log_dirs import EngineLogDirs
from kcore.broker.data.partitions import Partitions
from kcore.broker.data.recovery_retry import RecoveryRetry
from kcore.broker.data.retention import Housekeeping, Periodic
from kcore.broker.data.transaction_verifier import PartitionVerifier
from kcore.broker.metadata.cluster_id import stored_cluster_id
from kcore.broker.metadata.control_plane import ControlPlane
from kcore.broker.metadata.internal_topics import report_fixed_partitions
from kcore.broker.metadata.machine import METADATA_PARTITION, metadata_shard
from kcore.broker.metadata.topics import Topics
from kcore.broker.share.share_partitions import SharePartitions
from kcore.clock import Clock, ManualClock, Now, SystemClock
from kcore.config.node import Config
from kcore.errors import ConfigError, KcoreError
from kcore.group.consumer.services import ConsumerServices
from kcore.group.meters import GroupMeters
from kcore.group.node import make_group_shards
from kcore.group.record_limits import GroupRecordLimits
from kcore.group.shard import GroupShard
from kcore.group.share.end_offsets import LocalEndOffsets
from kcore.group.share.services import ShareGroupServices
from kcore.group.streams.services import StreamsServices
from kcore.group.topics import GroupTopics
from kcore.log import LmdbLogEngine, LogEngine, PartitionLog, open_engine
from kcore.log.data_folder import volume_bytes
from kcore.process_logging import log_failure, log_name
from kcore.protocol.records import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcore.protocol.uuids import to_hex, version_4
from kcore.runtime import Api, CommitPipeline, RequestContext, Shard, Shards, ShardServices, ShardState, Slices
from kcore.runtime.api import Guard
from kcore.runtime.cluster import AdvertisedCluster, SingleNodeCluster
from kcore.runtime.deferred import DeferredApi, ServedApis
from kcore.runtime.failed_requests import error_response
from kcore.runtime.late_shards import CoordinatorTopic
from kcore.runtime.recovery import Recovery
from kcore.served_apis import apis_of
from kcore.share.coordinator import ShareCoordinator, ShareStateTopic
from kcore.share.node import start_share_coordinator
from kcore.share.persister import Persister
from kcore.transaction.local_markers import LocalMarkers
from kcore.transaction.node import make_transaction_coordinator
from kcore.transaction.shard import TransactionServices
from kcore.transaction.verification import TransactionVerifier
from kcore_ext.runtime.purgatory import Purgatory
from kcore_ext.runtime.timer_wheel import TimerWheel

logger = logging.getLogger(__name__)

RECLAIM_INTERVAL_MS = 10_000
RECLAIM_BATCHES = 2_000
TIMER_RETRY_MS = 100  # a timer that failed for lack of memory fires again after this time


def random_uuid() -> bytes:
    """Returns a new uuid of version 4, sixteen bytes."""
    return version_4(os.urandom(16))


class Engine:
    """The broker and the coordinators of one node, without sockets and threads.

    It processes requests. A driver commits the resulting records and fires the timers.

    Args:
        log: the log of all durable records; closed with the engine.
        config: the node's settings.
        clock: the source of time.
        new_uuid: creates random uuids (member ids, topic ids) of sixteen bytes. It is also an attribute of the engine.
        wait: True to load coordinators and partitions before the constructor returns. False to load them in `slices`;
            until they are loaded, requests fail with COORDINATOR_LOAD_IN_PROGRESS or NOT_LEADER_OR_FOLLOWER. Topics and
            settings are always loaded before the constructor returns.

    Attributes:
        apis: the served APIs by key; each is created at its first use.
        client_quotas: the configured quotas of clients, and the measured rates.
        fetch_memory_budget: the limit on the memory of Fetch responses.
        fetch_sessions: the open sessions by connection; `connection_closed` ends the sessions of a connection.
        pipeline: commits the decided records.
        now: the clock, which the driver reads once per round.
        shard_services: the pipeline, the timers, the slices and the clock, for the shards.
        slices: the queue of long work, of which the driver runs a short part at a time.
        cluster: this node and its addresses.
        topics: the directory of topics by name and by id.
        authorizer: checks the permissions of principals; None: everything is allowed.
        partitions: the partitions of the topics.
        log_dirs: the sizes of the data folder, for DescribeLogDirs.
        housekeeping: retention, compaction and other periodic work on partitions.
        groups: the shards of `__consumer_offsets`.
        group_meters: count the members of all groups, and measure their rebalances.
        consumer_groups: the node's services for consumer groups; `consumer_groups.events` reports their changes.
        streams_groups: the node's services for streams groups.
        share_groups: the node's services for share groups.
        transactions: the transaction coordinator, and the shards of `__transaction_state`.
        transaction_counters: counts the ends of this node's transactions.
        markers: writes the end markers of transactions.
        transaction_verifier: verifies transactions with their coordinator.
        partition_verifier: verifies the partitions of a Produce request with the transaction coordinator.
        share: the share coordinator, and the shards of `__share_group_state`.
        share_partitions: the delivery of records to share groups, and the share sessions.
        share_persister: the durable state of share partitions, for groups and partition leaders.
        recovery: the statistics of the recovery. They include only the shards that are already loaded.
        reclaim_beside: a function that a driver with threads sets. On another thread, it calls its argument repeatedly
            until the argument returns False. The function itself returns False if no thread is available.
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
        self.new_uuid = new_uuid
        self._process_id = os.getpid()
        self._when_loaded: list[Callable[[], None]] = []
        self.now, self._wait = Now(clock), wait
        self.reclaim_beside: Callable[[Callable[[], bool]], bool] | None = None
        started_ms = self.now.now_ms
        self.wheel = TimerWheel(self.now.now_ms)
        self.purgatory = Purgatory(self.wheel)
        self.slices = Slices()
        self.pipeline = CommitPipeline(log)
        self.shard_services = ShardServices(self.pipeline, self.wheel, self.slices, self.now)
        self.topics = Topics()
        self.cluster = self._make_cluster()
        metadata = metadata_shard(
            self._metadata_log(),
            self.topics,
            self.shard_services,
            min_insync_replicas=config.min_insync_replicas,
            leads=self.decides,
            node_id=config.node_id,
        )
        self.control = ControlPlane(metadata, self.topics, config, self.cluster, new_uuid, self.now)
        self.partitions = self._make_partitions()
        self.topics.listen(self.partitions)
        self.authorizer = make_authorizer(config, self.topics, self.now)
        self.control.shard.load()
        self._finish("metadata")
        report_fixed_partitions(config, self.topics.by_name)
        self._ensure_offsets_topic()
        self.consumer_groups = self._consumer_services()
        self.streams_groups = self._streams_services()
        self.share_groups = self._share_group_services()
        self.group_meters = GroupMeters()
        self.groups = self._group_shards()
        self._load_groups()
        self._start_transactions()
        self._start_share()
        self._finish("groups, transactions and share state")
        self.fetch_memory_budget = FetchMemoryBudget(min(config.fetch_max_bytes, config.kcore_max_response_bytes))
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots,
            lambda: int.from_bytes(self.new_uuid()) % (2**31 - 1) + 1,
            config.kcore_max_fetch_session_partitions,
            config.kcore_max_request_elements,
        )
        self.client_quotas = ClientQuotas(self.topics, self.now, config)
        self.log_dirs = self._make_log_dirs()
        self.apis = ServedApis(self._served_apis())
        self.housekeeping = Housekeeping(self.partitions, self.wheel, self.slices, self.now, config)
        self.housekeeping.start()
        Periodic(self.wheel, self.slices, self.now, RECLAIM_INTERVAL_MS, self._reclaim).start()
        self.recovery = self._recovery(self.now.update() - started_ms)
        if self.loading:
            self.slices.add(self._await_loads(started_ms))

    def _consumer_services(self) -> ConsumerServices:
        metadata_log = self.log.open(METADATA_PARTITION)
        return ConsumerServices(
            self.config,
            self.topics,
            version=lambda: metadata_log.end_offset,
            settings=self.control.group_configs,
            enabled=lambda: self.topics.feature_level("group.version") > 0,
            pipeline=self.pipeline,
        )

    def _streams_services(self) -> StreamsServices:
        return StreamsServices(
            self.config,
            self.consumer_groups.metadata,
            settings=self.control.group_configs,
            enabled=lambda: self.topics.feature_level("streams.version") > 0,
            topic_creator=self.control.application_topics,
        )

    def _group_shards(self) -> Shards[GroupShard]:
        return make_group_shards(
            self.config,
            self.topics,
            self.partitions.get,
            self.shard_services,
            new_member_id=lambda: to_hex(self.new_uuid()),
            max_record_bytes=self._group_record_limit,
            consumer=self.consumer_groups,
            streams=self.streams_groups,
            share=self.share_groups,
            meters=self.group_meters,
        )

    def _load_groups(self) -> None:
        """Starts to load the group shards, and forwards changes of topics and settings to them."""
        self.topics.listen(GroupTopics(self.groups, self.consumer_groups, self.streams_groups, self.share_groups))
        self.topics.listen(GroupRecordLimits(self.groups, self._group_record_limit))
        self.consumer_groups.metadata.loaded()
        leader_epoch = self._first_epoch()
        if leader_epoch is not None:
            for index in range(self.groups.partitions):
                self.groups.load(index, leader_epoch)

    def _share_group_services(self) -> ShareGroupServices:
        return ShareGroupServices(
            self.config,
            settings=self.control.group_configs,
            enabled=self.share_groups_enabled,
            end_offsets=self._end_offsets(),
        )

    def _end_offsets(self) -> LocalEndOffsets:
        return LocalEndOffsets(self.partitions.high_watermark)

    def _start_transactions(self) -> None:
        """Starts the transaction coordinator and the verification of transactional writes."""
        self.markers = self._make_markers()
        services = TransactionServices(
            self.config,
            self.topics,
            self.control.producer_ids.next_id,
            self.markers,
            partial(self.topics.feature_level, "transaction.version"),
        )
        self.transaction_counters = services.counters
        self.transactions = make_transaction_coordinator(self.partitions.get, self.shard_services, services)
        self.topics.listen(CoordinatorTopic(self.transactions, self._first_epoch()))
        self.transaction_verifier = self._make_verifier()
        self.partition_verifier = PartitionVerifier(self.transaction_verifier, self.wheel, self.now)

    _share_coordinator: Callable[..., tuple[ShareCoordinator, Persister]] = staticmethod(start_share_coordinator)

    def _start_share(self) -> None:
        """Starts the share coordinator and the delivery of records to share groups."""
        self.share, self.share_persister = self._share_coordinator(
            self.config, self.topics, self.partitions.get, self.control.internal_topics.ensure, self.shard_services
        )
        self.topics.listen(ShareStateTopic(self.share, self._first_epoch()))
        settings = self.control.group_configs
        self.share_partitions = SharePartitions(
            self.partitions, self.share_persister, settings, self.purgatory, self.now, self.config
        )
        self.topics.listen(self.share_partitions)
        self.share_groups.persister = self.share_persister
        self.share_groups.on_left = self.share_partitions.member_left

    @classmethod
    def open(cls, config: Config, *, clock: Clock | None = None, create: bool = True, wait: bool = True) -> Engine:
        """Opens an engine with the data folder of `kcore.data.dir`, or in memory if none is set.

        Args:
            config: the settings.
            clock: the source of time; None: the system's clocks.
            create: True to create a missing folder.
            wait: True to load coordinators and partitions before `open` returns. False to load them in `Engine.slices`:
                until they are loaded, requests fail with COORDINATOR_LOAD_IN_PROGRESS or NOT_LEADER_OR_FOLLOWER.

        Raises:
            DataFolderError: the folder is damaged, locked, of an unknown version, or not a kcore folder.
            ConfigError: no folder is set, although the durability is not `memory`; or a folder is set, although the
                durability is `memory`.
        """
        path, durability = config.kcore_data_dir, config.kcore_durability
        if not path and config.source("kcore.durability") == "default":
            durability = "memory"
        if not path and durability != "memory":
            raise ConfigError(f"durability {durability!r} needs a data folder (--data, kcore.data.dir)")
        if path and durability == "memory":
            raise ConfigError(
                f"kcore.durability=memory keeps all data in memory and would not use the data folder {path}: remove "
                "one of the two settings"
            )
        log = open_engine(path, durability, create=create, map_size_bytes=config.kcore_map_size)
        try:
            return cls(log, config, clock or SystemClock(), wait=wait)
        except BaseException:
            log.close()
            raise

    # ---- construction; a node of a cluster overrides the first methods

    def decides(self) -> bool:
        """Returns True if this node decides changes of the metadata, because it is the only node or the controller."""
        return True

    def _make_cluster(self) -> AdvertisedCluster:
        config = self.config
        return SingleNodeCluster(
            config.node_id,
            stored_cluster_id(self.log, self.config, self.new_uuid),
            self.log.node_epoch,
            config.broker_rack,
        )

    def _metadata_log(self) -> PartitionLog:
        return self.log.open(METADATA_PARTITION)

    def _make_partitions(self) -> Partitions:
        effective = self.control.topic_configs.effective
        recover = RecoveryRetry(self.wheel, self.slices, self.now).recover
        epoch = self.log.node_epoch
        return Partitions(self.log, self.pipeline, self.slices, effective, leader_epoch=epoch, recover=recover)

    def _ensure_offsets_topic(self) -> None:
        if not self.control.internal_topics.ensure(CONSUMER_OFFSETS):
            raise KcoreError(
                f"the topic {CONSUMER_OFFSETS} cannot be created; the last ERROR line of this process's log has "
                "the cause"
            )
        self._finish(CONSUMER_OFFSETS)

    def _make_markers(self) -> LocalMarkers:
        return LocalMarkers(self.partitions.get, self._shard_of, self.now)

    def _make_log_dirs(self) -> EngineLogDirs:
        path = os.path.abspath(self.config.kcore_data_dir) if isinstance(self.log, LmdbLogEngine) else "memory"
        return EngineLogDirs(self.log, path, lambda: volume_bytes(path))

    def _make_verifier(self) -> TransactionVerifier:
        return TransactionVerifier(self.transactions)

    def _first_epoch(self) -> int | None:
        """Returns the leader epoch of all coordinators at the start of this node.

        Returns None if the node does not lead any coordinator's partition at that time.
        """
        return self.log.node_epoch

    def _finish(self, stage: str) -> None:
        """Finishes the queued loads and commits their decisions.

        If `wait` is False, finishes only the load of the metadata.
        """
        while (self._wait or self.control.shard.state is ShardState.LOADING) and self.slices.step():
            pass
        if not self.commit():
            raise KcoreError(
                f"the first commit ({stage}) failed; the last ERROR line of this process's log has the cause"
            )
        if self._wait:
            self.slices.finish()

    @property
    def loading(self) -> bool:
        """True while any coordinator is being loaded from its log."""
        return any(shard.state is ShardState.LOADING for shard in self._coordinator_shards())

    def when_loaded(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once the load of every coordinator has succeeded or failed: immediately if none loads."""
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

    def _group_record_limit(self) -> int:
        limit: int = self.control.topic_configs.effective(CONSUMER_OFFSETS)["max.message.bytes"]
        return limit

    def share_groups_enabled(self) -> bool:
        """Returns True if the cluster's share.version enables share groups."""
        return self.topics.feature_level("share.version") > 0

    def _coordinator_shards(self) -> Iterator[Shard[Any]]:
        """Yields every shard of every coordinator."""
        for shards in (self.groups, self.transactions.shards, self.share.shards):
            yield from shards or ()

    def _shard_of(self, topic: str, index: int) -> Shard[Any] | None:
        """Returns the shard whose log is this partition; None if the partition belongs to no shard."""
        if topic == CONSUMER_OFFSETS:
            return self.groups.get(index)
        if topic == TRANSACTION_STATE and self.transactions.shards is not None:
            return self.transactions.shards.get(index)
        return None

    def _served_apis(self) -> list[DeferredApi]:
        return apis_of(self)

    def _reclaim(self) -> Iterator[None]:
        """Frees the space of deleted batches, in transactions of bounded size."""
        if self.reclaim_beside is not None and self.reclaim_beside(lambda: self.log.reclaim(RECLAIM_BATCHES)):
            return
        while self.log.reclaim(RECLAIM_BATCHES):
            yield

    def _recovery(self, elapsed_ms: int) -> Recovery:
        reports = [shard.report for shard in self._coordinator_shards()]
        records, size_bytes = sum(one.records for one in reports), sum(one.size_bytes for one in reports)
        groups = sum(len(shard.machine.groups) for shard in self.groups)
        return Recovery(len(reports), records, size_bytes, groups, len(list(self.topics.all())), elapsed_ms)

    # ---- requests

    def guard(self, api: Api[Any, Any]) -> Guard | None:
        """Returns the functions that a server calls to handle requests of `api`.

        None means that the server calls the API's own functions.
        """
        return None

    def connection_closed(self, connection_id: int) -> None:
        """Ends the fetch sessions and share sessions of a connection; share sessions release their records."""
        self.fetch_sessions.connection_closed(connection_id)
        self.share_partitions.sessions.connection_closed(connection_id)

    def submit(self, context: RequestContext, request: Any) -> Any:
        """Processes a request, without a commit.

        Args:
            context: the client and the version of the request.
            request: a typed request, whose API must be in `apis`.

        Returns:
            The response; a `Pending` if the response comes later; None if the protocol has no response.

        Raises:
            CloseConnectionError: the request failed, and the protocol has no response for it (Produce, acks=0).
        """
        api = self.apis.made.get(request.API_KEY) or self.apis[request.API_KEY]
        try:
            fast = api.fast
            response = None if fast is None else fast(context, request)
            return api.handle(context, request) if response is None else response
        except Exception as error:
            return self.failed(api, context, request, error)

    def failed(self, api: Api[Any, Any], context: RequestContext, request: Any, error: Exception) -> Any:
        """Returns the error response to a request whose `handle` raised `error`, and logs the error.

        Raises:
            CloseConnectionError: the protocol has no response for the request (Produce, acks=0).
        """
        return error_response(api, context, request, error)

    def newest_version(self, request: Any) -> int:
        """Returns the newest served version of a request.

        Raises:
            KcoreError: the API is not served.
        """
        if request.API_KEY not in self.apis:
            raise KcoreError(f"this engine does not support {type(request).__name__}")
        return int(self.apis[request.API_KEY].versions[1])

    # ---- the driver's interface

    def commit(self) -> bool:
        """Makes all decisions durable and completes the responses. Returns False if the commit failed."""
        return self.pipeline.commit()

    def next_deadline_ms(self) -> int:
        """Returns the monotonic time in ms at which the next timer is due, or -1 if none is armed."""
        return self.wheel.next_deadline_ms()

    def fire_timers(self, is_enough: Callable[[], bool] | None = None) -> None:
        """Reads the clock and fires the due timers.

        Args:
            is_enough: called after each timer. If it returns True, the method returns, and the other timers stay due.
                None: all due timers fire.
        """
        for timer in self.wheel.advance(self.now.update()):
            try:
                timer.payload()
            except Exception as error:
                if isinstance(error, MemoryError):
                    # The timer may not have run at all. It checks the state when it fires, so it may fire twice.
                    timer.extend(self.now.now_ms + TIMER_RETRY_MS)
                log_failure(
                    logger,
                    error,
                    "engine: the timer of %s raised an error; %s",
                    log_name(timer.payload),
                    "the timer fires again"
                    if isinstance(error, MemoryError)
                    else "the timer does not fire again; please report the error",
                )
            if is_enough is not None and is_enough():
                break

    def turn(self) -> None:
        """Reads the clock, fires due timers, and runs all slices of long work.

        The driver for threads calls this method. The driver for an event loop runs one slice at a time instead.
        """
        now_ms = self.now.update()
        deadline_ms = self.wheel.next_deadline_ms()
        if 0 <= deadline_ms <= now_ms:
            self.fire_timers()
        if self.slices:
            self.slices.finish()

    def advance(self, ms: int) -> None:
        """Moves a `ManualClock` by `ms`. Every timer fires at its own time, and its decisions are committed."""
        clock = self.clock
        assert isinstance(clock, ManualClock), "the time can only be moved with a ManualClock"
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
        """Commits the open round and closes the log. Parked requests receive no response.

        If the state in memory may not match the log (`CommitPipeline.interrupted`), calls `abandon` instead. In a
        forked child process, does nothing, because the log belongs to the parent process.
        """
        if os.getpid() != self._process_id:
            return
        if self.pipeline.interrupted:
            self.abandon()
            return
        try:
            self.commit()
            self.log.close()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Closes the log and releases the data folder without a commit. No acknowledged write is lost.

        `abandon` may be called again after an exception, and after `close`. In a forked child it does nothing.
        """
        if os.getpid() != self._process_id:
            return
        self.pipeline.abandon()
        self.log.close()
