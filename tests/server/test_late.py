"""After a delay of the server, heartbeats are still unread in the sockets. Their members must not be removed."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from kcore.clock import ManualClock, Now
from kcore.late_timers import LONG_PAUSE_MS, MAX_READS, MAX_WAITS, LateTimers
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.testing import ServerProcess
from tests.kit import heartbeat, make_topic, stable_alone, wait_until
from tests.server.live import LiveServer, Raw

SESSION_MS = 6_000
"""A session timeout that is longer than the time in which 20 members join, even on a busy machine."""

SETTINGS = {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
}


class RawTarget:
    """A raw connection as a `tests.kit.Target`: sends one request and waits for its response."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw

    def send(self, request: Any, version: int | None = None) -> Any:
        version = type(request).MAX_VERSION if version is None else version
        self.raw.send(self.raw.request(request, version))
        return self.raw.receive(request, version)[1]


class Classic:
    """The only member of a classic group."""

    def __init__(self, raw: Raw, group: str) -> None:
        self.raw = raw
        self.member, self.generation = stable_alone(RawTarget(raw), group, session_ms=SESSION_MS)
        self.beat = heartbeat(group, self.member, self.generation)

    def send(self) -> None:
        self.raw.send(self.raw.request(self.beat, 4))

    def code(self) -> int:
        return int(self.raw.receive(HeartbeatRequest(), 4)[1].error_code)


class Modern:
    """The only member of a consumer group."""

    def __init__(self, raw: Raw, group: str) -> None:
        self.raw = raw
        first = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=f"{group}-member",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        joined = RawTarget(raw).send(first, 1)
        assert joined.error_code == 0, joined
        self.beat = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=f"{group}-member", member_epoch=joined.member_epoch
        )

    def send(self) -> None:
        self.raw.send(self.raw.request(self.beat, 1))

    def code(self) -> int:
        return int(self.raw.receive(self.beat, 1)[1].error_code)


def test_no_member_is_removed_while_the_process_is_stopped() -> None:
    """The stop by SIGSTOP is longer than every session. All members send heartbeats meanwhile."""
    with ServerProcess(settings=SETTINGS) as server, ExitStack() as stack:

        def connect() -> Raw:
            return stack.enter_context(Raw(server.port))

        make_topic(RawTarget(connect()), "t")
        members: list[Classic | Modern] = [Classic(connect(), f"classic-{n}") for n in range(10)]
        members += [Modern(connect(), f"modern-{n}") for n in range(10)]
        later_beats = 8
        for member in members:
            member.send()
        assert [member.code() for member in members] == [0] * len(members)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            lapsed_s = time.monotonic() + 1.5 * SESSION_MS / 1000
            for _ in range(later_beats):
                for member in members:
                    member.send()
            wait_until(lambda: time.monotonic() >= lapsed_s, "all sessions have lapsed")
        finally:
            os.kill(server.pid, signal.SIGCONT)
        for _ in range(later_beats):
            assert [member.code() for member in members] == [0] * len(members)


@pytest.mark.parametrize("kind", [Classic, Modern])
def test_waiting_heartbeats_are_read_before_timers_fire(
    kind: type[Classic] | type[Modern], serve: Callable[..., LiveServer]
) -> None:
    """A minute passes within one turn of the loop, so that the timer is due before the heartbeats are read. Only silent
    members are removed.
    """
    clock = ManualClock()
    live = serve(SETTINGS, clock=clock)
    with ExitStack() as stack:
        make_topic(RawTarget(stack.enter_context(live.raw())), "t")
        awake, silent = (kind(stack.enter_context(live.raw()), name) for name in ("awake", "silent"))

        def hold_up() -> None:
            awake.send()
            clock.advance(60_000)
            live.driver._timers.ring()

        live.call(hold_up)
        assert awake.code() == 0
        wait_until(lambda: live.call(lambda: live.driver._timers._reads == 0), "timers have fired")
        silent.send()
        assert silent.code() == 25, "UNKNOWN_MEMBER_ID"
        awake.send()
        assert awake.code() == 0


class Loop:
    """An event loop whose turns the test runs one by one."""

    def __init__(self) -> None:
        self.ready: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def turn(self) -> None:
        for _ in range(len(self.ready)):
            self.ready.popleft()()


class Timers:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.now = Now(self.clock)
        self.loop = Loop()
        self.fired: list[int] = []
        self.unserved = False
        self.timers = LateTimers(
            self.loop,  # type: ignore[arg-type]
            self.clock,
            self.now,
            self._fire,
        )
        self.timers.unserved = lambda: self.unserved

    def _fire(self) -> None:
        self.fired.append(self.now.update())


def test_timers_of_a_punctual_loop_fire_at_once() -> None:
    one = Timers()
    one.clock.advance(LONG_PAUSE_MS)
    one.timers.ring()
    assert (one.fired, len(one.loop.ready)) == ([LONG_PAUSE_MS], 0)


def test_timers_of_a_late_loop_wait_for_requests_that_were_read_but_not_served() -> None:
    """The event loop is late, so timers are overdue. They do not fire while requests that were read still wait to be
    served, because heartbeats may be among them.
    """
    one = Timers()
    one.clock.advance(LONG_PAUSE_MS + 1)
    one.unserved = True
    one.timers.ring()
    for _ in range(10):
        one.loop.turn()
        assert one.fired == []
    one.unserved = False
    one.loop.turn()
    assert (one.fired, len(one.loop.ready)) == ([LONG_PAUSE_MS + 1], 0)


def test_timers_wait_after_a_gap_that_a_request_has_ended() -> None:
    """The process was stopped, and a request updates the clock before the timers are checked. The timers must still
    notice the gap, and wait until all requests that were read are served.
    """
    one = Timers()
    one.clock.advance(LONG_PAUSE_MS + 1)
    one.now.update()
    one.unserved = True
    one.timers.ring()
    for _ in range(10):
        one.loop.turn()
        assert one.fired == []
    one.unserved = False
    one.loop.turn()
    assert (one.fired, len(one.loop.ready)) == ([LONG_PAUSE_MS + 1], 0)
    one.clock.advance(LONG_PAUSE_MS)
    one.now.update()
    one.clock.advance(1)
    one.timers.ring()
    assert (one.fired[1:], len(one.loop.ready)) == ([2 * LONG_PAUSE_MS + 2], 0), "the pause has expired"


def test_a_flood_of_requests_delays_timers_for_a_bounded_time() -> None:
    one = Timers()
    one.clock.advance(LONG_PAUSE_MS + 1)
    one.unserved = True
    one.timers.ring()
    for _ in range(MAX_WAITS + 2):
        assert one.fired == []
        one.loop.turn()
    assert (one.fired, len(one.loop.ready)) == ([LONG_PAUSE_MS + 1], 0)


def test_timers_of_a_late_loop_fire_once_after_a_whole_turn() -> None:
    """Overdue timers fire after one whole turn of the event loop. A second call of `ring` during this turn changes
    nothing, even after requests were served.
    """
    one = Timers()
    one.clock.advance(LONG_PAUSE_MS + 1)
    one.timers.ring()
    one.loop.turn()
    one.now.update()
    one.timers.ring()
    assert one.fired == []
    one.loop.turn()
    assert (one.fired, len(one.loop.ready)) == ([LONG_PAUSE_MS + 1], 0)
    one.timers.ring()
    assert one.fired == [LONG_PAUSE_MS + 1] * 2


@pytest.mark.parametrize(("late_reads", "reads"), [(0, 1), (1, 2), (MAX_READS - 1, MAX_READS), (1_000, MAX_READS)])
def test_a_late_read_is_repeated_a_few_times(late_reads: int, reads: int) -> None:
    one = Timers()
    one.clock.advance(LONG_PAUSE_MS + 1)
    one.timers.ring()
    turns = 0
    while not one.fired:
        one.loop.turn()
        turns += 1
        if turns % 2 and turns // 2 < late_reads:
            one.clock.advance(LONG_PAUSE_MS + 1)  # reading the sockets in this turn takes long
    assert (turns, len(one.loop.ready)) == (2 * reads, 0)
