"""Random failures, pauses and drains of nodes over a data folder: no acknowledged write is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.test_random import Attack
from tests.processes.world import LocalWorld
from tests.seeds import SEED


class LocalAttack(Attack):
    """Random faults for nodes over a data folder. The connection to this store cannot be cut, so nodes are killed
    instead.
    """

    def cut(self) -> None:
        """Kills a node and starts it again at once, in place of a cut connection."""
        self.kill()
        self.start()


@pytest.mark.seeded
@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, 6))])
def test_random_faults_lose_no_acknowledged_write(number: int, tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    attack = LocalAttack(SEED + number, world)
    attack.run()
    assert attack.records or attack.offsets, "the attack stored records or offsets, which `verify` has compared"
    engine = world.shared.closed_engine()  # one process reads all logs
    assert engine.verify(deep=True) == []
    engine.close()
