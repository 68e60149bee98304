"""Share fetches that a MemoryError interrupts while they load a share partition, or begin to wait."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.broker.apis.share_fetch import ShareFetchApi
from kcore.broker.share.delayed_share_fetch import DelayedShareFetch
from kcore.broker.share.share_partition import SharePartition
from kcore.broker.share.share_partitions import SharePartitions
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.share.local import LocalPersister, _Operation
from tests.broker.share.world import World

ACCEPT = 1


@pytest.mark.parametrize(
    ("owner", "name"), [(LocalPersister, "writer"), (LocalPersister, "read"), (SharePartition, "loaded")]
)
def test_a_load_that_an_exception_interrupts_is_repeated(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the share partition stayed in the state INITIALIZING, no record of it would ever be delivered."""
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
    """If the operation stayed in the purgatory, it would acquire records for a client that got an error."""
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


@pytest.mark.parametrize("fast", [True, False])
def test_two_memory_errors_in_a_row_leave_no_fetch_without_a_response(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second error occurs while the first error is handled, after the acknowledgements are durable."""
    world = World()
    world.produce(1)
    world.acquire("m", 0, [0])

    def fail(*arguments: Any) -> None:
        raise MemoryError

    request = world.fetch_request("m", 1, {0: [(0, 0, ACCEPT)]}, max_wait_ms=5_000)
    with monkeypatch.context() as patch:
        patch.setattr(DelayedShareFetch, "watch", fail)
        patch.setattr(ShareFetchApi, "fetch_failed", fail)
        if not fast:
            patch.setattr(world.engine.apis[ApiKey.SHARE_FETCH], "fast", None)
        response = world.call(request, 2)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(world.engine.purgatory) == 0


@pytest.mark.parametrize("fast", [True, False])
def test_a_fetch_that_fails_after_its_acknowledgements_is_logged(
    fast: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.produce(1)
    world.acquire("m", 0, [0])

    def fail(operation: DelayedShareFetch) -> None:
        raise RuntimeError("a bug")

    request = world.fetch_request("m", 1, {0: [(0, 0, ACCEPT)]}, max_wait_ms=5_000)
    with monkeypatch.context() as patch:
        patch.setattr(DelayedShareFetch, "watch", fail)
        if not fast:
            patch.setattr(world.engine.apis[ApiKey.SHARE_FETCH], "fast", None)
        response = world.call(request, 2)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    (line,) = [record for record in caplog.records if record.exc_info]
    assert line.getMessage().startswith("ShareFetch of client ")
    assert line.exc_info is not None
    assert str(line.exc_info[1]) == "a bug"


def test_two_memory_errors_in_a_row_leave_no_load_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second error interrupts the handling of the failed load. If the load ended there, the share partition would
    stay in the state INITIALIZING forever.
    """
    world = World()
    world.produce(1)
    failures = iter([True])
    forget = SharePartitions.forget

    def fail(*arguments: Any) -> None:
        raise MemoryError

    def fail_once(shares: SharePartitions, share_partition: SharePartition) -> None:
        if next(failures, False):
            raise MemoryError
        forget(shares, share_partition)

    with monkeypatch.context() as patch:
        patch.setattr(SharePartition, "loaded", fail)
        patch.setattr(SharePartitions, "forget", fail_once)
        world.fetch("m", 0, [0])
    world.advance(1_000)
    assert next(failures, None) is None, "both errors occurred"
    assert world.acquire("n", 0, [0]) == [(0, 0, 1)]


def test_records_are_not_delivered_again_after_the_result_of_their_acknowledgement_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A MemoryError occurs after the retried write is durable. Without a reload, the state in memory would be older
    than the log.
    """
    world = World()
    world.produce(1)
    world.acquire("m", 0, [0])
    world.log.failures_left = 1
    pending = world.start(world.acknowledge_request("m", 1, {0: [(0, 0, ACCEPT)]}), 2)
    world.settle()

    def fail(*arguments: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(_Operation, "_arrived", fail)
        world.advance(100)
    assert pending.response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    world.fetch("m", -1)
    assert world.acquire("n", 0, [0]) == []
    assert world.acquire("n", 1) == []
