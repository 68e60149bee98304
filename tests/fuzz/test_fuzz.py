"""A short run of the fuzzer over every target, a check of all its earlier findings, and a check that it finds planted
defects.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.seeds import SEED
from tools import fuzz
from tools.fuzzing.targets import TARGETS, Target

COUNTS = {"requests": 1_000, "metadata": 1_000, "sasl": 400, "columns": 50, "replays": 150}
CASES = sorted(fuzz.CORPUS.glob("*.hex"))


@pytest.mark.seeded
@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run_has_no_findings(name: str) -> None:
    """Runs as many inputs as take about a third of a second; `make fuzz SECONDS=...` runs longer."""
    print(f"KCORE_SEED={SEED}")
    count = COUNTS.get(name, 2_000)
    number, data, wrong = fuzz.fuzz(name, SEED, count, None)
    assert wrong is None, f"{wrong}\n{data.hex()}"
    assert number == count


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_earlier_findings_stay_fixed(case: Path) -> None:
    assert fuzz.replay(*fuzz.read_case(case)) is None


def test_the_corpus_is_not_empty() -> None:
    assert CASES


class Planted(Target):
    """A parser with defects at the bytes b"BUG?"."""

    name = "planted"
    bug = staticmethod(lambda: None)

    def make(self, rng: random.Random) -> bytes:
        return b"........BUG?........" if rng.random() < 0.1 else rng.randbytes(20)

    def run(self, data: bytes) -> None:
        if b"BUG?" in data:
            type(self).bug()


def _raises() -> None:
    raise KeyError("planted")


def _hangs() -> None:
    time.sleep(60)


def _hangs_deaf() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    time.sleep(60)


def _crashes() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _takes_memory() -> None:
    """Takes memory until the peak has grown by 16 MiB.

    A fixed size does not always raise the peak: the allocator can reuse resident memory that earlier tests of the same
    process have freed.
    """
    before = fuzz.peak_bytes()
    taken = bytearray()
    while fuzz.peak_bytes() - before < 16 << 20:
        taken += b"\x5a" * (1 << 20)


@pytest.mark.parametrize(
    ("bug", "expected"),
    [
        (_raises, "KeyError"),
        (_hangs, "TooLongError"),
        (_hangs_deaf, "Hang"),
        (_crashes, "killed by SIGKILL"),
        (_takes_memory, "MemoryGrowth"),
    ],
)
def test_planted_bugs_are_found_and_minimised(
    bug: object, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Plants an exception, a hang (even one that blocks signals), a crash and a large allocation. The fuzzer finds the
    smallest input of each.
    """
    monkeypatch.setattr(Planted, "bug", staticmethod(bug))
    monkeypatch.setitem(TARGETS, "planted", Planted)
    # A slow machine must not report a planted bug as another one, so only the limit under test is short.
    monkeypatch.setattr(fuzz, "INPUT_S", 0.2 if bug in (_hangs, _hangs_deaf) else 30.0)
    monkeypatch.setattr(fuzz, "HANG_S", 0.8 if bug is _hangs_deaf else 50.0)
    monkeypatch.setattr(fuzz, "MEMORY_BYTES", 8 << 20)
    monkeypatch.setattr(fuzz, "SHRINK_TRIES", 24)
    _, data, wrong = fuzz.fuzz("planted", 1, 5_000, None)
    assert wrong is not None
    assert wrong.startswith(expected)
    assert b"BUG?" in data
    fuzz.report("planted", 1, data, wrong, tmp_path)
    (file,) = tmp_path.iterdir()
    name, small = fuzz.read_case(file)
    assert (name, small) == ("planted", b"BUG?")
    assert small.hex() in capfd.readouterr().out


def test_the_same_seed_gives_the_same_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "planted", Planted)
    monkeypatch.setattr(Planted, "bug", staticmethod(_raises))
    first, second, other = (fuzz.fuzz("planted", seed, 5_000, None) for seed in (3, 3, 4))
    assert first == second
    assert first != other


def test_a_target_that_is_slow_to_start_is_fuzzed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit begins when the target is ready. At least one input runs even if the limit is 0."""
    monkeypatch.setitem(TARGETS, "planted", Planted)
    assert fuzz.fuzz("planted", 1, None, 0.0)[::2] == (1, None)


def test_a_process_that_ends_without_a_word_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target ends its process without an exception, as a sanitizer does after its report."""
    monkeypatch.setitem(TARGETS, "planted", Planted)
    monkeypatch.setattr(Planted, "bug", staticmethod(lambda: os._exit(3)))
    _, data, wrong = fuzz.fuzz("planted", 1, 5_000, None)
    assert (b"BUG?" in data, wrong) == (True, "exit status 3")
