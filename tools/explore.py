"""Runs the property tests with random seeds for a given time.

    python -m tools.explore --seconds 600                       every file with property tests, in turn
    python -m tools.explore --seconds 60 tests/log tests/group  only these
    python -m tools.explore --seconds 60 --seed 7               the runs derived from seed 7

`make test` runs the same tests with the same examples each time. This program gives each run of a file a new seed, for
Hypothesis and for the tests marked `seeded`. A failure is printed with the smallest example that Hypothesis found and
with the command that repeats it; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROPERTY_TEST = re.compile(
    r"^from hypothesis\b|^import hypothesis\b|strategies import .*\bexamples\b|mark\.seeded\b", re.M
)
SELECTED = "(hypothesis or seeded) and not spark"
NO_TESTS = 5  # pytest's exit status if no test was selected
GRACE_S = 60.0  # extra time for the last run when the time is over
SHOWN_LINES = 120  # lines of a failure; pytest prints the examples at the end


def property_tests(paths: list[Path]) -> list[Path]:
    """Returns the sorted test files below `paths` that have property tests, or tests with the mark `seeded`."""
    files: set[Path] = set()
    for path in paths:
        files.update([path] if path.is_file() else path.rglob("test_*.py"))
    return sorted(file for file in files if PROPERTY_TEST.search(file.read_text(encoding="utf-8")))


def command_of(file: Path, seed: int) -> list[str]:
    """Returns the arguments of the pytest run of one file with one seed."""
    return [
        *(sys.executable, "-m", "pytest", "-q", "--tb=short", "-m", SELECTED),
        *("--hypothesis-profile=explore", f"--hypothesis-seed={seed}", os.path.relpath(file, ROOT)),
    ]


def run(file: Path, seed: int, timeout_s: float) -> tuple[int | None, str]:
    """Runs one file with one seed.

    Returns: (exit status of pytest, its output). The status is None if the time limit was reached first, which is no
    failure.
    """
    environment = {**os.environ, "KCORE_SEED": str(seed)}
    try:
        done = subprocess.run(
            command_of(file, seed),
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return (0 if done.returncode == NO_TESTS else done.returncode), done.stdout


def report(file: Path, seed: int, output: str) -> None:
    """Prints a failure and the command that repeats it."""
    lines = output.rstrip().splitlines()
    if len(lines) > SHOWN_LINES:
        print(f"... the last {SHOWN_LINES} of {len(lines)} lines:")
    print("\n".join(lines[-SHOWN_LINES:]))
    print(f"\n{file.relative_to(ROOT)} fails with seed {seed}. Again:")
    print(f"  KCORE_SEED={seed} {shlex.join(command_of(file, seed))}\n", flush=True)


def explore(files: list[Path], seconds: float, seed: int) -> int:
    """Runs `files` in random order, repeatedly, each time with another seed. Returns the number of failed runs."""
    rng = random.Random(seed)
    until_s = time.monotonic() + seconds
    runs = failures = 0
    covered: set[Path] = set()
    while time.monotonic() < until_s:
        for file in rng.sample(files, len(files)):
            file_seed = rng.randrange(1 << 32)
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                break
            status, output = run(file, file_seed, left_s + GRACE_S)
            if status is None:
                print(f"{file.relative_to(ROOT)} seed {file_seed}: stopped, the time is over")
                break
            runs += 1
            covered.add(file)
            summary = output.rstrip().rpartition("\n")[2]
            print(f"{file.relative_to(ROOT)} seed {file_seed}: {summary}", flush=True)
            if status:
                failures += 1
                report(file, file_seed, output)
    print(f"seed {seed}: {runs} runs of {len(covered)} of {len(files)} files, {failures} failed")
    return failures


def main() -> int:
    """Runs the property tests. Returns 1 if any run failed, and 2 if there is no test to run."""
    parser = argparse.ArgumentParser(description="Runs the property tests with random seeds until the time is over.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "tests"], help="files or folders of tests")
    options = parser.parse_args()
    files = property_tests([path.resolve() for path in options.paths])
    if not files:
        print("there are no property tests", file=sys.stderr)
        return 2
    print(f"seed {options.seed}: {len(files)} files, {options.seconds:.0f} s", flush=True)
    return 1 if explore(files, options.seconds, options.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
