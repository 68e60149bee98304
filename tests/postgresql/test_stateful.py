"""Compares the log engine over PostgreSQL with the model of `tests/log`: random operations, failing commits,
restarts.
"""

from __future__ import annotations

import copy
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from kcore.cluster.store import METADATA, Lease
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.storage import Leadership
from tests.cluster.conftest import TTL_MS, description
from tests.cluster.test_shared_engine import record
from tests.log.batches import key
from tests.log.test_stateful import LogMachine, Model, ModelPartition
from tests.postgresql.shared import PostgresShared

PARTITIONS = range(4)


class ClusterLogMachine(LogMachine):
    """One node that is the controller and leads four partitions. Only the controller may create or drop them."""

    shared: ClassVar[PostgresShared]
    begun: ClassVar[int] = 0
    """Number of random test runs of Hypothesis that have begun so far."""

    @initialize()
    def begin(self) -> None:
        ClusterLogMachine.begun += 1
        self.shared.reset()
        self.store = self.shared.open()
        self.engine = self.open()
        record(self.engine)
        for number in PARTITIONS:
            self.engine.create(key(number), 1, 0)
        self.engine.commit()
        self.adopt()
        self.committed = Model({number: ModelPartition() for number in PARTITIONS})
        self.staged = copy.deepcopy(self.committed)
        self.in_flight = None
        self.openings = 0

    def open(self) -> SharedLogEngine:
        lease = self.store.register(1, description(), TTL_MS)
        self.lease: Lease = lease
        controller = self.store.take_controller(lease, TTL_MS)
        assert controller is not None
        engine = SharedLogEngine(self.store.storage(), tail_size_bytes=500)
        engine.adopt([Leadership(METADATA, controller.epoch)])
        return engine

    def adopt(self) -> None:
        epochs = {row.key: row.leader_epoch for row in self.store.leaders()}
        self.engine.adopt([Leadership(key(number), epochs[key(number)]) for number in PARTITIONS])

    # These rules do not apply to a cluster.
    def create(self, partition: int) -> None: ...

    def drop(self, partition: int) -> None: ...

    @rule()
    def restart(self) -> None:
        """Starts a new incarnation, to which the controller gives the partitions again."""
        self.engine.close()
        self.in_flight = None
        self.staged = copy.deepcopy(self.committed)
        self.engine = self.open()
        record(self.engine)
        for row in self.store.leaders():
            if row.key != METADATA:
                self.engine.move(row.key, 1, row.leader_epoch + 1, row.leader_epoch)
        self.engine.commit()
        self.adopt()
        assert not self.engine.dirty
        self.readers_see_the_committed_model()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


OPTIONS = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(
    ("examples", "steps"), [(6, 30), pytest.param(40, 50, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_random_operations_match_the_model(reused_url: str, examples: int, steps: int) -> None:
    ClusterLogMachine.shared = PostgresShared(reused_url)
    run_state_machine_as_test(
        ClusterLogMachine, settings=settings(OPTIONS, max_examples=examples, stateful_step_count=steps)
    )
    ClusterLogMachine.shared.close()
    assert ClusterLogMachine.begun >= examples
