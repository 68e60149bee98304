"""An engine that is interrupted at any point: it continues, or it refuses everything until it is opened again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.errors import EngineInterruptedError, ReentrantCallError
from tests.kit import commit, committed, fetch, make_topic, wait_until
from tools.interrupting.ledger import SETTINGS, Ledger, RefusedError
from tools.simulate.interrupts import InterruptAt, interrupted, without_collections


def interrupt_at(point: int, action: Callable[[], object]) -> bool:
    """Calls `action` with a KeyboardInterrupt at an event of kcore's functions.

    Returns:
        True if the interrupt occurred; False if `action` ended before that event.
    """
    with (
        suppress(KeyboardInterrupt, EngineInterruptedError, RefusedError),
        interrupted(point, KeyboardInterrupt, lambda _: None) as interrupt,
    ):
        action()
    return interrupt.raised


def everywhere(action: Callable[[int], bool], most: int, step: int = 1) -> int:
    """Calls `action` with an interrupt at each point in turn, until a call ends without an interrupt. Returns the
    number of points.
    """
    for point in range(0, most, step):
        if not action(point):
            return point
    return most


@pytest.mark.parametrize(
    ("name", "step"),
    [
        *(("commit", 3), ("produce", 3), ("transaction", 15), ("join", 21), ("consumer join", 15)),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("commit", 1), ("produce", 1), ("transaction", 5), ("join", 7), ("consumer join", 5))
        ),
    ],
)
def test_an_interrupt_at_any_call_loses_nothing_that_was_acknowledged(tmp_path: Path, name: str, step: int) -> None:
    ledger = Ledger(tmp_path / "data")

    def interrupt(point: int) -> bool:
        was_interrupted = interrupt_at(point, ledger.steps[name])
        for other in ("commit", "produce", "transaction", "classic", "consumer"):
            ledger.until_acknowledged(other)
        if point % 20 < step:
            ledger.check_folder()
        return was_interrupted

    points = everywhere(interrupt, 3_000, step)
    assert 20 < points < 3_000
    ledger.check()
    ledger.check_folder()
    ledger.close()
    assert ledger.reopened > 0


def test_an_interrupted_open_leaves_nothing_locked(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with kcore.open(path, config=SETTINGS) as engine:
        make_topic(engine, "t")
        engine.send(commit("g", {("t", 0): 7}), 9)

    def interrupt(point: int) -> bool:
        opened: list[kcore.EmbeddedNode] = []
        was_interrupted = interrupt_at(point, lambda: opened.append(kcore.open(path, config=SETTINGS)))
        for engine in opened:
            engine.close()
        with kcore.open(path, config=SETTINGS) as engine:
            assert committed(engine, "g") == {("t", 0): 7}
        return was_interrupted

    assert everywhere(interrupt, 100_000, 97) > 97


def test_an_interrupted_close_may_be_repeated_and_releases_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "data"

    def interrupt(point: int) -> bool:
        engine = kcore.open(path, config=SETTINGS)
        if point == 0:
            make_topic(engine, "t")
        engine.send(commit("g", {("t", 0): point}), 9)
        was_interrupted = interrupt_at(point, engine.close)
        engine.close()
        with kcore.open(path, config=SETTINGS) as again:
            assert committed(again, "g") == {("t", 0): point}
        return was_interrupted

    assert everywhere(interrupt, 1_000) > 5


def test_a_broken_engine_refuses_everything_and_wakes_waiting_callers(tmp_path: Path) -> None:
    engine = kcore.open(tmp_path / "data", config=SETTINGS)
    make_topic(engine, "t")
    ends: list[BaseException] = []

    def poll() -> None:
        try:
            engine.send(fetch("t", wait_ms=3_600_000), 12)
        except EngineInterruptedError as error:
            ends.append(error)

    sleeper = threading.Thread(target=poll)
    sleeper.start()
    wait_until(lambda: engine._driver._sleepers, "the poll parks")
    decide = engine.engine.submit
    engine.engine.submit = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        engine.send(commit("g", {("t", 0): 1}), 9)
    engine.engine.submit = decide  # type: ignore[method-assign]
    for call in (
        lambda: engine.send(commit("g", {("t", 0): 1}), 9),
        lambda: engine.start(commit("g", {("t", 0): 1}), 9),
    ):
        with pytest.raises(EngineInterruptedError, match="open it again"):
            call()
    sleeper.join(30)
    assert len(ends) == 1
    engine.close()
    engine.close()
    with kcore.open(tmp_path / "data", config=SETTINGS) as again:
        assert committed(again, "g") == {}


def test_an_interrupt_of_a_caller_that_waits_does_no_harm() -> None:
    with kcore.open(config=SETTINGS | {"kcore.durability": "memory"}) as engine:
        make_topic(engine, "t")
        for point in range(40):
            # Tries every moment after the first sleep. Earlier moments are in the decision.
            def poll() -> None:
                engine.send(fetch("t", wait_ms=1), 12)

            driver = engine._driver
            wait, interrupt = driver._wait, InterruptAt(point, KeyboardInterrupt)

            def interrupted_wait(*arguments: Any, wait: Any = wait, interrupt: InterruptAt = interrupt) -> None:
                with without_collections():
                    sys.setprofile(interrupt)
                    try:
                        # A thread that continues after its sleep executes the engine, and is not interrupted here.
                        wait(*arguments)
                    finally:
                        sys.setprofile(None)

            turn = driver.turn
            driver.turn = lambda: None  # type: ignore[method-assign]
            driver._wait = interrupted_wait  # type: ignore[method-assign]
            try:
                engine.send(fetch("t", wait_ms=3_600_000), 12, timeout_s=0.001)
            except (KeyboardInterrupt, TimeoutError):
                pass
            finally:
                driver.turn = turn  # type: ignore[method-assign]
                driver._wait = wait  # type: ignore[method-assign]
            response = engine.send(commit("g", {("t", 0): point}), 9)
            assert response.topics[0].partitions[0].error_code == 0
            assert not driver._sleepers


@pytest.mark.parametrize("call", ["send", "start", "advance", "close"])
def test_a_call_from_inside_the_engine_is_refused_at_once(call: str) -> None:
    """A signal handler runs on the thread that is executing the engine. In this test, a callback of the log takes the
    place of the handler.
    """
    clock = kcore.ManualClock()
    engine = kcore.open(config=SETTINGS | {"kcore.durability": "memory"}, clock=clock)
    make_topic(engine, "t")
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: engine.send(commit("h", {("t", 0): 1}), 9),
        "start": lambda: engine.start(commit("h", {("t", 0): 1}), 9),
        "advance": lambda: engine.advance(1),
        "close": engine.close,
    }
    raised: list[BaseException] = []
    submit = engine.engine.submit

    def handler_in_the_middle(*arguments: Any) -> Any:
        try:
            calls[call]()
        except ReentrantCallError as error:
            raised.append(error)
        return submit(*arguments)

    engine.engine.submit = handler_in_the_middle  # type: ignore[method-assign]
    try:
        response = engine.send(commit("g", {("t", 0): 3}), 9)
    finally:
        engine.engine.submit = submit  # type: ignore[method-assign]
    assert response.topics[0].partitions[0].error_code == 0
    assert len(raised) == 1
    assert committed(engine, "g") == {("t", 0): 3}
    assert committed(engine, "h") == {}
    engine.close()


def test_a_call_from_a_handler_before_the_engine_is_entered_is_served() -> None:
    """A signal may arrive after the engine's lock was taken but before the engine is entered, or after the engine was
    left.
    """
    with kcore.open() as engine, engine._driver._lock:
        assert engine.send(commit("g", {("t", 0): 3}), 9).topics[0].partitions[0].error_code == 3
