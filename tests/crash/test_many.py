"""The program `tests.crash.many` finds no violation, and finds planted defects of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcore.log import DataFolderError
from tests.crash.many import ViolationError, kills, power_failures
from tools.simulate.mutants import MUTANTS

PLANTED = ["no-flush", "no-journal-replay", "last-entry-lost", "torn-entry", "other-area-unread", "area-unmoved"]


def test_power_failures_lose_no_acknowledged_round() -> None:
    counts = power_failures(25, 1)
    assert counts["struck a commit"] > 12
    assert counts["struck a move"] > 0
    assert counts["acknowledged rounds"] > 150


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found_by_power_failures(name: str) -> None:
    with MUTANTS[name].planted(), pytest.raises((ViolationError, DataFolderError)):
        power_failures(60, 3)


@pytest.mark.crash
def test_killed_processes_lose_no_acknowledged_write(tmp_path: Path) -> None:
    counts = kills(15, 2, tmp_path)
    assert counts["writing"] + counts["opening"] == 15
    assert counts["acknowledged writes"] > 2 * counts["writing"]


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_a_planted_defect_is_found_by_kills(tmp_path: Path) -> None:
    """The planted defect loses the journal's last entry when the folder is opened. The test ends at the first kill that
    shows this.

    On a slow machine, many processes are killed before their first entry is acknowledged.
    """
    with MUTANTS["last-entry-lost"].planted(), pytest.raises(ViolationError, match=r"(was|were) acknowledged"):
        kills(400, 3, tmp_path)
