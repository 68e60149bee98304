"""The controller: registers and fences nodes, and places the leaders of partitions.

The controller writes each decision as a batch to the metadata log. The cluster's store changes the leaders in the
transaction that stores the batch. If the controller fails, the next controller continues from the metadata log.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from kcore.broker.cluster.balance import Move, Placement
from kcore.broker.metadata.brokers import (
    SECURITY_PROTOCOLS,
    BrokerRegistration,
    ListenerAddress,
    fencing_record,
    leader_record,
    successor_record,
)
from kcore.log.errors import FencedWriteError, LogError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcore.broker.cluster.membership import ClusterState, Membership, Runner
    from kcore.broker.metadata.image import MetadataImage
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.cluster.store import ClusterStore, RegisteredNode
    from kcore.runtime.machine import Outcome, Record
    from kcore.runtime.shard import Shard

logger = logging.getLogger(__name__)

URGENT_MOVES: Final = 2_000
"""Maximum number of partitions without a live leader that one decision moves."""
GENTLE_MOVES: Final = 20
"""Maximum number of planned moves at the same time. The limit exists because each move makes the next leader load a
log.
"""


class Controller:
    """The decisions that a node takes while it is the controller.

    Args:
        shard: the metadata shard.
        store: fences nodes.
        membership: this node's leases.
        run: runs calls of the store.

    Attributes:
        failovers: the number of partitions that were moved because their leader was not alive.
        balanced: the number of planned moves: for balance, or because a node is draining or stops.
        stopping: the nodes that are stopping, with their epochs. Their partitions move to other nodes.
        even: True to spread the leaders evenly at all times; False to spread them only after a call of `rebalance`.
    """

    __slots__ = (
        "_fencing",
        "_membership",
        "_rebalancing",
        "_shard",
        "_store",
        "balanced",
        "even",
        "failovers",
        "run",
        "stopping",
    )

    def __init__(self, shard: Shard[MetadataMachine], store: ClusterStore, membership: Membership, run: Runner) -> None:
        self._shard = shard
        self._store = store
        self._membership = membership
        self.run = run
        self._fencing: set[int] = set()
        self._rebalancing = False
        self.stopping: dict[int, int] = {}
        self.even = True
        self.failovers = 0
        self.balanced = 0

    def react(self, state: ClusterState) -> None:
        """Decides the registrations, fencings and moves that the state of the nodes requires.

        Called after each poll while this node is the controller."""
        if not self._membership.is_controller():
            return
        if self._membership.is_steady():
            for node in state.nodes:
                if not node.fenced and not node.lease.remaining_ms:
                    self._fence(node)
        self._shard.perform(lambda: self._decide(state.nodes))

    def rebalance(self) -> None:
        """Spreads the leaders evenly once, even if automatic balancing (`even`) is off."""
        self._rebalancing = True
        self._membership.refresh_soon()

    def stop(self, node_id: int, epoch: int) -> bool:
        """Registers that a node is stopping.

        Returns True if the node may stop now, because it has no partition to hand over.
        """
        if self.stopping.get(node_id) != epoch:
            self.stopping[node_id] = epoch
            self._membership.refresh_soon()
        image = self._shard.machine.image
        others = [node for node, broker in image.brokers.items() if not broker.fenced and self._may_lead(node)]
        return not others or not any(node_id in image.leading_nodes(topic.topic_id) for topic in image.all())

    def _may_lead(self, node_id: int) -> bool:
        """Returns True if a node may lead further partitions, because it is neither draining nor stopping."""
        broker = self._shard.machine.image.brokers[node_id]
        return not broker.draining and self.stopping.get(node_id) != broker.epoch

    def _fence(self, node: RegisteredNode) -> None:
        """Starts to fence a node whose lease has expired, unless the fencing of this node is already under way.

        The store stores the change. This node sees the change at its next poll of the cluster.
        """
        node_id = node.node_id
        if node_id in self._fencing:
            return
        self._fencing.add(node_id)
        controller = self._membership.controller

        def done(result: bool | LogError) -> None:
            self._fencing.discard(node_id)
            if isinstance(result, FencedWriteError):
                if self._membership.controller == controller and controller is not None:
                    self._membership.resign_controller()
            elif isinstance(result, LogError):
                logger.warning(
                    "controller: cannot fence node %d: %s; the controller tries again at its next poll of the "
                    "cluster's store; if this repeats, check the store",
                    node_id,
                    result,
                )
            elif result:
                logger.warning(
                    "controller: fenced node %d, because its lease has expired; other nodes take over its partitions; "
                    "unless the node was stopped on purpose, check or restart it; a node that still runs registers "
                    "again when it reaches the cluster's store",
                    node_id,
                )
                self._membership.refresh_soon()

        try:
            self.run(lambda: self._store.fence(node.lease, controller), done)
        except BaseException:
            self._fencing.discard(node_id)  # the call was not started: the next poll tries again
            raise

    def _decide(self, nodes: list[RegisteredNode]) -> Outcome | None:
        """Decides which nodes are registered or fenced in the metadata, and which partitions move next.

        Returns:
            The records of these changes; None if there are no changes.
        """
        machine = self._shard.machine
        image = machine.image
        records: list[Record] = []
        alive: set[int] = set()
        registered = {node.node_id: node for node in nodes}
        for node_id, broker in image.brokers.items():
            node = registered.get(node_id)
            if node is not None and not node.fenced and node.lease.epoch == broker.epoch:
                alive.add(node_id)
            elif not broker.fenced:
                records.append(fencing_record(broker, fenced=True))
                if node is not None and not node.fenced and node.lease.remaining_ms:
                    logger.info(
                        "controller: node %d has started again; its broker epoch is now %d, and was %d",
                        *(node_id, node.lease.epoch, broker.epoch),
                    )
                else:
                    # The node was stopped, or an earlier line about its lease has the advice.
                    logger.info(
                        "controller: node %d (broker epoch %d) has ended; other nodes take over its partitions",
                        *(node_id, broker.epoch),
                    )
        targets = {
            node_id
            for node_id in alive
            if not registered[node_id].draining
            and registered[node_id].lease.remaining_ms
            and self.stopping.get(node_id) != registered[node_id].lease.epoch
        }
        placement = Placement(image, targets)
        moves = list(islice(placement.leaderless(alive), URGENT_MOVES))
        self.failovers += len(moves)
        moves += placement.cancelled_plans(alive)
        if not moves:
            joined = self._joined(machine, nodes, _leading(image))
            records += joined
            if not joined:
                records += self._planned(placement)
        records += self._move_records(moves)
        return machine.outcome(records) if records else None

    def _planned(self, placement: Placement) -> list[Record]:
        """Makes the records of new planned moves. At most `GENTLE_MOVES` moves are under way at the same time."""
        image = self._shard.machine.image
        room = GENTLE_MOVES - sum(map(len, image.successors.values()))
        if room <= 0:
            return []
        moves = [*islice(placement.drained(), room)]
        if self.even or self._rebalancing:
            moves += islice(placement.evened(), room - len(moves))
            self._rebalancing = self._rebalancing and bool(moves)
        self.balanced += len(moves)
        records = []
        for topic, partition, successor, _ in moves:
            before = image.leader(topic.topic_id, partition)
            records.append(successor_record(topic.topic_id, partition, successor))
            logger.info(
                "controller: partition %s-%d is planned to move from node %d to node %d",
                topic.name,
                partition,
                -1 if before is None else before.node_id,
                successor,
            )
        return records

    def _joined(self, machine: MetadataMachine, nodes: list[RegisteredNode], leading: set[int]) -> list[Record]:
        """Makes the records that register new or changed live nodes.

        The controller registers a new incarnation only after the node's partitions have been moved away. So the new
        incarnation never takes over a partition in a leader epoch of an earlier incarnation.
        """
        records = []
        for node in nodes:
            known = machine.image.brokers.get(node.node_id)
            if node.fenced or not node.lease.remaining_ms:
                continue
            same = known is not None and known.epoch == node.lease.epoch
            if not same and node.node_id in leading:
                continue
            registration = _registration(node)
            if known != registration:
                records.append(registration.record())
                logger.info("controller: registered node %d with broker epoch %d", node.node_id, node.lease.epoch)
        return records

    def _move_records(self, moves: Iterable[Move]) -> list[Record]:
        image = self._shard.machine.image
        records = []
        for topic, partition, leader, replicas in moves:
            before = image.leader(topic.topic_id, partition)
            previous_replicas = image.replicas[topic.topic_id][partition]
            records.append(
                leader_record(topic.topic_id, partition, leader, None if replicas == previous_replicas else replicas)
            )
            logger.info(
                "controller: partition %s-%d moves from node %d to node %d",
                *(topic.name, partition, -1 if before is None else before.node_id, leader),
            )
        return records


def _leading(image: MetadataImage) -> set[int]:
    """Returns the nodes that lead partitions."""
    return set().union(*(image.leading_nodes(topic.topic_id) for topic in image.all()))


def _registration(node: RegisteredNode) -> BrokerRegistration:
    """Returns the registration of a live node for the metadata log."""
    addresses = tuple(
        ListenerAddress(end.listener, end.host, end.port, SECURITY_PROTOCOLS.get(end.protocol, 0))
        for end in node.description.endpoints
    )
    return BrokerRegistration(
        node.node_id, node.lease.epoch, addresses, node.description.rack, fenced=False, draining=node.draining
    )
