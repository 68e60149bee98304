"""The purgatory completes each operation exactly once, by its condition or by expiry. Callbacks may run any action."""

import gc
import weakref
from collections.abc import Callable, Hashable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kcore_ext.runtime.purgatory import DelayedOperation, Purgatory
from kcore_ext.runtime.timer_wheel import TimerWheel


class Operation(DelayedOperation):
    """An operation that completes once it is `ready`. The operation records its calls, and its callbacks can run any
    action.
    """

    def __init__(self, name: str = "x", log: list[str] | None = None, ready: bool = False) -> None:
        self.name = name
        self.log = [] if log is None else log
        self.ready = ready
        self.when_tried: Callable[[], object] | None = None
        self.when_complete: Callable[[], object] | None = None
        self.when_expired: Callable[[], object] | None = None

    def try_complete(self) -> bool:
        if self.when_tried is not None:
            self.when_tried()
        return self.force_complete() if self.ready else False

    def on_complete(self) -> None:
        self.log.append(f"{self.name} complete")
        if self.when_complete is not None:
            self.when_complete()

    def on_expiration(self) -> None:
        self.log.append(f"{self.name} expired")
        if self.when_expired is not None:
            self.when_expired()

    def __repr__(self) -> str:
        return f"<{self.name}>"


def advance(wheel: TimerWheel, now_ms: int) -> None:
    """Advances the wheel and expires operations, as every caller of the wheel must."""
    for timer in wheel.advance(now_ms):
        timer.payload()


def assert_balanced(purgatory: Purgatory) -> None:
    done = purgatory.completed_total + purgatory.expired_total + purgatory.cancelled_total
    assert purgatory.delayed_total == done + purgatory.num_delayed
    assert len(purgatory) == purgatory.num_delayed == len(purgatory.operations()) == len(purgatory.wheel)
    assert purgatory.num_watched == sum(purgatory.watched(key) for key in purgatory.watched_keys())


def make() -> tuple[TimerWheel, Purgatory, list[str]]:
    wheel = TimerWheel(0)
    return wheel, Purgatory(wheel), []


def test_a_true_condition_completes_at_once_and_nothing_is_watched() -> None:
    wheel, purgatory, log = make()
    operation = Operation("a", log, ready=True)
    assert purgatory.try_complete_else_watch(operation, ("k",), 100)
    assert (operation.completed, operation.watched, len(wheel), purgatory.watched_keys()) == (True, False, 0, [])
    assert purgatory.try_complete_else_watch(operation, ("k",), 100), "a completed operation stays completed"
    assert log == ["a complete"]
    assert purgatory.delayed_total == 0


def test_a_condition_completes_through_any_key_and_leaves_all_keys_and_the_wheel() -> None:
    wheel, purgatory, log = make()
    operation = Operation("a", log)
    assert not purgatory.try_complete_else_watch(operation, ["j", ("k", 1), 3], 100)
    assert [purgatory.watched(key) for key in ("j", ("k", 1), 3, "other")] == [1, 1, 1, 0]
    assert (purgatory.num_delayed, purgatory.num_watched, len(wheel), operation.watched) == (1, 3, 1, True)
    assert purgatory.check_and_complete("j") == 0
    assert purgatory.check_and_complete("other") == 0
    operation.ready = True
    assert purgatory.check_and_complete(("k", 1)) == 1
    assert (purgatory.num_delayed, purgatory.num_watched, len(wheel), purgatory.watched_keys()) == (0, 0, 0, [])
    assert not operation.watched
    advance(wheel, 1000)
    assert purgatory.check_and_complete("j") == 0
    assert log == ["a complete"]
    assert (purgatory.completed_total, purgatory.expired_total) == (1, 0)


def test_a_timeout_completes_then_expires_once() -> None:
    wheel, purgatory, log = make()
    operation = Operation("a", log)
    purgatory.try_complete_else_watch(operation, ("j", "k"), 100)
    advance(wheel, 99)
    assert log == []
    advance(wheel, 100)
    assert log == ["a complete", "a expired"]
    operation.ready = True
    assert purgatory.check_and_complete("j") == 0
    assert not operation.force_complete()
    operation()
    assert log == ["a complete", "a expired"]
    assert (purgatory.completed_total, purgatory.expired_total, purgatory.num_watched) == (0, 1, 0)


def test_force_complete_wins_once() -> None:
    wheel, purgatory, log = make()
    operation = Operation("a", log)
    purgatory.try_complete_else_watch(operation, ("k",), 100)
    assert operation.force_complete()
    assert not operation.force_complete()
    advance(wheel, 100)
    assert log == ["a complete"]
    unwatched = Operation("b", log)
    assert unwatched.force_complete()
    assert log == ["a complete", "b complete"]
    assert_balanced(purgatory)


def test_an_expired_operation_that_an_earlier_one_completes_does_not_expire() -> None:
    wheel, purgatory, log = make()
    first, second = Operation("first", log), Operation("second", log)
    first.when_expired = second.force_complete
    for operation in (first, second):
        purgatory.try_complete_else_watch(operation, ("k",), 10)
    advance(wheel, 10)
    assert log == ["first complete", "first expired", "second complete"]
    assert (purgatory.expired_total, purgatory.completed_total) == (1, 1)


def test_operations_of_a_key_are_tried_in_the_order_of_their_arrival() -> None:
    _, purgatory, log = make()
    operations = [Operation(name, log) for name in "abcd"]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ("k",), 100)
        operation.ready = operation.name != "b"
    assert purgatory.check_and_complete("k") == 3
    assert log == ["a complete", "c complete", "d complete"]
    assert purgatory.operations() == [operations[1]]


def test_operations_watched_during_a_check_are_not_visited_by_it() -> None:
    _, purgatory, log = make()
    visits: list[str] = []

    def make_operation(name: str) -> Operation:
        operation = Operation(name, log)

        def tried() -> None:
            visits.append(name)
            if operation.watched and len(name) < 4:
                purgatory.try_complete_else_watch(make_operation(name + name[0]), ("k",), 100)

        operation.when_tried = tried
        return operation

    for name in "ab":
        purgatory.try_complete_else_watch(make_operation(name), ("k",), 100)
    visits.clear()
    assert purgatory.check_and_complete("k") == 0
    assert visits == ["a", "aa", "b", "bb"], "each operation was tried, and each new one once when it was watched"
    assert purgatory.watched("k") == 4


def test_a_check_within_a_check_completes_each_once_and_counts_each_once() -> None:
    _, purgatory, log = make()
    inner: list[int] = []
    operations = [Operation(name, log) for name in "abc"]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ("k", operation.name), 100)
    for operation in operations:
        operation.ready = True
    operations[0].when_complete = lambda: inner.append(purgatory.check_and_complete("k"))
    assert purgatory.check_and_complete("k") == 1
    assert inner == [2]
    assert log == ["a complete", "b complete", "c complete"]
    assert (len(purgatory), purgatory.watched_keys()) == (0, [])


def test_checks_may_nest_within_the_try_of_an_operation() -> None:
    _, purgatory, log = make()
    depth = [0]
    operations = [Operation(name, log) for name in "abc"]

    def again() -> None:
        if depth[0] < 3:
            depth[0] += 1
            purgatory.check_and_complete("k")
            depth[0] -= 1

    for operation in operations:
        purgatory.try_complete_else_watch(operation, ("k",), 100)
        operation.when_tried = again
    assert purgatory.check_and_complete("k") == 0
    operations[1].ready = True
    purgatory.check_and_complete("k")
    assert log == ["b complete"]
    assert purgatory.operations() == [operations[0], operations[2]]
    operations[0].force_complete()
    operations[2].ready = True
    assert purgatory.check_and_complete("k") == 0, "the innermost check completed it"
    assert len(purgatory) == 0


def test_a_key_that_empties_and_fills_during_a_check_keeps_the_new_operation() -> None:
    _, purgatory, log = make()
    old, new = Operation("old", log), Operation("new", log)
    extra = Operation("extra", log)
    for operation in (old, extra):
        purgatory.try_complete_else_watch(operation, ("k",), 100)

    def replace() -> None:
        extra.force_complete()
        assert purgatory.watched_keys() == []
        purgatory.try_complete_else_watch(new, ("k",), 200)

    old.ready = True
    old.when_complete = replace
    assert purgatory.check_and_complete("k") == 1
    assert purgatory.operations() == [new]
    new.ready = True
    assert purgatory.check_and_complete("k") == 1
    assert log == ["old complete", "extra complete", "new complete"]


def test_cancel_for_key_takes_operations_out_of_all_their_keys_without_completing() -> None:
    wheel, purgatory, log = make()
    both, other = Operation("both", log), Operation("other", log)
    purgatory.try_complete_else_watch(both, ("j", "k"), 100)
    purgatory.try_complete_else_watch(other, ("k",), 100)
    assert purgatory.cancel_for_key("nobody") == []
    assert purgatory.cancel_for_key("j") == [both]
    assert purgatory.operations() == [other]
    assert purgatory.cancelled_total == 1
    assert not both.cancel()
    advance(wheel, 100)
    assert log == ["other complete", "other expired"]
    assert not purgatory.try_complete_else_watch(both, ("k",), 300), "a cancelled operation can be watched again"
    advance(wheel, 300)
    assert log[2:] == ["both complete", "both expired"]
    assert_balanced(purgatory)


def test_a_key_given_twice_counts_once() -> None:
    _, purgatory, log = make()
    operation = Operation("a", log)
    purgatory.try_complete_else_watch(operation, ("k", "j", "k", "j"), 100)
    assert (purgatory.watched("k"), purgatory.watched("j"), purgatory.num_watched) == (1, 1, 2)
    operation.ready = True
    assert purgatory.check_and_complete("k") == 1
    assert_balanced(purgatory)


def test_invalid_calls_are_refused_and_change_nothing() -> None:
    _, purgatory, _ = make()
    operation = Operation()
    with pytest.raises(ValueError, match="at least one key"):
        purgatory.try_complete_else_watch(operation, (), 100)
    unhashable: list[Hashable] = ["fine", []]  # type: ignore[list-item]
    with pytest.raises(TypeError, match="unhashable"):
        purgatory.try_complete_else_watch(operation, unhashable, 100)
    assert (purgatory.watched_keys(), purgatory.num_watched, operation.watched) == ([], 0, False)
    purgatory.try_complete_else_watch(operation, ("k",), 100)
    with pytest.raises(ValueError, match="<x> is watched already"):
        purgatory.try_complete_else_watch(operation, ("j",), 100)
    with pytest.raises(TypeError):
        purgatory.try_complete_else_watch(None, ("j",), 100)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Purgatory(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unhashable"):
        purgatory.check_and_complete([])  # type: ignore[arg-type]
    assert purgatory.watched_keys() == ["k"]
    assert_balanced(purgatory)


def test_an_exception_leaves_the_purgatory_consistent() -> None:
    wheel, purgatory, log = make()
    bad, good = Operation("bad", log), Operation("good", log)
    for operation in (bad, good):
        purgatory.try_complete_else_watch(operation, ("j", "k"), 100)
        operation.ready = True
    bad.when_tried = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        purgatory.check_and_complete("k")
    assert purgatory.operations() == [bad, good], "the operation raised before it was completed, so it still waits"
    bad.when_tried = None
    bad.when_complete = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        purgatory.check_and_complete("k")
    assert purgatory.operations() == [good], "on_complete ran, and will not run again"
    assert purgatory.check_and_complete("k") == 1
    advance(wheel, 100)
    assert log == ["bad complete", "good complete"]
    assert_balanced(purgatory)
    never = Operation("never", log)
    never.when_tried = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        purgatory.try_complete_else_watch(never, ("k",), 100)
    assert not never.watched


def test_the_base_class_waits_for_its_timeout_and_does_nothing() -> None:
    wheel, purgatory, _ = make()
    operation = DelayedOperation()
    assert not purgatory.try_complete_else_watch(operation, ("k",), 5)
    assert purgatory.check_and_complete("k") == 0
    advance(wheel, 5)
    assert operation.completed


class Engine:
    def __init__(self) -> None:
        self.purgatory = Purgatory(TimerWheel(0))
        operation = Operation()
        operation.when_complete = self.stop
        self.purgatory.try_complete_else_watch(operation, ("k", self), 100)
        self.purgatory.try_complete_else_watch(DelayedOperation(), ("k",), 100)

    def stop(self) -> None: ...


def test_an_abandoned_engine_with_waiting_operations_is_collected() -> None:
    engine = Engine()
    watch = weakref.ref(engine)
    operations = [weakref.ref(operation) for operation in engine.purgatory.operations()]
    gc.collect()
    assert all(operation() is not None for operation in operations)
    del engine
    gc.collect()
    assert watch() is None
    assert [operation() for operation in operations] == [None, None]


def test_operations_whose_timers_were_cleared_leave_their_keys() -> None:
    wheel, purgatory, log = make()
    held = Operation("held", log)
    purgatory.try_complete_else_watch(held, ("k",), 100)
    purgatory.try_complete_else_watch(DelayedOperation(), ("j", "k"), 100)
    wheel.clear()
    gc.collect()
    assert (purgatory.watched_keys(), purgatory.num_delayed, purgatory.operations()) == (["k"], 1, [held])
    assert (purgatory.cancelled_total, purgatory.num_watched) == (1, 1)
    held.ready = True
    assert purgatory.check_and_complete("k") == 1
    assert repr(purgatory) == "<Purgatory num_delayed=0 num_watched=0>"


KEYS = st.sampled_from(["a", "b", "c", ("d", 1)])


class AnyInteraction(RuleBasedStateMachine):
    """Operations with shared keys complete, expire, cancel and watch one another in their callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.wheel = TimerWheel(0)
        self.purgatory = Purgatory(self.wheel)
        self.operations: list[Operation] = []
        self.cancelled: set[str] = set()

    def pick(self, number: int) -> Operation:
        return self.operations[number % len(self.operations)]

    def action(self, kind: str, number: int, key: Hashable) -> Callable[[], object] | None:
        def cancel() -> None:
            other = self.pick(number)
            if other.cancel():
                self.cancelled.add(other.name)

        def ready() -> None:
            self.pick(number).ready = True
            self.purgatory.check_and_complete(key)

        return {
            "nothing": None,
            "force": lambda: self.pick(number).force_complete(),
            "cancel": cancel,
            "ready": ready,
            "check": lambda: self.purgatory.check_and_complete(key),
            "watch": lambda: self.watch([key], 50, "nothing", number, key) if len(self.operations) < 60 else None,
        }[kind]

    @rule(
        keys=st.lists(KEYS, min_size=1, max_size=4),
        delay_ms=st.integers(0, 100),
        kind=st.sampled_from(["nothing", "nothing", "force", "cancel", "ready", "check", "watch"]),
        number=st.integers(0, 60),
        key=KEYS,
    )
    def watch(self, keys: list[Hashable], delay_ms: int, kind: str, number: int, key: Hashable) -> None:
        operation = Operation(f"{len(self.operations)}")
        self.operations.append(operation)
        operation.when_complete = self.action(kind, number, key)
        assert not self.purgatory.try_complete_else_watch(operation, keys, self.wheel.now_ms + delay_ms)

    @rule(key=KEYS, ready=st.sets(st.integers(0, 60)))
    def check(self, key: Hashable, ready: set[int]) -> None:
        for index, operation in enumerate(self.operations):
            operation.ready = operation.ready or index in ready
        self.purgatory.check_and_complete(key)

    @rule(key=KEYS)
    def cancel(self, key: Hashable) -> None:
        self.cancelled.update(op.name for op in self.purgatory.cancel_for_key(key) if isinstance(op, Operation))

    @rule(step_ms=st.integers(0, 60))
    def advance(self, step_ms: int) -> None:
        advance(self.wheel, self.wheel.now_ms + step_ms)

    @invariant()
    def each_waits_or_was_completed_once(self) -> None:
        assert_balanced(self.purgatory)
        waiting = self.purgatory.operations()
        assert len(set(map(id, waiting))) == len(waiting)
        for operation in self.operations:
            name = operation.name
            completions = operation.log.count(f"{name} complete")
            assert completions == int(operation.completed) <= 1
            assert operation.log in ([], [f"{name} complete"], [f"{name} complete", f"{name} expired"])
            assert operation.watched == any(operation is other for other in waiting)
            assert operation.watched + operation.completed + (name in self.cancelled and not operation.completed) == 1


TestAnyInteraction = AnyInteraction.TestCase
TestAnyInteraction.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
