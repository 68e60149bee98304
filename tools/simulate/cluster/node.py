"""A simulated node of a cluster: registers, opens its engine over the shared store, and is fenced."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kcore.broker.cluster.membership import Timing
from kcore.cluster.memory_store import MemoryClusterStore
from kcore.cluster.store import Endpoint, Lease, NodeDescription
from kcore.cluster_engine import ClusterEngine
from kcore.log.errors import LogError, NodeAliveError, StoreUnavailableError
from kcore.server.dispatch import Dispatch
from tools.simulate.channel import Channel
from tools.simulate.network import Network
from tools.simulate.node import LISTENER, Node

if TYPE_CHECKING:
    from tools.simulate.cluster.world import ClusterWorld

TIMING: Final = Timing()
RETRY_MS: Final = 300
PEER_TIMEOUT_MS: Final = 10_000


class _NodeLog:
    """The part of a `Store` that a node of a cluster needs. Closing it keeps the shared store open."""

    disturbed = True
    log = None

    def __init__(self, node: ClusterSimNode) -> None:
        self._node = node

    def crash(self, power: bool) -> None:
        """Ends the process without unregistering."""
        self._node.abandon()


class SimulatedPeers:
    """The `Peers` of one registration of a node, over the simulated network."""

    def __init__(self, node: ClusterSimNode) -> None:
        self._node = node
        self._channels: dict[int, Channel] = {}

    def send(self, node_id: int, request: Any, version: int, done: Callable[[Any | None], None]) -> None:
        """Implements `Peers.send`."""
        node = self._node
        other = node.world.nodes.get(node_id)
        if other is None:
            node.kernel.after(1, node.inside, done, None)
            return
        channel = self._channels.get(node_id)
        if channel is None:
            channel = self._channels[node_id] = Channel(node.world, f"node{node.node_id}", other.network)

        def arrived(result: Any) -> None:
            if node.peers is self and not channel.closed:
                node.inside(done, None if isinstance(result, Exception) else result)

        channel.send(request, arrived, version, timeout_ms=PEER_TIMEOUT_MS)

    def cut(self) -> None:
        """Cuts the connections to the other nodes."""
        for channel in self._channels.values():
            channel.cut()

    def close(self) -> None:
        """Closes the connections when the process ends."""
        for channel in self._channels.values():
            channel.close()


class ClusterSimNode(Node):
    """One node of a cluster. Its calls of the store take time, and its requests to other nodes use the simulated
    network.

    Attributes:
        node_id: the id of the node in the cluster.
        stopped: True while it must not start again.
    """

    engine: ClusterEngine

    def __init__(
        self,
        world: ClusterWorld,
        node_id: int,
        network: Network,
        settings: dict[str, str],
        choice: random.Random,
        trace: Callable[[str], None],
    ) -> None:
        log: Any = _NodeLog(self)
        super().__init__(world.kernel, network, log, {**settings, "node.id": str(node_id)}, choice, trace)
        self.world = world
        self.node_id = node_id
        self.clock = world.clock
        self.peers = SimulatedPeers(self)
        self._cluster_store: MemoryClusterStore | None = None
        self._opened: ClusterEngine | None = None
        self._store_free_ms = 0
        self.starting = False

    def start(self) -> None:
        """Starts the process, which registers the node and opens its engine."""
        self._life += 1
        self.starts += 1
        self.starting = True
        self.trace(f"start node {self.node_id} {self.starts}")
        self._cluster_store = MemoryClusterStore(self.world.cluster)
        self._register()

    def _again(self, call: Callable[..., None], *arguments: Any) -> None:
        """Repeats a step of the start after a delay."""
        life = self._life

        def repeat() -> None:
            if life == self._life and self.starting:
                call(*arguments)

        self.kernel.after(RETRY_MS, repeat)

    def _register(self) -> None:
        assert self._cluster_store is not None, "the process has started"
        register_sent_ms = self.kernel.now_ms
        endpoint = Endpoint(LISTENER, "PLAINTEXT", f"node{self.node_id}", 9092)
        try:
            lease = self._cluster_store.register(self.node_id, NodeDescription((endpoint,), None), TIMING.ttl_ms)
        except (NodeAliveError, StoreUnavailableError):
            self._again(self._register)
            return
        self._open(lease, register_sent_ms)

    def _open(self, lease: Lease, register_sent_ms: int) -> None:
        store = self._cluster_store
        assert store is not None, "the process has started"
        try:
            engine = ClusterEngine(
                store, lease, register_sent_ms, self._config, self.clock, self.new_uuid, timing=TIMING
            )
        except StoreUnavailableError:
            self._again(self._renew, lease, register_sent_ms)
            return
        except LogError as error:
            self.trace(f"node {self.node_id} cannot open: {type(error).__name__}")
            self._died(power=False)
            return
        self.starting = False
        self.engine = self._opened = engine
        self.peers = SimulatedPeers(self)
        engine.use(run=self._beside, peers=self.peers)
        engine.slices.requests.enabled = True
        engine.consumer_groups.background = self._compute
        engine.pipeline.when_dirty(self.open_round)
        self.dispatch = Dispatch(engine)
        self.running = True
        self.network.accept = self._accept
        life = self._life
        engine.when_fenced(lambda: self.kernel.after(0, self._fenced, life))
        store.listen(lambda: self.kernel.after(self.choice.randrange(3), self._notified, life))
        self.trace(f"node {self.node_id} serves in epoch {lease.epoch}")
        self.open_round()
        for callback in self.on_start:
            callback()

    def _renew(self, lease: Lease, register_sent_ms: int) -> None:
        """Renews the node's lease and opens the engine. Registers again if the store does not renew the lease."""
        assert self._cluster_store is not None, "the process has started"
        sent_ms = self.kernel.now_ms
        try:
            [renewed] = self._cluster_store.renew([lease], TIMING.ttl_ms)
        except StoreUnavailableError:
            self._again(self._renew, lease, register_sent_ms)
            return
        if renewed:
            self._open(lease, sent_ms)
        else:
            self._register()

    def _notified(self, life: int) -> None:
        if life == self._life and self.running:
            self.inside(self.engine.membership.refresh)

    def _fenced(self, life: int) -> None:
        """Ends the process of a fenced registration, as the server does. A paused process ends when it continues."""
        if life == self._life and self.running:
            if self.kernel.now_ms < self.paused_until_ms:
                self.kernel.at(self.paused_until_ms, self._fenced, life)
                return
            self.trace(f"node {self.node_id} was fenced")
            self._died(power=False)

    def _beside(self, call: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Runs the calls of the store one at a time, as a thread would. A call may take effect after the process
        died.
        """
        kernel = self.kernel
        start_ms = max(kernel.now_ms, self._store_free_ms) + self.choice.randrange(self.world.store_ms + 1)
        end_ms = self._store_free_ms = start_ms + self.choice.randrange(self.world.store_ms + 1)
        life = self._life

        def run() -> None:
            try:
                result = call()
            except LogError as error:
                result = error
            if life == self._life and self.running:
                self._later(end_ms, self.inside, done, result)

        kernel.at(start_ms, run)

    def abandon(self) -> None:
        """Ends the engine as a crash does."""
        self.starting = False
        self.peers.close()
        engine, self._opened = self._opened, None
        if engine is not None:
            engine.abandon()
        elif self._cluster_store is not None:
            self._cluster_store.close()

    def _died(self, power: bool) -> None:
        self._store_free_ms = 0
        self.paused_until_ms = 0
        super()._died(power)

    def _restart(self) -> None:
        if not self.running and not self.starting and not self.world.over:
            self.start()

    def roll(self) -> None:
        """Ends the process in an orderly way, and starts it again."""
        if not self.running:
            return
        self.trace(f"node {self.node_id} ends in order")
        with suppress(LogError):
            self.engine.close()
        self._opened = None
        self._died(power=False)

    def stop(self) -> None:
        """Ends the process permanently, as a clean shutdown does."""
        if self.running:
            self.running = False
            self._life += 1
            self.network.accept = None
            self.peers.close()
            with suppress(LogError):
                self.engine.close()
            self._opened = None
