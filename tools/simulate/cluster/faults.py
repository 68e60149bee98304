"""The faults of a cluster: nodes die, pause or lose their connection to the store, the store does not respond, and
nodes are drained.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kcore.cluster.memory_store import MemoryClusterStore
from kcore.log.errors import StoreUnavailableError, UnknownOutcomeError
from tools.simulate.cluster.node import TIMING, ClusterSimNode
from tools.simulate.faults import cut_all, restart_clients
from tools.simulate.plan import Fault

if TYPE_CHECKING:
    from tools.simulate.cluster.world import ClusterWorld

FAILOVER_MS: Final = 2 * TIMING.ttl_ms + 6_000
"""Time in ms that the other nodes need to fence a failed node and take over the partitions that it led."""
ALL: Final = 0


class StoreFaults:
    """A fault injector that makes the nodes' calls to the store fail.

    Args:
        world: the simulation.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._choice = world.random("store")
        self._cut: dict[int, tuple[int, float]] = {}  # node, or ALL -> the end of its cut, and the rate of failures
        self.unknown = 0.0

    def cut(self, node_id: int, until_ms: int, rate: float) -> None:
        """Makes some of a node's calls fail until a given time. A failed call may have taken effect."""
        self._cut[node_id] = until_ms, rate

    def end(self) -> None:
        """Ends all failures."""
        self._cut.clear()
        self.unknown = 0.0

    def __call__(self, operation: str, node_id: int, stored: bool) -> None:
        """Implements `Interceptor`."""
        self._world.cluster_checks.intercepted(operation, node_id, stored)
        now_ms = self._world.kernel.now_ms
        for key in (node_id, ALL):
            until_ms, rate = self._cut.get(key, (0, 0.0))
            if now_ms < until_ms and self._choice.random() < rate:
                self._fail(operation, node_id)
        if operation == "write" and self.unknown and self._choice.random() < self.unknown:
            self._fail(operation, node_id)

    def _fail(self, operation: str, node_id: int) -> None:
        self._world.trace(f"the store fails in {operation}")
        if operation == "write":  # its requests get an error, and may be durable
            self._world.nodes[node_id].uncertain_ms = self._world.kernel.now_ms
            raise UnknownOutcomeError("simulated: the connection was lost")
        raise StoreUnavailableError("simulated: the store cannot be reached")


def inject_cluster_fault(world: ClusterWorld, fault: Fault) -> None:
    """Injects a fault, unless all faults have already ended."""
    if world.calm:
        return
    choice = random.Random(fault.value)
    node = choice.choice(list(world.nodes.values()))
    world.trace(f"fault {fault.kind} {node.node_id}")
    world.trouble(FAILOVER_MS)
    kind = fault.kind
    if kind in ("restart client", "roll clients"):
        restart_clients(world, choice, rolling=kind == "roll clients")
    elif kind == "cut all":
        for each in world.nodes.values():
            cut_all(each.network, choice)
    elif kind in ("cut store", "store outage", "unknown outcomes", "slow store"):
        _disturb_store(world, choice, kind, node)
    else:
        _disturb_node(world, choice, kind, node)


def _disturb_store(world: ClusterWorld, choice: random.Random, kind: str, node: ClusterSimNode) -> None:
    duration_ms = choice.choice([300, 3_000, 12_000, 25_000])
    world.trouble(duration_ms + FAILOVER_MS)
    until_ms = world.kernel.now_ms + duration_ms
    if kind == "cut store":
        world.store_faults.cut(node.node_id, until_ms, choice.choice([0.5, 1.0]))
    elif kind == "store outage":
        world.store_faults.cut(ALL, until_ms, choice.choice([0.5, 1.0]))
    elif kind == "unknown outcomes":
        world.store_faults.unknown = choice.choice([0.02, 0.2])
        world.kernel.at(until_ms, setattr, world.store_faults, "unknown", 0.0)
    else:
        world.store_ms = choice.choice([20, 400])
        world.kernel.at(until_ms, setattr, world, "store_ms", 1)


def _disturb_node(world: ClusterWorld, choice: random.Random, kind: str, node: ClusterSimNode) -> None:
    kernel = world.kernel
    if kind == "kill node":
        node.crash()
    elif kind == "pause node":
        duration_ms = choice.choice([300, 4_000, 9_000, 20_000])
        node.paused_until_ms = kernel.now_ms + duration_ms
        world.trouble(duration_ms + FAILOVER_MS)
    elif kind == "drain node":
        drain(world, node.node_id, True)
        kernel.after(choice.choice([1_000, 8_000]), drain, world, node.node_id, False)
    elif kind == "roll node":
        node.inside(node.roll)
    elif kind == "roll nodes":
        for number, each in enumerate(world.nodes.values()):
            kernel.after(number * choice.choice([2_000, 6_000]), each.inside, each.roll)
    else:
        node.peers.cut()


def drain(world: ClusterWorld, node_id: int, draining: bool) -> None:
    """Starts or ends the drain of a node, which moves all partition leaders to other nodes.

    If the store is unavailable, retries the end of a drain, but not the start.
    """
    store: Any = MemoryClusterStore(world.cluster)
    try:
        store.set_draining(node_id, draining)
    except StoreUnavailableError:
        if not draining:
            world.kernel.after(500, drain, world, node_id, draining)
