"""A log engine and its model, for tests that interrupt the engine at any point.

A `Subject` holds an engine on a folder and the state that it must have. `disturb` makes a change of many parts, in
which a fault occurs. Then the engine continues, or is closed and opened again. At each point, either the whole change
or no part of it must be visible, and memory and file must agree.
"""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kcore.log import LmdbLogEngine, LogEngine, LogError, MemoryLogEngine, MemoryStorage
from kcore.log.journal import MAX_ENTRY_BYTES
from tests.log.batches import batch, contents, key, stamped
from tools.simulate.interrupts import without_collections

PARTITIONS = 3
TRIES = 3
PACKAGES = (str(Path(__file__).parents[2] / "kcore"),)

Fault = Callable[[], Any]
"""A function that returns a context manager. The fault occurs within its block."""


@dataclass
class Partition:
    start: int = 0
    end: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """All batches as (base offset, end offset, bytes), including deleted ones."""

    def append(self, data: bytes | bytearray, records: int) -> None:
        self.batches.append((self.end, self.end + records, stamped(data, self.end, 0)))
        self.end += records


@dataclass
class State:
    partitions: dict[int, Partition] = field(default_factory=dict)
    metas: dict[str, bytes] = field(default_factory=dict)

    def copy(self) -> State:
        parts = {number: Partition(one.start, one.end, list(one.batches)) for number, one in self.partitions.items()}
        return State(parts, dict(self.metas))

    def visible(self) -> Any:
        parts = {
            number: (one.start, one.end, [data for _, end, data in one.batches if end > one.start])
            for number, one in self.partitions.items()
        }
        return parts, self.metas


def observed(engine: LogEngine) -> Any:
    """Returns the committed state of an engine, in the same format as `State.visible`."""
    parts = {}
    for where in engine.partitions():
        log = engine.get(where)
        assert log is not None
        stored = contents(log)
        if stored:
            assert log.read(log.high_watermark - 1, 1) == stored[-1:]
            first = log.read(log.log_start_offset, 1 << 30)
            assert first == stored[: len(first) or 1]
        parts[where.partition] = (log.log_start_offset, log.high_watermark, stored)
    return parts, {name: engine.get_meta(name) for name in engine.meta_names()}


# ---- changes: each stages the same in an engine and in a state


@functools.lru_cache(maxsize=64)
def made(records: int, size_bytes: int, fill: int) -> bytes:
    """Returns a batch from a cache. An existing batch takes no memory, so that failing allocations occur in the
    engine.
    """
    return bytes(batch(records, size_bytes, fill=fill))


def small(engine: LogEngine, state: State, turn: int) -> None:
    """Appends small batches to several partitions. Together the batches fit into the journal."""
    for number in (0, 1, 1, 2):
        data = made(1 + number, 20, turn % 256)
        engine.open(key(number)).append(data, 0)
        state.partitions.setdefault(number, Partition()).append(data, 1 + number)


def large(engine: LogEngine, state: State, turn: int) -> None:
    """Appends more bytes than the journal can hold, so the journal is moved and the round is written to the log."""
    small(engine, state, turn)
    data = made(2, MAX_ENTRY_BYTES, turn % 256)
    engine.open(key(0)).append(data, 0)
    state.partitions[0].append(data, 2)


def everything(engine: LogEngine, state: State, turn: int) -> None:
    """Appends batches, creates a partition, drops another one, moves a log start, and changes metadata."""
    small(engine, state, turn)
    engine.open(key(1000 + turn)).append(made(1, 30, 0), 0)
    state.partitions.setdefault(1000 + turn, Partition()).append(made(1, 30, 0), 1)
    for number in [one for one in state.partitions if one >= 1000 and one != 1000 + turn]:
        engine.drop(key(number))
        del state.partitions[number]
    log = engine.open(key(2))
    if log.high_watermark > 40:
        log.delete_before(log.high_watermark - 40)
        state.partitions[2].start = max(state.partitions[2].start, log.high_watermark - 40)
    engine.put_meta("turn", b"%d" % turn)
    state.metas["turn"] = b"%d" % turn


Change = Callable[[LogEngine, State, int], None]


def in_place(engine: LogEngine) -> None:
    engine.commit()


def in_background(engine: LogEngine) -> None:
    """Seals, writes and finishes a round as the commit pipeline does. Meanwhile batches of the next
    round are staged.
    """
    write_set = engine.seal()
    engine.open(key(1)).append(made(1, 20, 9), 0)
    try:
        engine.write(write_set)
    except BaseException as error:
        if write_set.is_durable:
            engine.finish(write_set)
        else:
            engine.fail(write_set, error)
        raise
    engine.finish(write_set)


class Subject:
    """An engine, and the state that it must have.

    Args:
        folder: the data folder; None: a log in memory.
        reopen_every: the number of changes after which the log is closed and opened again. An engine that refuses
            further calls is opened again at once.
        beside: True to move each full area of the journal to the log as soon as a commit has begun the other area.
    """

    def __init__(self, folder: Path | None, reopen_every: int = 1, *, beside: bool = False) -> None:
        self.folder = folder
        self.beside = beside
        self.reopen_every = reopen_every
        self.memory = MemoryStorage()
        self.engine = self.open()
        self.state = State()
        self.turn = 0
        self.outcomes: dict[str, int] = {}

    def open(self) -> LogEngine:
        if self.folder is None:
            return MemoryLogEngine(self.memory)
        engine = LmdbLogEngine(self.folder, map_size_bytes=16 << 20, tail_size_bytes=2_000)
        if self.beside:
            engine.move_beside(lambda move: move() is None)
        return engine

    def grow(self, change: Change, rounds: int) -> None:
        """Makes changes and commits them, without faults."""
        for _ in range(rounds):
            self.turn += 1
            change(self.engine, self.state, self.turn)
            self.engine.commit()

    def disturb(self, change: Change, commit: Callable[[LogEngine], None], fault: Fault) -> bool:
        """Makes a change in which a fault may occur, and checks the state afterwards. Returns True if the fault
        occurred.
        """
        self.turn += 1
        before, after = self.state, self.state.copy()
        change(_Nowhere(before), after, self.turn)  # type: ignore[arg-type]
        hit = staged = False
        try:
            with fault():
                # On a copy of the state, because the fault may leave the copy incomplete.
                change(self.engine, before.copy(), self.turn)
                staged = True
                commit(self.engine)
        except (KeyboardInterrupt, MemoryError, LogError):
            hit = True
        if not staged:
            self._give_up()
        elif commit is in_background:
            self.engine.recover()
        possible = [before, after] if staged and hit else [before if hit else after]
        if not self._go_on(possible) or self.turn % self.reopen_every == 0:
            self._reopen(possible)
        return hit

    def _give_up(self) -> None:
        """Ends a change that was staged in part: either the owner of the change reverts it, or the engine refuses to
        commit.
        """
        if self.engine._interrupted_change:  # type: ignore[attr-defined]
            with pytest.raises(LogError, match="interrupted"):
                self.engine.commit()
        else:
            self.engine.rollback()
        assert not self.engine.dirty

    def _go_on(self, possible: list[State]) -> bool:
        """Commits until that succeeds, and checks that the visible state is one of `possible`. Returns False if no
        commit succeeds.
        """
        for _ in range(TRIES):
            data = made(1, 25, 77)
            try:
                for number in range(PARTITIONS):
                    self.engine.open(key(number)).append(data, 0)
                self.engine.commit()
            except LogError:
                continue
            for state in possible:
                for number in range(PARTITIONS):
                    state.partitions.setdefault(number, Partition()).append(data, 1)
            self._settle(possible, observed(self.engine), "went on")
            return True
        return False

    def _reopen(self, possible: list[State]) -> None:
        self.engine.close()
        self.engine = self.open()
        self._settle(possible, observed(self.engine), "opened again")
        assert self.engine.verify(deep=True) == []

    def _settle(self, possible: list[State], found: Any, when: str) -> None:
        fitting = [state for state in possible if state.visible() == found]
        assert fitting, f"{when} in turn {self.turn}: {found}\nis none of {[state.visible() for state in possible]}"
        possible[:] = fitting[:1]
        self.state = fitting[0]
        self.outcomes[when] = self.outcomes.get(when, 0) + 1

    def close(self) -> None:
        self.engine.close()


class _Nowhere:
    """Replaces the engine while a change is applied only to a model state. Has the high watermarks from before the
    change.
    """

    def __init__(self, before: State) -> None:
        self._ends = {number: one.end for number, one in before.partitions.items()}

    def open(self, where: Any) -> _NoLog:
        return _NoLog(self._ends.get(where.partition, 0))

    def drop(self, where: Any) -> None: ...

    def put_meta(self, name: str, value: bytes) -> None: ...


@dataclass
class _NoLog:
    high_watermark: int

    def append(self, data: bytes | bytearray, leader_epoch: int) -> None: ...

    def delete_before(self, offset: int) -> None: ...


# ---- faults


def _ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(PACKAGES)


def _safe(frame: FrameType) -> bool:
    """Returns True at a line where no signal can interrupt: at `try` and `return`, and after a `with` block.

    A trace function could raise an exception even at such a line, where no handler is active, and leave a lock
    acquired.
    """
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return line.startswith("with ") or line in ("try:", "return", "break", "continue")


@contextmanager
def at_call(nth: int, error: BaseException, behind: int = 0) -> Iterator[None]:
    """Raises `error` at the `nth` call or return of kcore's code or of functions that it calls; 0: never.

    At these points CPython runs signal handlers. With `behind`, the error is raised a second time, after this number of
    further lines of kcore's code.
    """
    calls = lines = 0
    struck = False

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls, struck
        if event != "c_call" and not struck and _ours(frame):
            calls += 1
            if calls == nth:
                struck = True
                raise error

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not _ours(frame):
            return None
        if struck and event == "line" and not _safe(frame):
            lines += 1
            if lines == behind:
                raise error
        return trace

    with without_collections():
        if behind:
            sys.settrace(trace)
        sys.setprofile(profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            sys.settrace(None)


@contextmanager
def at_line(nth: int, error: BaseException) -> Iterator[None]:
    """Raises `error` before the `nth` line of kcore's code; 0: never."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not _ours(frame):
            return None
        if event == "line" and not _safe(frame):
            lines += 1
            if lines == nth:
                raise error
        return trace

    with without_collections():
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(None)
