"""A node over a data folder, and a model of its logs, for tests that interrupt the node at any point."""

from __future__ import annotations

from pathlib import Path

from kcore.cluster.store import METADATA, ClusterStore
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.storage import Leadership
from tests.cluster.conftest import CLUSTER_ID, TTL_MS, description
from tests.faults.log_model import PARTITIONS, Subject
from tests.log.batches import batch, key
from tests.processes.shared import CLUSTER_ID_META, LocalShared

CONTROLLER = 1
NODE = 2


class SharedSubject(Subject):
    """Node 2 of a cluster, to which the controller assigns partitions. Each time the node opens its log again, it
    registers as a new incarnation.
    """

    def __init__(self, folder: Path, reopen_every: int = 1) -> None:
        self.shared = LocalShared(folder)
        store, lease, self.controller = self.shared.node(CONTROLLER)
        taken = store.take_controller(lease, TTL_MS)
        assert taken is not None
        self.controller.adopt([Leadership(METADATA, taken.epoch)])
        self._epoch = 0
        self._record()
        for number in range(PARTITIONS):
            self.controller.create(key(number), CONTROLLER, 0)
        self.controller.commit()
        self.store: ClusterStore | None = None
        super().__init__(None, reopen_every)
        self.state.metas[CLUSTER_ID_META] = CLUSTER_ID.encode()

    def _record(self) -> None:
        self.controller.open(METADATA).append(batch(), self.controller.controller_epoch)

    def move(self, leader: int) -> list[Leadership]:
        """Gives all partitions to a node, in a new epoch."""
        self._record()
        for number in range(PARTITIONS):
            self.controller.move(key(number), leader, self._epoch + 1, self._epoch)
        self.controller.commit()
        self._epoch += 1
        return [Leadership(key(number), self._epoch) for number in range(PARTITIONS)]

    def open(self) -> SharedLogEngine:
        """Registers the next incarnation, as after a crash of the earlier one, and makes it the leader of all
        partitions.
        """
        if self.store is not None:
            self.store.close()
        self.store = self.shared.open()
        self.store.register(NODE, description(NODE), TTL_MS)
        engine = SharedLogEngine(self.store.storage(), tail_size_bytes=2_000)
        engine.adopt(self.move(NODE))
        return engine

    def close(self) -> None:
        super().close()
        self.shared.close()
