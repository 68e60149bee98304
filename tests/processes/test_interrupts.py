"""Exceptions at every call and every line of commits and take-overs, on nodes that share a data folder."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kcore.log import LogEngine, LogError, journal
from tests.faults.log_model import Change, at_call, at_line, in_background, in_place, large, observed, small
from tests.log.batches import key
from tests.processes.subject import CONTROLLER, SharedSubject

STEPS = [pytest.param(13, id="some"), pytest.param(1, id="all", marks=pytest.mark.long)]
"""Number of calls or lines from one fault to the next. With 1, which only `make test-long` uses, each call or line is
interrupted.
"""
ERRORS = [KeyboardInterrupt, MemoryError]
UNDISTURBED = 2


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedSubject]:
    # A destructor that the collector runs during a fault would take its exception.
    gc.collect()
    gc.disable()
    # With a journal of three rounds, every case sometimes moves the journal, and writes rounds between the moves.
    monkeypatch.setattr(journal, "MAX_ENTRIES", 3)
    yield SharedSubject(tmp_path, reopen_every=5)
    gc.enable()


@pytest.mark.parametrize("commit", [in_place, in_background])
@pytest.mark.parametrize("change", [small, large])
@pytest.mark.parametrize("where", [at_call, at_line])
@pytest.mark.parametrize("step", STEPS)
def test_an_exception_anywhere_in_a_commit_loses_no_acknowledged_write(
    subject: SharedSubject,
    where: Callable[..., object],
    change: Change,
    commit: Callable[[LogEngine], None],
    step: int,
) -> None:
    subject.grow(change, 2)
    nth = missed = hits = rounds = 0
    while missed < UNDISTURBED:
        nth += step
        rounds += 1
        error = ERRORS[rounds % len(ERRORS)]()
        hit = subject.disturb(change, commit, lambda nth=nth, error=error: where(nth, error))  # type: ignore[misc]
        missed = 0 if hit else missed + 1
        hits += hit
    assert hits > 100 // step
    assert subject.outcomes["went on"] == rounds
    subject.close()


@pytest.mark.parametrize("where", [at_call, at_line])
@pytest.mark.parametrize("step", STEPS)
def test_an_exception_anywhere_in_a_take_over_loses_no_acknowledged_write(
    subject: SharedSubject, where: Callable[..., object], step: int
) -> None:
    subject.grow(small, 2)
    nth = missed = hits = rounds = 0
    while missed < UNDISTURBED:
        nth += step
        rounds += 1
        subject.grow(small, 1)
        hit = False
        try:
            with where(nth, ERRORS[rounds % len(ERRORS)]()):  # type: ignore[attr-defined]
                partitions = subject.move(CONTROLLER)
                subject.controller.adopt(partitions)
        except (KeyboardInterrupt, MemoryError, LogError):
            hit = True
            recover(subject)
            subject.controller.adopt(subject.move(CONTROLLER))
        for number in range(3):
            log = subject.controller.get(key(number))
            assert log is not None
            stored = [data for _, data in log.batches()]
            assert stored == [data for _, _, data in subject.state.partitions[number].batches]
            subject.controller.release(key(number))
        subject._reopen([subject.state])
        missed = 0 if hit else missed + 1
        hits += hit
    assert hits > 100 // step
    assert observed(subject.engine)
    subject.close()


def recover(subject: SharedSubject) -> None:
    """Commits or rolls back the controller's interrupted round. Updates the leader epoch that the subject remembers."""
    controller = subject.controller
    controller.recover()
    for _ in range(3):
        try:
            controller.commit()
            break
        except LogError:
            continue
    controller.rollback()
    rows = {row.key: row for row in subject.shared.open().leaders()}
    epochs = {rows[key(number)].leader_epoch for number in range(3)}
    assert len(epochs) == 1, "a round moves all partitions or none"
    [subject._epoch] = epochs
    for number in range(3):
        controller.release(key(number))
