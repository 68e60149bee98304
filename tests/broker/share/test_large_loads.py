"""The loads of share partitions with many state batches, or with a search for their start offset."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kcore.broker.apis import share_fetch
from kcore.protocol.error_codes import ErrorCode
from tests.broker.share.world import World


@pytest.mark.parametrize("large", ["state batches", "search"])
def test_large_loads_count_as_several(monkeypatch: pytest.MonkeyPatch, large: str) -> None:
    """500 share partitions of 20,000 state batches each would be loaded in 20 s."""
    monkeypatch.setattr(share_fetch, "MAX_LOADS", 10)
    if large == "search":
        world = World(partitions=4, group={"share_auto_offset_reset": "by_duration:PT1H"}, start_offset=-1)
    else:
        world = World(partitions=4)
        monkeypatch.setattr(share_fetch, "LOAD_BATCHES", 1)
        stored = SimpleNamespace(start_offset=0, batches=((0, 0, 0, 1),) * 6)
        monkeypatch.setattr(type(world.engine.share_partitions.persister), "stored", lambda *_: stored)
    shown = []
    for partition in range(4):
        world.produce(1, partition=partition)
    for epoch in range(4):
        response = world.fetch("m", epoch, () if epoch else range(4))
        shown.append(len(world.engine.share_partitions))
        assert response.error_code == ErrorCode.NONE
    assert shown == [1, 2, 3, 4]
