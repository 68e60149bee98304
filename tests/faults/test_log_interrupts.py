"""An exception at every call and every line of a commit: memory and file agree, and no acknowledged write is lost.

`log_model` describes the comparison. Commits run inline and in the background. Their rounds are small enough for the
journal, too large for it, or create and drop partitions.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kcore.log import LogEngine, journal
from tests.faults.allocations import require_failing_allocations
from tests.faults.log_model import (
    Change,
    Subject,
    at_call,
    at_line,
    everything,
    in_background,
    in_place,
    large,
    small,
)

ERRORS = [KeyboardInterrupt, MemoryError]
ROOT = Path(__file__).parents[2]
UNDISTURBED = 2
"""Number of consecutive runs in which the fault has no effect. A test then ends, because these faults come after the
commit.
"""


MEMORY, LMDB, MOVED_BESIDE = "memory", "lmdb", "lmdb, moved beside"


@pytest.fixture
def subject(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    # With a journal of three rounds, every case sometimes moves the journal, and writes rounds between the moves.
    monkeypatch.setattr(journal, "MAX_ENTRIES", 3)
    folder = None if store == MEMORY else tmp_path / "data"
    return Subject(folder, reopen_every=5, beside=store == MOVED_BESIDE)


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("commit", [in_place, in_background])
@pytest.mark.parametrize("change", [small, large, everything])
@pytest.mark.parametrize(
    ("store", "where"),
    [
        (MEMORY, at_call),
        (LMDB, at_call),
        (LMDB, at_line),
        (MOVED_BESIDE, at_call),
        pytest.param(MEMORY, at_line, marks=pytest.mark.long),
        pytest.param(MOVED_BESIDE, at_line, marks=pytest.mark.long),
    ],
)
def test_an_exception_anywhere_in_a_commit_loses_no_acknowledged_write(
    subject: Subject,
    where: Callable[..., object],
    change: Change,
    commit: Callable[[LogEngine], None],
    step: int,
) -> None:
    """The exception comes at each third call or line, or (in the long test) at each one."""
    subject.grow(change, 2)
    nth = missed = hits = runs = 0
    while missed < UNDISTURBED:
        nth += step
        runs += 1
        error = ERRORS[nth % len(ERRORS)]()
        hit = subject.disturb(change, commit, lambda nth=nth, error=error: where(nth, error))  # type: ignore[misc]
        missed = 0 if hit else missed + 1
        hits += hit
    assert hits > 30 // step
    # A single fault never stops the engine, so no engine had to be opened again.
    assert subject.outcomes["went on"] == runs
    assert subject.outcomes["opened again"] > runs // 6
    subject.close()


@pytest.mark.parametrize("commit", [in_place, in_background])
@pytest.mark.parametrize("change", [small, everything])
@pytest.mark.parametrize("store", [MEMORY, LMDB, MOVED_BESIDE])
def test_a_second_exception_while_the_first_one_is_handled_loses_nothing(
    subject: Subject, change: Change, commit: Callable[[LogEngine], None]
) -> None:
    """After random first faults, a second exception interrupts the handler of the first one, at each line of the
    handler in turn.
    """
    rng = random.Random(7)
    subject.grow(change, 2)
    for behind in range(1, 60):
        nth = rng.randrange(5, 90)
        error = ERRORS[behind % 2]()
        subject.disturb(change, commit, lambda nth=nth, error=error, behind=behind: at_call(nth, error, behind))  # type: ignore[misc]
    assert subject.outcomes["opened again"] > 59 // 6
    subject.close()


@pytest.mark.parametrize(
    ("store", "change", "commit"),
    [
        ("lmdb", "small", "in_background"),
        ("lmdb", "everything", "in_place"),
        ("memory", "everything", "in_background"),
        pytest.param("lmdb", "small", "in_place", marks=pytest.mark.long),
        pytest.param("lmdb, moved beside", "small", "in_place", marks=pytest.mark.long),
        pytest.param("lmdb, moved beside", "everything", "in_background", marks=pytest.mark.long),
        pytest.param("lmdb", "large", "in_place", marks=pytest.mark.long),
        pytest.param("lmdb", "everything", "in_background", marks=pytest.mark.long),
    ],
)
def test_an_allocation_that_fails_in_a_commit_loses_nothing(
    store: str, change: str, commit: str, tmp_path: Path
) -> None:
    require_failing_allocations()
    folder = "-" if store == "memory" else str(tmp_path / "data")
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.faults.log_memory", folder, change, commit]
    command += ["beside"] if "beside" in store else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 20
