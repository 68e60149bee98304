"""A shard reads the log of another node's partition in advance. When its own node becomes the leader, the loading shard
continues with this state.
"""

from __future__ import annotations

import pytest

from kcore.runtime import loader
from kcore.runtime.shard_state import ShardState
from tests.runtime.machines import Bench

ADDS = 12


@pytest.mark.parametrize("slices_before", [0, 1, 2, 100])
def test_the_load_continues_wherever_the_read_ahead_was_ended(
    monkeypatch: pytest.MonkeyPatch, slices_before: int
) -> None:
    """The loading shard continues at the offset where reading ahead has ended, even if no slice of it has run.

    From then on, reading ahead must not change the state of the loading shard.
    """
    monkeypatch.setattr(loader, "SLICE_RECORDS", 3)
    bench = Bench(max_batch_bytes=200)
    for _ in range(ADDS):
        bench.run("add", "a", 1)
        bench.pipeline.commit()
    ahead, shard = bench.make(0), bench.make(0)
    ahead.read_ahead(ahead.log)
    for _ in range(slices_before):
        bench.slices.step()
    bench.run("add", "a", 1)
    bench.pipeline.commit()
    shard.continue_from(ahead)
    shard.load()
    starts = []
    runs = shard.log.runs

    class Counted:
        def __init__(self, inner: object) -> None:
            self.inner = inner

        def runs(self, start: int | None = None) -> object:
            starts.append(start or 0)
            return runs(start)

    shard._log = Counted(shard.log)
    bench.slices.finish()
    assert shard.state is ShardState.ACTIVE
    assert shard.machine.counts == bench.shard.machine.counts == {"a": ADDS + 1}
    assert shard.report.records == ADDS + 1, "each record was replayed once"
    assert starts == [shard.report.read_ahead]
    assert (starts[0] > 0) == (slices_before > 0)
