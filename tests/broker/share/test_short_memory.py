"""Share fetches that a MemoryError interrupts while they load a share partition, or begin to wait."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.broker.share.delayed_share_fetch import DelayedShareFetch
from kcore.broker.share.share_partition import SharePartition
from kcore.protocol.error_codes import ErrorCode
from kcore.share.local import LocalPersister
from tests.broker.share.world import World

ACCEPT = 1


@pytest.mark.parametrize(
    ("owner", "name"), [(LocalPersister, "writer"), (LocalPersister, "read"), (SharePartition, "loaded")]
)
def test_a_load_that_an_exception_interrupts_is_repeated(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share partition that stayed in the state INITIALIZING would never deliver a record."""
    world = World()
    world.produce(1)

    def fail(*arguments: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        world.fetch("m", 0, [0])
    world.advance(1_000)
    assert world.acquire("n", 0, [0]) == [(0, 0, 1)]


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after acknowledgements"])
def test_a_fetch_that_cannot_wait_leaves_nothing_behind(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that stayed would acquire records for a client that got an error."""
    world = World()
    world.produce(1)
    world.acquire("m", 0, [0])

    def fail(operation: DelayedShareFetch) -> None:
        raise MemoryError

    request = world.fetch_request("m", 1, {0: [(0, 0, ACCEPT)]} if late else (), max_wait_ms=5_000)
    with monkeypatch.context() as patch:
        patch.setattr(DelayedShareFetch, "watch", fail)
        response = world.call(request, 2)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(world.engine.purgatory) == 0
    world.produce(1)
    assert world.acquire("n", 0, [0]) == [(1, 1, 1)]
