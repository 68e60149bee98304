"""The timer wheel gives the same results as a sorted list: timers fire on time and in order, and none is lost."""

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from kcore_ext.runtime.timer_wheel import ExpiredTimers, Timer, TimerWheel

MAX_INT64 = 2**63 - 1

# Around each power of 64, where one level ends and the next begins, and far beyond any real timeout.
BOUNDARIES = sorted(
    {max(0, 64**level * factor + step) for level in range(1, 10) for factor in (1, 2, 63) for step in (-1, 0, 1)}
)


def payloads(expired: ExpiredTimers) -> list[Any]:
    return [timer.payload for timer in expired]


def assert_balanced(wheel: TimerWheel) -> None:
    assert wheel.armed_total == wheel.fired_total + wheel.cancelled_total + len(wheel)


class Oracle:
    """A list sorted by (deadline, order of arming), with the interface of the wheel."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.order = 0
        self.waiting: dict[int, tuple[int, int]] = {}

    def arm(self, name: int, deadline_ms: int) -> None:
        self.waiting[name] = (deadline_ms, self.order)
        self.order += 1

    def advance(self, now_ms: int) -> list[int]:
        self.now_ms = max(self.now_ms, now_ms)
        due = sorted((at, name) for name, at in self.waiting.items() if at[0] <= self.now_ms)
        return [name for _, name in due]


spans = st.one_of(st.integers(-5, 200), st.integers(0, 2**20), st.sampled_from(BOUNDARIES))


class WheelAgainstSortedList(RuleBasedStateMachine):
    """Runs any sequence of add, cancel, extend and advance. Timers that fire may call these methods, too."""

    names = Bundle("names")

    @initialize(now_ms=st.one_of(st.just(0), st.integers(0, 2**41), st.sampled_from(BOUNDARIES)))
    def start(self, now_ms: int) -> None:
        self.wheel = TimerWheel(now_ms)
        self.oracle = Oracle(now_ms)
        self.timers: list[Timer] = []

    @rule(target=names, span=spans)
    def add(self, span: int) -> int:
        name = len(self.timers)
        deadline_ms = self.oracle.now_ms + span
        self.timers.append(self.wheel.add(deadline_ms, name))
        self.oracle.arm(name, deadline_ms)
        return name

    @rule(name=names)
    def cancel(self, name: int) -> None:
        assert self.timers[name].cancel() is (name in self.oracle.waiting)
        self.oracle.waiting.pop(name, None)

    @rule(name=names, span=spans)
    def extend(self, name: int, span: int) -> None:
        deadline_ms = self.oracle.now_ms + span
        self.timers[name].extend(deadline_ms)
        assert self.timers[name].deadline_ms == deadline_ms
        self.oracle.arm(name, deadline_ms)

    @rule(name=names, span=spans)
    def extend_from_its_own_deadline(self, name: int, span: int) -> None:
        deadline_ms = self.timers[name].deadline_ms + span
        self.timers[name].extend(deadline_ms)
        self.oracle.arm(name, deadline_ms)

    @rule(span=spans)
    def advance(self, span: int) -> None:
        now_ms = self.oracle.now_ms + span
        expected = self.oracle.advance(now_ms)
        assert payloads(self.wheel.advance(now_ms)) == expected
        for name in expected:
            del self.oracle.waiting[name]

    @rule()
    def advance_to_the_next_deadline(self) -> None:
        next_ms = self.wheel.next_deadline_ms()
        expected = self.oracle.advance(max(next_ms, 0))
        assert payloads(self.wheel.advance(next_ms)) == expected
        for name in expected:
            del self.oracle.waiting[name]
        assert self.wheel.next_deadline_ms() > next_ms or len(self.wheel) == 0, "no progress"

    @rule(span=spans, data=st.data())
    def advance_with_actions(self, span: int, data: st.DataObject) -> None:
        """Advances the time. Each timer that fires may cancel, extend or add another one; the oracle does the same."""
        now_ms = self.oracle.now_ms + span
        expected = self.oracle.advance(now_ms)
        boundary = self.oracle.order
        for timer in self.wheel.advance(now_ms):
            assert not timer.armed
            assert timer.payload == expected.pop(0)
            del self.oracle.waiting[timer.payload]
            action = data.draw(st.sampled_from(["nothing", "cancel", "extend", "add"]))
            if action == "add":
                self.add(data.draw(spans))
            elif action == "cancel":
                self.cancel(data.draw(st.sampled_from(range(len(self.timers)))))
            elif action == "extend":
                self.extend(data.draw(st.sampled_from(range(len(self.timers)))), data.draw(spans))
            expected = [name for name in expected if self.oracle.waiting.get(name, (0, boundary))[1] < boundary]
        assert expected == []

    @rule(span=spans, taken=st.integers(0, 3))
    def advance_and_leave_early(self, span: int, taken: int) -> None:
        now_ms = self.oracle.now_ms + span
        expected = self.oracle.advance(now_ms)
        for _, timer in zip(range(taken), self.wheel.advance(now_ms), strict=False):
            del self.oracle.waiting[timer.payload]
        # zip advances its first argument first, so exactly `taken` timers were delivered
        assert [name for name in expected if name not in self.oracle.waiting] == expected[:taken]

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "wheel"):
            return
        assert_balanced(self.wheel)
        assert len(self.wheel) == len(self.oracle.waiting)
        assert [timer.armed for timer in self.timers] == [n in self.oracle.waiting for n in range(len(self.timers))]
        assert self.wheel.now_ms == self.oracle.now_ms
        next_ms = self.wheel.next_deadline_ms()
        if not self.oracle.waiting:
            assert next_ms == -1
        else:
            earliest = min(at for at, _ in self.oracle.waiting.values())
            assert self.wheel.now_ms <= next_ms <= max(earliest, self.wheel.now_ms)


TestWheelAgainstSortedList = WheelAgainstSortedList.TestCase
TestWheelAgainstSortedList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("start_ms", [0, 1, 63, 64, 4095, 2**18 - 1, 2**24, 1_790_000_000_000])
def test_a_timer_fires_at_its_deadline_and_not_one_ms_before(start_ms: int) -> None:
    for span_ms in BOUNDARIES:
        if start_ms + span_ms > MAX_INT64:
            continue
        wheel = TimerWheel(start_ms)
        wheel.add(start_ms + span_ms, "x")
        assert payloads(wheel.advance(start_ms + span_ms - 1)) == ([] if span_ms else ["x"])
        assert payloads(wheel.advance(start_ms + span_ms)) == (["x"] if span_ms else [])
        assert wheel.next_deadline_ms() == -1


def test_one_jump_over_every_level_delivers_all_in_order() -> None:
    wheel = TimerWheel(17)
    deadlines = sorted({17 + span for span in BOUNDARIES} | {MAX_INT64})
    for deadline_ms in reversed(deadlines):
        wheel.add(deadline_ms, deadline_ms)
    assert payloads(wheel.advance(MAX_INT64)) == deadlines
    assert (len(wheel), wheel.now_ms, wheel.fired_total) == (0, MAX_INT64, len(deadlines))


@given(deadlines=st.lists(st.integers(-(2**63), MAX_INT64)), start_ms=st.integers(0, MAX_INT64))
def test_the_wheel_accepts_any_deadline(deadlines: list[int], start_ms: int) -> None:
    wheel = TimerWheel(start_ms)
    for deadline_ms in deadlines:
        wheel.add(deadline_ms, deadline_ms)
    delivered = payloads(wheel.advance(start_ms))
    assert delivered == sorted(d for d in deadlines if d <= start_ms)
    steps = 0
    while len(wheel):
        at = wheel.next_deadline_ms()
        batch = payloads(wheel.advance(at))
        assert all(deadline_ms == at for deadline_ms in batch)
        delivered += batch
        steps += 1
    assert delivered == sorted(deadlines)
    assert steps <= 11 * len(deadlines), "a timer is visited at most once a level"


def test_equal_deadlines_fire_in_order_of_arming_also_after_lazy_extends() -> None:
    wheel = TimerWheel(0)
    early = wheel.add(100, "extended first")
    wheel.add(5000, "added second")
    other = wheel.add(70, "extended last")
    early.extend(5000)
    wheel.add(5000, "added third")
    other.extend(5000)
    assert payloads(wheel.advance(10_000)) == ["added second", "extended first", "added third", "extended last"]


def test_a_later_deadline_does_not_fire_at_the_old_one() -> None:
    wheel = TimerWheel(0)
    timer = wheel.add(45_000, "session")
    for now_ms in range(0, 60_000, 5_000):
        assert payloads(wheel.advance(now_ms)) == []
        timer.extend(now_ms + 45_000)
    assert payloads(wheel.advance(99_999)) == []
    assert payloads(wheel.advance(100_000)) == ["session"]
    assert (wheel.armed_total, wheel.fired_total, wheel.cancelled_total) == (1, 1, 0)


def test_an_earlier_deadline_fires_early() -> None:
    wheel = TimerWheel(0)
    timer = wheel.add(45_000, "x")
    timer.extend(90_000)
    timer.extend(7)
    assert wheel.next_deadline_ms() == 7
    assert payloads(wheel.advance(7)) == ["x"]


def test_an_expired_timer_that_is_cancelled_by_an_earlier_one_is_not_delivered() -> None:
    wheel = TimerWheel(0)
    first = wheel.add(10, "first")
    second = wheel.add(10, "second")
    third = wheel.add(11, "third")
    seen = []
    for timer in wheel.advance(20):
        seen.append(timer.payload)
        if timer is first:
            assert second.armed
            assert second.cancel()
            third.extend(30)
    assert seen == ["first"]
    assert payloads(wheel.advance(30)) == ["third"]
    assert_balanced(wheel)


def test_an_action_that_rearms_itself_for_now_waits_for_the_next_advance() -> None:
    wheel = TimerWheel(0)
    wheel.add(10, "x")
    for _ in range(3):
        for timer in wheel.advance(10):
            timer.extend(0)
        assert len(wheel) == 1
        assert wheel.next_deadline_ms() == 10
    assert wheel.fired_total == 3


def test_an_exception_in_an_action_loses_no_timer() -> None:
    wheel = TimerWheel(0)
    for name in "abc":
        wheel.add(5, name)

    def deliver() -> None:
        for timer in wheel.advance(5):
            raise KeyError(timer.payload)

    with pytest.raises(KeyError, match="a"):
        deliver()
    assert (len(wheel), wheel.next_deadline_ms()) == (2, 5)
    assert payloads(wheel.advance(5)) == ["b", "c"]


def test_an_advance_within_an_action_takes_over_the_rest_in_order() -> None:
    wheel = TimerWheel(0)
    for deadline_ms in (5, 6, 7):
        wheel.add(deadline_ms, deadline_ms)
    outer = wheel.advance(6)
    assert next(outer).payload == 5
    assert payloads(wheel.advance(7)) == [6, 7]
    assert payloads(outer) == []


def test_time_never_moves_backwards() -> None:
    wheel = TimerWheel(100)
    wheel.add(99, "past")
    assert payloads(wheel.advance(50)) == ["past"]
    assert wheel.now_ms == 100


def test_clear_cancels_all_timers_and_they_can_be_armed_again() -> None:
    wheel = TimerWheel(0)
    timers = [wheel.add(deadline_ms, deadline_ms) for deadline_ms in (3, 70, 5000, 0)]
    assert wheel.clear() == 4
    assert (len(wheel), wheel.cancelled_total, wheel.next_deadline_ms()) == (0, 4, -1)
    assert not any(timer.armed for timer in timers)
    timers[1].extend(80)
    assert payloads(wheel.advance(100)) == [70]
    assert wheel.armed_total == 5


def test_invalid_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="now_ms must be >= 0, not -1"):
        TimerWheel(-1)
    with pytest.raises(TypeError, match=r"made by TimerWheel\.add"):
        Timer()
    with pytest.raises(TypeError, match=r"made by TimerWheel\.advance"):
        ExpiredTimers()
    assert list(ExpiredTimers.__new__(ExpiredTimers)) == []
    unmade = Timer.__new__(Timer)
    unmade.extend(5)
    assert (unmade.armed, unmade.cancel()) == (False, False)
    with pytest.raises(OverflowError):
        TimerWheel().add(2**63, None)
    with pytest.raises(TypeError):
        TimerWheel().add(None, None)  # type: ignore[arg-type]


def test_an_armed_timer_needs_no_owner() -> None:
    wheel = TimerWheel(0)
    wheel.add(5, ["only the wheel knows this list"])
    gc.collect()
    assert payloads(wheel.advance(5)) == [["only the wheel knows this list"]]


class Session:
    """An object in a reference cycle with its timer: session -> wheel -> timer -> session."""

    def __init__(self) -> None:
        self.wheel = TimerWheel(0)
        self.timer = self.wheel.add(45_000, self.expire)

    def expire(self) -> None:
        self.timer.cancel()


@pytest.mark.parametrize("state", ["armed", "due", "fired"])
def test_a_cycle_through_a_timer_is_collected(state: str) -> None:
    session = Session()
    watch = weakref.ref(session)
    if state != "armed":
        expired = session.wheel.advance(45_000)
        if state == "fired":
            payloads(expired)
        del expired
    del session
    gc.collect()
    assert watch() is None


def test_collection_leaves_live_timers_alone() -> None:
    wheel = TimerWheel(0)
    sessions = [wheel.add(i % 5000, [i]) for i in range(2000)]
    gc.collect()
    del sessions
    gc.collect()
    assert sorted(p[0] for p in payloads(wheel.advance(5000))) == list(range(2000))


def test_a_timer_outlives_its_wheel() -> None:
    timer = TimerWheel(3).add(9, "x")
    gc.collect()
    assert timer.wheel.now_ms == 3
    assert timer.armed
    assert "armed deadline_ms=9 payload='x'" in repr(timer)
    assert repr(timer.wheel) == "<TimerWheel now_ms=3 armed=1>"
    assert timer.cancel()
    assert "idle" in repr(timer)
