"""When a memory limit is reached, the server pauses connections. In each turn it examines and pauses only a bounded
number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.broker.data.fetch_budget import FetchMemoryBudget
from kcore.server import memory, size_classes
from kcore.server.memory import RequestMemory, ResponseMemory
from kcore.server.size_classes import SizeClasses

LIMIT = 8_000


class Peer:
    """A connection whose client does not read. Counts the effects of a memory limit: pauses, resumptions and checks."""

    def __init__(self) -> None:
        self.claimed_bytes = self.unread_bytes = 0
        self.taken_s = 0.0
        self.held = False
        self.changes = self.checks = 0

    def hold(self, held: bool) -> None:
        self.changes += held is not self.held
        self.held = held

    def report_unread(self) -> None:
        self.checks += 1

    def on_request_memory_changed(self) -> None:
        self.changes += 1


@pytest.fixture
def responses() -> Iterator[ResponseMemory]:
    loop = asyncio.new_event_loop()
    shared = ResponseMemory(LIMIT, 30_000, FetchMemoryBudget(LIMIT), loop)
    yield shared
    shared.close()
    loop.close()


def set_unread(responses: ResponseMemory, peer: Peer, size_bytes: int) -> None:
    responses.set_unread(peer, size_bytes)  # type: ignore[arg-type]


def turn(loop: asyncio.AbstractEventLoop) -> None:
    """Runs one turn of an event loop."""
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_a_check_looks_at_some_connections_and_the_next_one_at_others(
    responses: ResponseMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CHECKED", 10)
    peers = [Peer() for _ in range(25)]
    for peer in peers:
        set_unread(responses, peer, 1)
    counts = []
    for _ in range(5):
        responses.look()
        counts.append([sum(peer.checks == checks for peer in peers) for checks in range(3)])
    assert counts == [[15, 10, 0], [5, 20, 0], [0, 20, 5], [0, 10, 15], [0, 0, 25]]


def test_a_client_at_the_limit_of_responses_does_not_stop_the_others_repeatedly(responses: ResponseMemory) -> None:
    others, one = [Peer() for _ in range(100)], Peer()
    for peer in others:
        set_unread(responses, peer, 10)
    for _ in range(50):
        set_unread(responses, one, LIMIT - 1_000)
        assert responses.full
        set_unread(responses, one, LIMIT - 1_001)
        assert responses.full
    assert {peer.changes for peer in others} == {1}
    set_unread(responses, one, LIMIT - 2_000)
    assert not responses.full
    assert {peer.held for peer in others} == {False}


def test_a_client_at_the_limit_of_requests_does_not_stop_the_others_repeatedly() -> None:
    others, one = [Peer() for _ in range(100)], Peer()
    loop = asyncio.new_event_loop()
    requests = RequestMemory(LIMIT, [*others, one], loop)  # type: ignore[list-item]
    for _ in range(50):
        requests.claim(one, LIMIT)  # type: ignore[arg-type]
        requests.claim(one, LIMIT - 1)  # type: ignore[arg-type]
        turn(loop)
    assert {peer.changes for peer in others} == {1}
    assert not requests.may_read(others[0])  # type: ignore[arg-type]
    requests.claim(one, LIMIT - LIMIT // 8)  # type: ignore[arg-type]
    turn(loop)
    assert {peer.changes for peer in others} == {2}
    assert requests.may_read(others[0])  # type: ignore[arg-type]
    loop.close()


def test_full_request_memory_holds_some_connections_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the memory for requests is full, each turn pauses only some connections. Each pause takes microseconds, so
    thousands of pauses in a turn would delay all clients.
    """
    monkeypatch.setattr(memory, "CHECKED", 10)
    others, one = [Peer() for _ in range(25)], Peer()
    loop = asyncio.new_event_loop()
    requests = RequestMemory(LIMIT, others, loop)  # type: ignore[arg-type]
    requests.claim(one, LIMIT)  # type: ignore[arg-type]
    counts = []
    for _ in range(4):
        counts.append(sum(peer.changes for peer in others))
        turn(loop)
    assert counts == [0, 10, 20, 25]
    loop.close()


def test_a_connection_that_cannot_be_resumed_does_not_keep_others_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resuming a paused connection may fail for lack of memory. The other connections are resumed nevertheless, and the
    failed one is tried again.
    """
    monkeypatch.setattr(memory, "CHECK_INTERVAL_S", 0.0)

    class Failing(Peer):
        def on_request_memory_changed(self) -> None:
            super().on_request_memory_changed()
            if self.changes == 1:
                raise MemoryError

    others, one = [Peer(), Failing(), Peer()], Peer()
    loop = asyncio.new_event_loop()
    requests = RequestMemory(LIMIT, others, loop)  # type: ignore[arg-type]
    requests.claim(one, LIMIT)  # type: ignore[arg-type]
    for _ in range(5):
        turn(loop)
    assert [peer.changes for peer in others] == [1, 2, 1]
    loop.close()


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3_000)), max_size=400))
def test_the_largest_item_is_found_or_one_that_is_half_as_large(changes: list[tuple[int, int]]) -> None:
    sizes: dict[int, int] = {}
    classes: SizeClasses[int] = SizeClasses()
    for item, size in changes:
        sizes[item] = size
        classes.set(item, size)
        sizes = {item: size for item, size in sizes.items() if size}
        assert len(classes) == len(sizes)
        assert classes.size_of(item) == size
        if not sizes:
            with pytest.raises(LookupError):
                classes.largest()
            continue
        chosen, largest = sizes[classes.largest()], max(sizes.values())
        assert chosen == largest or (chosen > largest // 2 and len(sizes) > size_classes.MAX_COMPARED)
