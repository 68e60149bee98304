"""The lease that permits a node to serve requests. It is checked before and after the fast path of an API, by the
compiled code and by its reference implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kcore.clock import ManualClock, SystemClock
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.runtime import Api, Pending, RequestContext
from kcore.server.dispatch import Served
from kcore_ext.runtime.lease import LocalLease
from tests.reference import request_queue as reference

DEADLINE_MS = 1_000
CONTEXT = RequestContext(4)
REQUEST = HeartbeatRequest(group_id="g")
FAST, SLOW, CHECKED = (HeartbeatResponse(throttle_time_ms=number) for number in (1, 2, 3))


class Beat(Api[HeartbeatRequest, HeartbeatResponse]):
    """A heartbeat API whose fast path returns the result that the test sets."""

    key = ApiKey.HEARTBEAT
    request_type = HeartbeatRequest
    response_type = HeartbeatResponse
    versions = (0, 4)

    def __init__(self, fast: Callable[[RequestContext, Any], Any]) -> None:
        self.fast = fast

    def handle(self, context: RequestContext, request: HeartbeatRequest) -> Any:
        return SLOW

    def error(
        self, context: RequestContext, request: HeartbeatRequest, code: ErrorCode, message: str | None = None
    ) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=code)


class World:
    """An API with a lease, as the request queue uses it. Records the responses that are checked."""

    def __init__(self, fast: Callable[[World], Any]) -> None:
        self.clock = ManualClock(0, 0)
        self.lease = LocalLease(self.clock, DEADLINE_MS)
        self.fast_calls = 0
        self.checked: list[Any] = []
        self._fast = fast
        self.entry = Served(Beat(self._decide))
        self.entry.lease = self.lease
        self.entry.checked = self._check

    def _decide(self, context: RequestContext, request: Any) -> Any:
        self.fast_calls += 1
        return self._fast(self)

    def _check(self, context: RequestContext, request: Any, response: Any) -> Any:
        self.checked.append(response)
        return CHECKED


def compiled(entry: Served) -> Any:
    return entry.decide(CONTEXT, REQUEST)


def pure(entry: Served) -> Any:
    return reference.decide(entry, CONTEXT, REQUEST)


both = pytest.mark.parametrize("decide", [compiled, pure])


def pending(world: World, parked: bool) -> Pending:
    return Pending(world.entry.api, CONTEXT, REQUEST, parked=parked)


@both
def test_a_valid_lease_lets_the_fast_path_respond(decide: Callable[[Served], Any]) -> None:
    world = World(lambda world: FAST)
    assert decide(world.entry) is FAST
    assert world.checked == []


@both
def test_the_slow_path_decides_requests_that_the_fast_path_declines(decide: Callable[[Served], Any]) -> None:
    world = World(lambda world: None)
    assert decide(world.entry) is SLOW
    assert (world.fast_calls, world.checked) == (1, [])


@both
@pytest.mark.parametrize("fenced", [False, True])
def test_without_a_lease_the_fast_path_is_not_called(decide: Callable[[Served], Any], fenced: bool) -> None:
    world = World(lambda world: FAST)
    if fenced:
        world.lease.ended = True
    else:
        world.clock.advance(DEADLINE_MS)
    assert decide(world.entry) is SLOW, "the slow path checks the lease itself"
    assert world.fast_calls == 0


@both
def test_a_response_is_checked_if_the_lease_ended_during_the_decision(decide: Callable[[Served], Any]) -> None:
    def slow(world: World) -> Any:
        world.clock.advance(DEADLINE_MS)
        return FAST

    world = World(slow)
    assert decide(world.entry) is CHECKED
    assert world.checked == [FAST]


@both
def test_a_response_that_waits_for_a_commit_needs_no_lease(decide: Callable[[Served], Any]) -> None:
    responses: list[Pending] = []

    def slow(world: World) -> Any:
        world.clock.advance(DEADLINE_MS)
        responses.append(pending(world, parked=False))
        return responses[0]

    world = World(slow)
    assert decide(world.entry) is responses[0]
    assert world.checked == []


@both
def test_a_parked_response_is_always_checked(decide: Callable[[Served], Any]) -> None:
    world = World(lambda world: pending(world, parked=True))
    assert decide(world.entry) is CHECKED
    assert len(world.checked) == 1


@both
def test_an_exception_of_the_fast_path_is_raised(decide: Callable[[Served], Any]) -> None:
    def broken(world: World) -> Any:
        raise MemoryError

    world = World(broken)
    with pytest.raises(MemoryError):
        decide(world.entry)
    assert world.checked == []


def test_the_deadline_itself_is_too_late() -> None:
    clock = ManualClock(0, 0)
    lease = LocalLease(clock, DEADLINE_MS)
    clock.advance(DEADLINE_MS - 1)
    assert lease.is_valid()
    clock.advance(1)
    assert not lease.is_valid()
    lease.deadline_ms += 1
    assert lease.is_valid()
    lease.ended = True
    assert not lease.is_valid()


def test_the_systems_clock_is_read() -> None:
    clock = SystemClock()
    assert LocalLease(clock, clock.monotonic_ms() + 60_000).is_valid()
    assert not LocalLease(clock, clock.monotonic_ms() - 1_000).is_valid()
