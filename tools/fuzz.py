"""Fuzzes every decoder of untrusted bytes.

    python -m tools.fuzz --seconds 30                      every target in turn, from a new seed
    python -m tools.fuzz --count 500 --seed 7              500 inputs per target; a seed always gives the same ones
    python -m tools.fuzz --replay tests/fuzz/corpus/x.hex  one input (the file's name contains its target)

Inputs run one after another in a child process. If an input raises, crashes the process, or takes too much time or
memory, the tool minimises it, prints it as hex with the seed, and writes it to a file.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import mmap
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tools.fuzzing.targets import TARGETS, Target
from tools.fuzzing.values import mutated

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "corpus"
SANITIZED = bool(os.environ.get("KCORE_SANITIZE"))  # a sanitizer build: slower, and it uses additional memory
INPUT_S = 50.0 if SANITIZED else 5.0  # time limit of one input; then the process that runs it gets a signal
HANG_S = 4 * INPUT_S  # after this time the signal was not delivered, and the process is killed
MEMORY_BYTES = (512 if SANITIZED else 64) << 20  # limit by which one input may raise the peak memory
MAX_INPUT_BYTES = 1 << 20
SHRINK_TRIES = 400
POOL_SIZE = 64  # inputs of a target kept for mixing with others


class TooLongError(Exception):
    """An input took longer than `INPUT_S`."""


def _alarm(*_: object) -> None:
    raise TooLongError(f"more than {INPUT_S} s")


def _forget_peak() -> None:
    """Resets the process's peak memory to its present memory, on systems that support it.

    An older peak, or one inherited by the fork, would hide the memory that an input takes.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Returns the peak of the resident memory of this process, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB elsewhere


def attempt(target: Target, data: bytes) -> str | None:
    """Runs one input in this process. Returns its error or None."""
    _forget_peak()
    before = peak_bytes()
    signal.setitimer(signal.ITIMER_REAL, INPUT_S)
    try:
        target.run(data)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        cause = error.__cause__ or error
        return f"{type(cause).__name__} at {Path(frames[-1].filename).name}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    grown = peak_bytes() - before
    return f"MemoryGrowth: {grown >> 20} MiB for {len(data)} bytes" if grown > MEMORY_BYTES else None


class Shared:
    """Memory shared with the process that runs inputs, readable after that process has died."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, MAX_INPUT_BYTES + 4096)

    def begin(self, number: int, data: bytes) -> None:
        """Records the start of input `number`."""
        self._map[0:16] = number.to_bytes(8, "big") + len(data).to_bytes(8, "big")
        self._map[4096 : 4096 + len(data)] = data

    def say(self, what: str) -> None:
        """Records the error of the current input."""
        text = what.encode()[:3_000]
        self._map[16 : 20 + len(text)] = len(text).to_bytes(4, "big") + text

    @property
    def number(self) -> int:
        """Returns the number of started inputs."""
        return int.from_bytes(self._map[0:8], "big")

    @property
    def data(self) -> bytes:
        """Returns the current input."""
        return bytes(self._map[4096 : 4096 + int.from_bytes(self._map[8:16], "big")])

    @property
    def error(self) -> str:
        """Returns the error of the current input, or "" without an error."""
        return bytes(self._map[20 : 20 + int.from_bytes(self._map[16:20], "big")]).decode(errors="replace")


def in_child(work: Callable[[Shared], None]) -> tuple[Shared, str | None]:
    """Runs `work` in a process of its own. Returns the shared memory, and the error or None."""
    shared = Shared()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.signal(signal.SIGALRM, _alarm)
            if not SANITIZED:  # AddressSanitizer reserves terabytes of address space
                limit = peak_bytes() + (4 << 30)
                resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
            work(shared)
            status = 0
        except BaseException as error:
            shared.say(f"{type(error).__name__}: {error}")
        finally:
            os._exit(status)
    last, since = -1, time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if shared.number != last:
            last, since = shared.number, time.monotonic()
        elif time.monotonic() - since > HANG_S:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return shared, "Hang"
        time.sleep(0.005)
    if os.WIFSIGNALED(status):
        return shared, f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    if shared.error or not status:
        return shared, shared.error or None
    return shared, f"exit status {os.waitstatus_to_exitcode(status)}"


def fuzz(name: str, seed: int, count: int | None, seconds: float | None) -> tuple[int, bytes, str | None]:
    """Runs mutated inputs, at least one. Returns the number of inputs, and the last input with its error or None.

    The time begins when the target is ready: on a build with sanitizers, some targets take longer to prepare than to
    run.
    """

    def work(shared: Shared) -> None:
        target = TARGETS[name]()
        rng = random.Random(f"{name} {seed}")
        kept = [target.make(rng) for _ in range(POOL_SIZE)]
        number = 0
        until_s = None if seconds is None else time.monotonic() + seconds
        while (count is None or number < count) and (not number or until_s is None or time.monotonic() < until_s):
            index = rng.randrange(POOL_SIZE)
            if rng.random() < 0.3:
                kept[index] = target.make(rng)
            data = kept[index] if rng.random() < 0.1 else mutated(kept[index], rng, rng.choice(kept))
            data = data[:MAX_INPUT_BYTES]
            number += 1
            shared.begin(number, data)
            wrong = attempt(target, data)
            if wrong is not None:
                shared.say(wrong)
                return

    shared, wrong = in_child(work)
    return shared.number, shared.data, wrong


def replay(name: str, data: bytes) -> str | None:
    """Runs one input on a new target. Returns its error or None."""

    def work(shared: Shared) -> None:
        shared.begin(1, data)
        wrong = attempt(TARGETS[name](), data)
        if wrong is not None:
            shared.say(wrong)

    return in_child(work)[1]


def smallest(name: str, data: bytes, wrong: str) -> bytes:
    """Minimises the input: removes or zeroes all bytes that the finding does not need."""
    kind = wrong.partition(":")[0]
    tries = 0

    def still(candidate: bytes) -> bool:
        nonlocal tries
        tries += 1
        error = replay(name, candidate)
        return error is not None and error.partition(":")[0] == kind

    if not still(data):
        return data  # the failure depends on earlier inputs
    size = len(data) // 2
    while size and tries < SHRINK_TRIES:
        at = 0
        while at < len(data) and tries < SHRINK_TRIES:
            shorter = data[:at] + data[at + size :]
            if still(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    for at in range(len(data)):
        zeroed = data[:at] + b"\0" + data[at + 1 :]
        if data[at] and tries < SHRINK_TRIES and still(zeroed):
            data = zeroed
    return data


def report(name: str, seed: int, data: bytes, wrong: str, folder: Path) -> None:
    """Prints a finding and writes it to a file."""
    print(f"{name}: {wrong}\n  seed {seed}, {len(data)} bytes; looking for the smallest input ...", flush=True)
    data = smallest(name, data, wrong)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}.hex"
    file.write_text(data.hex() + "\n", encoding="ascii")
    print(f"  {data.hex()}\n  again: python -m tools.fuzz --replay {file}", flush=True)


def read_case(file: Path) -> tuple[str, bytes]:
    """Reads the target and the bytes of a file that `report` wrote."""
    return file.stem.rpartition("-")[0], bytes.fromhex(file.read_text(encoding="ascii").strip())


def main() -> int:
    """Runs the fuzzer. Returns 1 if there is a finding."""
    parser = argparse.ArgumentParser(description="Fuzzes every decoder of untrusted bytes.")
    parser.add_argument("--seconds", type=float, help="how long, all targets together")
    parser.add_argument("--count", type=int, help="how many inputs a target")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="only this target (may be repeated)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input that was found before")
    parser.add_argument("--keep", type=Path, default=CORPUS, metavar="DIR", help="where findings are written")
    options = parser.parse_args()
    if options.replay is not None:
        wrong = replay(*read_case(options.replay))
        print(wrong or "nothing is wrong")
        return 1 if wrong else 0
    names = options.target or list(TARGETS)
    seconds = options.seconds if options.seconds is not None or options.count is not None else 30.0
    print(f"seed {options.seed}", flush=True)
    findings = 0
    for name in names:
        share = None if seconds is None else seconds / len(names)
        number, data, wrong = fuzz(name, options.seed, options.count, share)
        print(f"{name}: {number} inputs", flush=True)
        if wrong is not None:
            findings += 1
            report(name, options.seed, data, wrong, options.keep)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
