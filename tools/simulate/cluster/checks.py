"""The checkers of a cluster: leaders, writes of fenced nodes, and the metadata on all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.cluster.store import METADATA
from kcore.log.batch_header import base_offset
from kcore.log.interface import PartitionKey
from kcore.runtime import ShardState
from tools.simulate.checkers.checks import Checks
from tools.simulate.checkers.failure import SimulationFailure
from tools.simulate.checkers.observer import Observer

if TYPE_CHECKING:
    from tools.simulate.cluster.node import ClusterSimNode
    from tools.simulate.cluster.world import ClusterWorld


class ClusterObserver(Observer):
    """A view of the memory of all nodes' engines."""

    def __init__(self, world: ClusterWorld) -> None:
        super().__init__(world)
        self._cluster = world

    def at_rest(self) -> bool:
        """Returns True if every node runs, and no node has uncommitted or unloaded state."""
        return all(self._node_at_rest(node) for node in self._cluster.nodes.values())

    def _node_at_rest(self, node: ClusterSimNode) -> bool:
        if not node.running or node.kernel.now_ms < node.paused_until_ms:
            return False
        engine = node.engine
        pipeline = engine.pipeline
        if pipeline.dirty or pipeline.committing or engine.loading or engine.slices or engine.pipeline.uncertain:
            return False
        if engine.membership.fenced or any(partition.recovering for partition in engine.partitions):
            return False
        owned = (engine.groups, engine.transactions.shards or ())
        return all(shard.state is ShardState.ACTIVE for shards in owned for shard in shards)


class ClusterChecks(Checks):
    """The checks of one simulation of a cluster."""

    def __init__(self, world: ClusterWorld) -> None:
        super().__init__(world)
        self._cluster = world
        self._leaders: dict[tuple[PartitionKey, int], int] = {}  # partition and epoch -> the only leader
        self._incarnations: dict[tuple[PartitionKey, int], int] = {}  # partition and epoch -> its leader's registration
        self._writer = -1
        self._broken: SimulationFailure | None = None  # found within a commit, which handles every exception

    def regular(self) -> None:
        """Runs the cheap checks. The simulation calls this method periodically."""
        if self._broken is not None:
            raise self._broken
        super().regular()
        self._check_leaders()
        self._check_incarnations()

    def replay(self) -> None:
        """Does nothing, because the nodes of a cluster replay the logs of other nodes all the time."""

    def _check_leaders(self) -> None:
        """Checks that a partition has one leader in each epoch, and that no node leads in a later epoch than
        the epoch in the store.
        """
        rows = self._cluster.cluster.rows
        for key, row in rows.items():
            if row.leader >= 0:
                self._note_leader(key, row.leader_epoch, row.leader)
        for node in self._cluster.nodes.values():
            if not node.running:
                continue
            for key, (topic, epoch) in node.engine.leadership.led.items():
                row = rows.get(key)
                if row is None:
                    continue  # the partition was deleted
                self.require(
                    epoch <= row.leader_epoch,
                    "leaders",
                    f"node {node.node_id} leads {topic}-{key.partition} in epoch {epoch}, after {row.leader_epoch}",
                )
                self._note_leader(key, epoch, node.node_id)

    def _check_incarnations(self) -> None:
        """Checks that no incarnation of a node leads a partition in the epoch of an earlier incarnation.

        An incarnation is one registration of a node. The check reads the metadata image of the controller, but only
        while the controller has no uncommitted changes.
        """
        for node in self._cluster.nodes.values():
            if not node.running or not node.engine.decides():
                continue
            pipeline = node.engine.pipeline
            if pipeline.dirty or pipeline.committing or pipeline.uncertain:
                continue
            image = node.engine.topics.image
            for key, row in self._cluster.cluster.rows.items():
                leader, epoch = (None if key == METADATA else image.leader(key.topic_id, key.partition)) or (-1, -1)
                if leader not in image.brokers or (leader, epoch) != (row.leader, row.leader_epoch):
                    continue
                registered = image.brokers[leader].epoch
                known = self._incarnations.setdefault((key, epoch), registered)
                self.require(
                    known == registered,
                    "leaders",
                    f"node {leader} leads {key} in epoch {epoch} in its incarnations {known} and {registered}",
                )

    def _note_leader(self, key: PartitionKey, epoch: int, node_id: int) -> None:
        known = self._leaders.setdefault((key, epoch), node_id)
        self.require(known == node_id, "leaders", f"{key} has the leaders {known} and {node_id} in epoch {epoch}")

    # ---- writes

    def intercepted(self, operation: str, node_id: int, stored: bool) -> None:
        """Records the node whose write set is the next one to reach the store."""
        if operation == "write":
            self._writer = node_id

    def check_write(self, write_set: Any) -> None:
        """Checks a write set just before the store writes it. The next `regular` call raises a violation."""
        try:
            self._check_write(write_set)
        except SimulationFailure as failure:
            self._broken = self._broken or failure

    def _check_write(self, write_set: Any) -> None:
        cluster, writer = self._cluster.cluster, self._writer
        node = cluster.nodes.get(writer)
        self.require(node is not None and node.session > 0, "fenced", f"node {writer} is fenced, and writes")
        for sealed in write_set.partitions:
            row, epoch = cluster.rows.get(sealed.key), sealed.log.owned_epoch
            self.require(
                row is not None and (row.leader, row.leader_epoch) == (writer, epoch),
                "fenced",
                f"node {writer} writes to {sealed.key} in epoch {epoch}",
            )
            stored = cluster.data.look_up(sealed.key)
            if sealed.batches and stored is not None:
                first = base_offset(sealed.batches[0])
                self.require(
                    first == stored.end_offset,
                    "log format",
                    f"node {writer} writes {sealed.key}@{first} after {stored.end_offset}",
                )

    # ---- the end

    def unrest(self) -> str | None:
        """Returns the difference between the nodes' views of the cluster, or None if the views agree with the store."""
        rows = self._cluster.cluster.rows
        nodes = self._cluster.nodes
        led: dict[PartitionKey, tuple[int, int]] = {}
        for node in nodes.values():
            image = node.engine.topics.image
            for key, (_, epoch) in node.engine.leadership.led.items():
                led[key] = node.node_id, epoch
            for key, row in rows.items():
                leader = None if key == METADATA else image.leader(key.topic_id, key.partition)
                if key != METADATA and (leader is None or tuple(leader) != (row.leader, row.leader_epoch)):
                    return f"node {node.node_id} has leader {leader} of {key}, the store {row.leader}"
        for key, row in rows.items():
            if key != METADATA and led.get(key) != (row.leader, row.leader_epoch):
                return f"{key} has no leader that serves it"
        for node_id, stored in self._cluster.cluster.nodes.items():
            if stored.draining or stored.session == 0:
                return f"node {node_id} is fenced or draining"
        counts = [sum(row.leader == node_id for row in rows.values()) for node_id in nodes]
        if min(counts) == 0:
            return f"the nodes lead {counts} partitions"
        return None
