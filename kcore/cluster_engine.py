"""The engine of one node of a cluster whose nodes share a store."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kcore.broker.cluster.application_topics import SharedApplicationTopics
from kcore.broker.cluster.controller import Controller
from kcore.broker.cluster.follower import MetadataFollower
from kcore.broker.cluster.forwarding import EnvelopeApi, Forwarder
from kcore.broker.cluster.handover import AlterPartitionApi, BrokerHeartbeatApi, NodeHandover, Releases
from kcore.broker.cluster.internal_topics import SharedInternalTopics
from kcore.broker.cluster.leadership import LeadershipKeeper
from kcore.broker.cluster.lease_guard import LeaseGuard
from kcore.broker.cluster.membership import ClusterState, Membership, Runner, Timing, run_inline
from kcore.broker.cluster.node_access import NodeAccess, NodeSecrets
from kcore.broker.cluster.producer_ids import AllocateProducerIdsApi, SharedProducerIds
from kcore.broker.cluster.reassignment import MovingReassignmentsApi, PlannedMovesApi, RebalancingApi
from kcore.broker.cluster.unregistration import UnregisteringApi
from kcore.broker.cluster.view import SharedClusterView
from kcore.broker.data.log_dirs import EngineLogDirs
from kcore.broker.data.recovery_retry import RecoveryRetry
from kcore.broker.data.shared_partitions import SharedPartitions
from kcore.cluster.store import METADATA, ClusterStore
from kcore.engine import Engine, random_uuid
from kcore.errors import KcoreError
from kcore.group.share.end_offsets import SharedEndOffsets
from kcore.log.data_folder import volume_bytes
from kcore.log.errors import LogError, StoreUnavailableError
from kcore.log.interface import PartitionKey
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.storage import Leadership
from kcore.metrics import Histogram
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.runtime.cluster import Leader
from kcore.runtime.deferred import DeferredApi
from kcore.runtime.peers import NoPeers, Peers
from kcore.runtime.shard_state import ShardState
from kcore.share.node import start_share_coordinator
from kcore.share.shared import SharedPersister
from kcore.transaction.shared_markers import SharedMarkers
from kcore.transaction.shared_verification import (
    RemoteCoordinators,
    SharedTransactionVerifier,
)

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import Partitions
    from kcore.clock import Clock
    from kcore.cluster.store import Lease
    from kcore.config.node import Config
    from kcore.log.interface import PartitionLog
    from kcore.log.write_set import StoredPartition
    from kcore.runtime import Api, RequestContext
    from kcore.runtime.api import Guard
    from kcore.runtime.shards import Shards
    from kcore.share.coordinator import ShareCoordinator
    from kcore.share.persister import Persister
    from kcore.transaction.local_markers import LocalMarkers
    from kcore.transaction.verification import TransactionVerifier

logger = logging.getLogger(__name__)


class ClusterEngine(Engine):
    """One node of a cluster.

    The node serves the partitions and coordinators whose leader it is according to the metadata log. While it is the
    controller, it also decides changes of the metadata. If its lease may have ended, it refuses requests with retriable
    errors.

    Args:
        store: the cluster's store, in which this node has registered.
        lease: the node's lease.
        register_sent_ms: the monotonic time in ms before the registration was sent.
        config: the node's settings; `node_id` is the registered id.
        clock: the source of time.
        new_uuid: creates random uuids.
        timing: the intervals of leases and polls.
        run: runs the calls of the store. The constructor does not use it, but makes blocking calls.
        peers: sends requests to other nodes; None: the node cannot send requests.

    Attributes:
        membership: this node's leases.
        leadership: the partitions that this node leads.
        controller: decides while this node is the controller.
        releases: the partitions that this node has given up because of planned moves.
        store_time: a histogram of the durations, in seconds, of the calls that the driver makes to the store.

    Raises:
        StoreUnavailableError: the store cannot be reached, or no controller has prepared the cluster yet. The caller
            may try again with the same registration.
    """

    cluster: SharedClusterView
    log: SharedLogEngine
    partitions: SharedPartitions

    def __init__(
        self,
        store: ClusterStore,
        lease: Lease,
        register_sent_ms: int,
        config: Config,
        clock: Clock,
        new_uuid: Callable[[], bytes] = random_uuid,
        *,
        timing: Timing | None = None,
        run: Runner = run_inline,
        peers: Peers | None = None,
    ) -> None:
        self.store = store
        self.peers: Peers = NoPeers() if peers is None else peers
        self._lease = lease
        self._register_sent_ms = register_sent_ms
        self._timing = timing or Timing()
        self._deciding = False
        self._opened = False
        self._on_fenced: Callable[[], None] | None = None
        self.store_time = Histogram()
        self.node_secrets = NodeSecrets()
        log = SharedLogEngine(store.storage(), config.kcore_durability)
        super().__init__(log, config, clock, new_uuid)
        self.client_quotas.is_node = self.node_secrets.proves_node
        self._opened = True
        self.leadership.consider_all()
        self._settle()
        self.use(run=run)
        self.membership.start()

    def use(self, *, run: Runner, renew: Runner | None = None, peers: Peers | None = None) -> None:
        """Sets the services of a driver that was made after the engine.

        Args:
            run: runs calls of the store.
            renew: runs the renewals of leases; None: `run`.
            peers: sends requests to other nodes; None: no change.
        """
        self.membership.run = self.controller.run = run
        self.membership.run_renewal = run if renew is None else renew
        if peers is not None:
            self.peers = peers

    # ---- construction

    def decides(self) -> bool:
        """Returns True if this node is the controller and has replayed the whole metadata log."""
        return self._deciding

    def may_decide(self) -> bool:
        """Returns True if this node decides, and its lease as the controller is certainly valid.

        The call reads the clock.
        """
        return self._deciding and self.membership.may_decide()

    def _make_cluster(self) -> SharedClusterView:
        self.membership = Membership(
            self.store, self._lease, self._register_sent_ms, self.clock, self.wheel, self._timing, run_inline
        )
        self.membership.on_poll = self._polled
        self.membership.on_controller = self._controller_changed
        self.membership.on_fenced = self._fenced
        return SharedClusterView(self.config.node_id, self.store.cluster_id(), self.topics)

    def _metadata_log(self) -> PartitionLog:
        log = self.log.follow(METADATA)
        if log is None:
            raise LogError("the store has no metadata log: run `kcore cluster init`")
        return log

    def _make_partitions(self) -> Partitions:
        recover = RecoveryRetry(self.wheel, self.slices, self.now).recover
        effective = self.control.topic_configs.effective
        partitions = SharedPartitions(self.log, self.pipeline, self.slices, effective, recover=recover)
        self.releases = Releases(self.membership, self.topics, self.cluster, self, self.wheel)
        self.leadership = LeadershipKeeper(
            self.log,
            self.topics,
            partitions,
            pipeline=self.pipeline,
            membership=self.membership,
            wheel=self.wheel,
            shards_of=self._shards_of,
            on_given_up=self._given_up,
            releases=self.releases,
        )
        self.pipeline.on_fenced = self.leadership.refused
        self.forwarder = Forwarder(self.cluster, self, self.wheel, self.now, self._mute)
        self._guard = LeaseGuard(
            self.membership.local,
            self.may_decide,
            self.forwarder,
            self.topics,
            node_id=self.config.node_id,
            creates_topics=self.config.auto_create_topics_enable,
        )
        self.control.internal_topics = SharedInternalTopics(
            self.control.shard, self.control.creation, self.forwarder, self.now
        )
        self.control.application_topics = SharedApplicationTopics(
            self.control.shard, self.control.creation, self.now, self.forwarder
        )
        self.control.producer_ids = SharedProducerIds(self.control.shard, self.cluster, self._lease.epoch, self)
        self.follower = MetadataFollower(self.control.shard, self.log.open(METADATA))
        self.controller = Controller(self.control.shard, self.store, self.membership, run_inline)
        self.controller.even = self.config.get("auto.leader.rebalance.enable")
        return partitions

    def _ensure_offsets_topic(self) -> None:
        """Becomes the controller if there is none, and then creates `__consumer_offsets`.

        Raises:
            StoreUnavailableError: another node is the controller, and it has not created the topic yet.
        """
        self.topics.listen(self.leadership)
        self.membership.refresh()
        self._finish("registration")
        if self._deciding:
            super()._ensure_offsets_topic()
        if self.topics.by_name(CONSUMER_OFFSETS) is None:
            raise StoreUnavailableError(f"the controller has not created {CONSUMER_OFFSETS} yet")

    def _finish(self, stage: str) -> None:
        """Finishes the queued loads like `Engine._finish`, but raises a retriable error if a commit fails.

        Raises:
            StoreUnavailableError: a commit failed. The caller may repeat the start.
        """
        try:
            super()._finish(stage)
        except LogError:
            raise
        except KcoreError as error:
            raise StoreUnavailableError(str(error)) from error

    def _make_markers(self) -> LocalMarkers:
        return SharedMarkers(
            self._led_partition,
            self._shard_of,
            self.now,
            cluster=self.cluster,
            peers=self,
            pipeline=self.pipeline,
        )

    def _share_coordinator(self, *services: Any) -> tuple[ShareCoordinator, Persister]:
        make_persister = partial(SharedPersister, cluster=self.cluster, peers=self)
        return partial(start_share_coordinator, make_persister=make_persister)(*services)

    def _end_offsets(self) -> SharedEndOffsets:
        return SharedEndOffsets(self.partitions.high_watermark, self.cluster, self)

    def _mute(self, context: RequestContext, throttle_ms: int) -> None:
        """Mutes the connection of a client that the controller has throttled."""
        self.client_quotas.mute_for(context, throttle_ms)

    def _make_log_dirs(self) -> EngineLogDirs:
        folder = self.config.kcore_data_dir
        path = os.path.abspath(folder) if folder else "database"  # without a folder, the log is in a database
        return EngineLogDirs(self.log, path, lambda: volume_bytes(path))

    def _given_up(self, key: PartitionKey) -> None:
        """Stops delivering a partition's records to share groups, because the next leader delivers them."""
        if self._opened:
            self.share_partitions.resigned(key.topic_id, key.partition)

    def _led_partition(self, topic: str, index: int) -> Partition | None:
        """Returns a partition that this node leads, or None."""
        info = self.topics.by_name(topic)
        return None if info is None else self.partitions.led(PartitionKey(info.topic_id, index))

    def _make_verifier(self) -> TransactionVerifier:
        return SharedTransactionVerifier(self.transactions, RemoteCoordinators(self.topics, self.cluster, self))

    def _served_apis(self) -> list[DeferredApi]:
        listener = self.config.get("inter.broker.listener.name") or ""
        access = NodeAccess(listener, self.authorizer, self.node_secrets)
        elements = self.config.kcore_max_request_elements
        return [
            *super()._served_apis(),
            DeferredApi(
                ApiKey.ENVELOPE,
                (0, 0),
                lambda: self._envelope_api(access, elements),
            ),
            DeferredApi(
                ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), lambda: AllocateProducerIdsApi(self.control.shard, access)
            ),
            DeferredApi(ApiKey.ALTER_PARTITION, (3, 3), lambda: AlterPartitionApi(self.control.shard, access)),
            DeferredApi(
                ApiKey.BROKER_HEARTBEAT,
                (0, 0),
                lambda: BrokerHeartbeatApi(self.control.shard, self.controller, access),
            ),
            DeferredApi(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                (0, 1),
                lambda: MovingReassignmentsApi(self.control.shard, self.control.creation, self.authorizer),
            ),
            DeferredApi(
                ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), lambda: PlannedMovesApi(self.topics, self.authorizer)
            ),
            DeferredApi(
                ApiKey.ELECT_LEADERS,
                (0, 2),
                lambda: RebalancingApi(self.control.shard, self.cluster, self.controller, self.authorizer),
            ),
            DeferredApi(
                ApiKey.UNREGISTER_BROKER, (0, 0), lambda: UnregisteringApi(self.control.shard, self.authorizer)
            ),
        ]

    def _envelope_api(self, access: NodeAccess, max_elements: int) -> EnvelopeApi:
        return EnvelopeApi(self.submit, self.control.internal_topics.ensure, self.may_decide, access, max_elements)

    def _first_epoch(self) -> int | None:
        return None

    def _shards_of(self, topic: str) -> Shards[Any] | None:
        """Returns the shards whose logs are the partitions of an internal topic; None for other topics."""
        if topic == CONSUMER_OFFSETS:
            return self.groups
        if topic == TRANSACTION_STATE:
            return self.transactions.shards
        if topic == SHARE_GROUP_STATE:
            return self.share.shards
        return None

    def _settle(self) -> None:
        """Begins to lead the partitions that the metadata assigns to this node, and loads their coordinators."""
        self.commit()
        self.leadership.apply()
        self.slices.finish()
        self.commit()

    # ---- the cluster's state

    def _polled(self, state: ClusterState) -> bool:
        """Reacts to a poll of the store: replays the controller's new records, or decides changes as the controller.

        Returns:
            False if this node has not replayed the new records yet, or does not lead yet all partitions that the
            metadata assigns to this node.
        """
        replayed = True
        self.node_secrets.update(state.nodes)
        if self.pipeline.uncertain:
            self.pipeline.commit()  # reads the result of an earlier round from the store again
        holder = state.controller
        self.cluster.controller = None if holder is None else Leader(holder.holder, holder.epoch)
        if self.membership.is_controller():
            if not self._deciding:
                self._take_over()
            if self._deciding and not self.pipeline.uncertain:
                self.controller.react(state)
        elif state.metadata is not None:
            replayed = self._follow(state.metadata)
        if not self._opened:
            return True
        self.leadership.apply()
        return replayed and self.leadership.is_applied

    def _follow(self, metadata: StoredPartition) -> bool:
        """Replays the records that the controller has written into the metadata log.

        Before the replay, commits the requests that are decided but not committed, which a node under load nearly
        always has. Therefore all decisions of a round are based on the same metadata.

        Args:
            metadata: the state of the metadata log.

        Returns:
            False if the next poll of the cluster must try again.
        """
        if not self._disown_metadata():
            return False
        self.log.show(metadata)
        pipeline = self.pipeline
        if pipeline.has_uncommitted and self.control.shard.machine.replayed_to < metadata.end_offset:
            pipeline.commit()
            if pipeline.has_uncommitted or pipeline.uncertain:
                return False
        return self.follower.catch_up()

    def _controller_changed(self, elected: bool) -> None:
        if elected:
            return  # `_polled` takes over the controller's work, and tries again after a failure
        self._deciding = False
        self.pipeline.commit()
        self._disown_metadata()

    def _disown_metadata(self) -> bool:
        """Follows the metadata log from now on, instead of writing it. Does nothing if this node follows it already.

        Returns:
            False while the result of a commit of this node is unknown. The next poll of the cluster tries again.
        """
        if not self.log.owns(METADATA):
            return not self.pipeline.uncertain
        if self.pipeline.has_uncommitted or self.pipeline.uncertain:
            return False
        self.log.disown(METADATA)
        return True

    def _take_over(self) -> None:
        """Takes over and replays the metadata log, and then begins to decide as the controller.

        If this fails, the next poll of the cluster tries again.
        """
        lease = self.membership.controller
        shard = self.control.shard
        if lease is None:
            return
        try:
            if self.log.controller_epoch != lease.epoch:
                self.log.adopt([Leadership(METADATA, lease.epoch)])
        except LogError as error:
            logger.warning(
                "cluster: node %d, the controller in epoch %d, cannot take over the metadata log: %s; the node tries "
                "again; if this repeats, check the cluster's store",
                self.config.node_id,
                lease.epoch,
                error,
            )
            return
        if not self.follower.catch_up() or shard.state is not ShardState.ACTIVE:
            return
        shard.leader_epoch = lease.epoch
        self._deciding = True
        shard.perform(shard.machine.take_over)

    def when_fenced(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once when this registration of the node has ended.

        The process then registers again, or ends.
        """
        if self.membership.fenced:
            callback()
        else:
            self._on_fenced = callback

    def _fenced(self) -> None:
        """Stops serving, because this registration of the node has ended."""
        self._deciding = False
        self.leadership.give_up_all()
        callback, self._on_fenced = self._on_fenced, None
        if callback is not None:
            callback()

    # ---- requests

    def submit(self, context: RequestContext, request: Any) -> Any:
        """Handles a request like `Engine.submit`, if this node's lease is valid before and after the call.

        If the lease is not valid, refuses the request with a retriable error.
        """

        def decide(context: RequestContext, request: Any) -> Any:
            return super(ClusterEngine, self).submit(context, request)

        return self._guard.decide(self.apis[request.API_KEY], decide, context, request)

    def guard(self, api: Api[Any, Any]) -> Guard:
        """Returns the functions that a server calls to handle requests of `api`, with the checks of `submit`."""
        return self._guard.guard(api)

    def send(self, node_id: int, request: Any, version: int, done: Callable[[Any | None], None]) -> None:
        """Sends a request to another node; see `Peers`."""
        self.peers.send(node_id, request, version, done)

    # ---- the end

    def hand_over(self, done: Callable[[], None]) -> None:
        """Hands all partitions over to other nodes before this node stops. The node still serves requests meanwhile.

        Args:
            done: called once when this node can stop: it leads no partition any more, no other node can lead one, or
                its lease has ended.
        """
        NodeHandover(self.membership, self.cluster, self, self.wheel, done).send()

    def close(self) -> None:
        """Stops the node: commits the open round, ends the registration, and closes the log."""
        self.membership.stop()
        try:
            self.commit()
            self.store.unregister(self.membership.lease)
        except LogError as error:
            logger.warning(
                "cluster: node %d ends without unregistering: %s; other nodes take over its partitions when its lease "
                "expires",
                self.config.node_id,
                error,
            )
        finally:
            try:
                super().close()
            finally:
                self.store.close()

    def abandon(self) -> None:
        """Stops the node without a commit, like a crash; the controller fences this node when its lease expires."""
        self.membership.stop()
        try:
            super().abandon()
        finally:
            self.store.close()
