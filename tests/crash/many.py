"""Kills nodes and cuts their power again and again, and checks that no acknowledged write is lost.

    python -m tests.crash.many [--kills 1000] [--power 1000] [--seed N]

Kills: a process opens an embedded node on a folder with durability `fsync`. A thread commits offsets and another one
appends records, until SIGKILL ends the process at a random moment, also while it opens the folder. The threads write
each response into a pipe before the next request. The next process opens the same folder, and first compares it with
the responses of all earlier processes.

Power: a log on the simulated disk of `tools/simulate` commits rounds of all sizes. The power fails at a random write,
which may lose any sectors that were not flushed. The log is opened again and compared with the rounds that were
acknowledged. The round that was being written may exist as a whole or not at all.

Areas of the journal have few rounds, so that many crashes strike while an area is moved to the log. The program prints
the counts. Its exit status is 1 after a violation.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import kcore
from kcore.log import DataFolderError, LogEngine, LogError, journal
from kcore.log.faults import SimulatedCrashError
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.batch import iter_records, split_batches
from tests.kit import FETCH_VERSION, QUICK, batch, commit, committed, create, fetch, produce
from tests.log.batches import batch as log_batch
from tests.log.batches import contents, key, stamped
from tools.simulate.disk import CRASHES
from tools.simulate.stores import LmdbStore

AREA_ROUNDS: Final = 12
LONGEST_S: Final = 0.06
"""Maximum time from a process's first possible write until the test kills the process."""
OPENING_S: Final = 0.04
START_LIMIT_S: Final = 60.0
PARTITIONS: Final = 3


class ViolationError(Exception):
    """An acknowledged write is missing, or another write exists in part."""


# ---- kill -9


class Responses:
    """The acknowledged writes of all processes so far.

    Attributes:
        offset: the last offset that the group has committed.
        records: the number of records in the partition.
    """

    def __init__(self) -> None:
        self.offset = -1
        self.records = 0
        self.writes = 0

    def add(self, lines: bytes) -> None:
        """Adds the complete lines of a process: `o OFFSET` or `r COUNT`."""
        for line in lines.split(b"\n")[:-1]:
            kind, _, value = line.partition(b" ")
            if kind == b"violation":
                raise ViolationError(value.decode())
            if kind == b"o":
                self.offset = int(value)
            elif kind == b"r":
                self.records = int(value)
            self.writes += kind != b"ready"


def _stored_records(node: kcore.Node, begin: int) -> int:
    """Checks that every record from `begin` on has its offset as its value. Returns the end of the partition."""
    at = begin
    while True:
        (response,) = node.send(fetch("t", at), FETCH_VERSION).responses[0].partitions
        data = bytes(response.records or b"")
        if not data:
            return int(response.high_watermark)
        for start, size in split_batches(data).batches:
            for record in iter_records(data[start : start + size]):
                if record.value != b"%d" % record.offset:
                    raise ViolationError(f"the record at offset {record.offset} has the value {record.value!r}")
                at = max(at, record.offset + 1)


def _check_node(node: kcore.Node, responses: Responses) -> tuple[int, int]:
    """Compares a node with the responses; returns the stored offset and the number of records."""
    offset = committed(node, "g").get(("t", 0), -1)
    if not responses.offset <= offset <= responses.offset + 1:
        raise ViolationError(f"offset {responses.offset} was acknowledged, and {offset} is stored")
    records = _stored_records(node, max(0, responses.records - 50))
    if not responses.records <= records <= responses.records + 1:
        raise ViolationError(f"{responses.records} records were acknowledged, and {records} are stored")
    return offset, records


def _reporting(write: Callable[[kcore.Node, int, int], None]) -> Callable[[kcore.Node, int, int], None]:
    """Returns a function that calls `write` and reports any exception as a violation."""

    def run(node: kcore.Node, out: int, value: int) -> None:
        try:
            write(node, out, value)
        except BaseException as error:
            _report(out, error)

    return run


def _report(out: int, error: BaseException) -> None:
    os.write(out, b"violation %s\n" % repr(error).replace("\n", " ").encode())


@_reporting
def _commit_offsets(node: kcore.Node, out: int, offset: int) -> None:
    while True:
        offset += 1
        response = node.send(commit("g", {("t", 0): offset}), 9)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE, response
        os.write(out, b"o %d\n" % offset)


@_reporting
def _append_records(node: kcore.Node, out: int, records: int) -> None:
    while True:
        response = node.send(produce("t", batch([b"%d" % records])), 9)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE, response
        records += 1
        os.write(out, b"r %d\n" % records)


def _live(folder: Path, out: int, responses: Responses) -> None:
    """Checks the folder and writes to it until this process is killed."""
    try:
        journal.MAX_ENTRIES = AREA_ROUNDS  # type: ignore[misc]
        node = kcore.open(folder, config=QUICK)
        node.send(create("t"))  # unless the topic exists
        offset, records = _check_node(node, responses)
        writers = [
            threading.Thread(target=_commit_offsets, args=(node, out, offset), daemon=True),
            threading.Thread(target=_append_records, args=(node, out, records), daemon=True),
        ]
        os.write(out, b"o %d\nr %d\nready\n" % (offset, records))
        for writer in writers:
            writer.start()
        time.sleep(START_LIMIT_S)
    except BaseException as error:
        _report(out, error)
    os._exit(1)


def kill_once(folder: Path, responses: Responses, chance: random.Random) -> str:
    """Runs a process until it is killed, and adds its responses. Returns the operation that the kill interrupted.

    Raises:
        ViolationError: the folder did not match the earlier responses.
    """
    read_end, write_end = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read_end)
        _live(folder, write_end, responses)
    os.close(write_end)
    received = b""
    struck = "opening"
    try:
        if chance.random() < 0.2 and responses.records:
            time.sleep(chance.uniform(0, OPENING_S))
        else:
            until_s = time.monotonic() + START_LIMIT_S
            while b"ready\n" not in received and b"violation" not in received:
                if not select.select([read_end], [], [], max(0.0, until_s - time.monotonic()))[0]:
                    raise ViolationError(f"the folder could not be opened within {START_LIMIT_S:.0f} s")
                data = os.read(read_end, 1 << 16)
                if not data:
                    break
                received += data
            time.sleep(chance.uniform(0, LONGEST_S))
            struck = "writing"
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        while data := os.read(read_end, 1 << 16):
            received += data
        os.close(read_end)
    responses.add(received)
    return struck


def _import_apis() -> None:
    """Imports all modules that the processes use, before the processes are forked."""
    with kcore.open(config=QUICK) as node:
        node.send(create("t"))
        node.send(commit("g", {("t", 0): 0}), 9)
        node.send(produce("t", batch([b"0"])), 9)
        _check_node(node, Responses())


def kills(count: int, seed: int, root: Path) -> Counter[str]:
    """Kills `count` processes on one folder. Returns the number of kills by interrupted operation, and the number of
    acknowledged writes.
    """
    _import_apis()
    chance = random.Random(seed)
    responses = Responses()
    counts: Counter[str] = Counter()
    for _ in range(count):
        counts[kill_once(root / "data", responses, chance)] += 1
    with kcore.open(root / "data", config=QUICK) as node:
        _check_node(node, responses)
        if _stored_records(node, 0) < responses.records:
            raise ViolationError("records are missing")
    counts["acknowledged writes"] = responses.writes
    return counts


# ---- power failures


class Rounds:
    """A log on a simulated disk, and the batches that the log must have."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = LmdbStore(random.Random(seed + 1))
        self.stored: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.written = self.stored
        self.moves: list[Callable[[], None]] = []
        self.counts: Counter[str] = Counter()

    def open(self) -> LogEngine:
        log = self.store.open()
        self.moves.clear()
        log.move_beside(self._keep)
        return log

    def _keep(self, move: Callable[[], None]) -> bool:
        self.moves.append(move)
        return True

    def commit(self, log: LogEngine) -> None:
        """Commits a round. If the power fails meanwhile, both possible results stay valid until the next opening shows
        one of them.
        """
        after = [list(batches) for batches in self.stored]
        ends = [len(batches) for batches in after]
        for number in range(PARTITIONS):
            data = log_batch(1, self.chance.choice([20, 20, 700, 5_000]), fill=self.chance.randrange(256))
            base = log.open(key(number)).append(data, 0)
            if base != ends[number]:
                raise ViolationError(f"partition {number} ends at {base} instead of {ends[number]}")
            after[number].append(stamped(data, base, 0))
        if self.chance.random() < 0.02:
            log.put_meta("name", b"value")  # such a round takes a transaction
        self.written = after
        log.commit()
        self.stored = after
        self.counts["acknowledged rounds"] += 1

    def run_until_failure(self) -> None:
        """Commits rounds and moves journal areas until the power fails. Then checks the log that is left."""
        log = self.open()
        rounds = self.chance.randrange(3 * AREA_ROUNDS)
        self.written = self.stored
        struck = "nothing"
        try:
            for turn in range(rounds):
                if self.moves and self.chance.random() < 0.1:
                    struck = "a move"
                    if turn > rounds - AREA_ROUNDS:
                        self.store.arm_crash(self.chance.choice(CRASHES), True)
                    self.moves.pop()()
                struck = "a commit"
                if turn == rounds - 1:
                    self.store.arm_crash(self.chance.choice(CRASHES), True)
                self.commit(log)
            struck = "nothing"
        except SimulatedCrashError:
            pass
        self.counts[f"struck {struck}"] += 1
        self.store.crash(True)
        self.check()

    def check(self) -> None:
        """Compares the log with the acknowledged rounds, and with the round that was being written."""
        log = self.open()
        try:
            found = [contents(log.open(key(number))) for number in range(PARTITIONS)]
            if found not in (self.stored, self.written):
                raise ViolationError(f"{list(map(len, found))} batches instead of {list(map(len, self.stored))}")
            if findings := log.verify(deep=True):
                raise ViolationError(str(findings))
            self.stored = found
        finally:
            with contextlib.suppress(LogError):
                log.rollback()
                log.close()

    def close(self) -> None:
        self.store.close()


def power_failures(count: int, seed: int) -> Counter[str]:
    """Cuts the power `count` times, with a new folder every 50 times. Returns the counts."""
    counts: Counter[str] = Counter()
    previous, journal.MAX_ENTRIES = journal.MAX_ENTRIES, AREA_ROUNDS  # type: ignore[misc]
    try:
        for first in range(0, count, 50):
            rounds = Rounds(seed + first)
            journal.MAX_ENTRIES = AREA_ROUNDS  # type: ignore[misc]
            try:
                for _ in range(min(50, count - first)):
                    rounds.run_until_failure()
            finally:
                rounds.close()
            counts.update(rounds.counts)
    finally:
        journal.MAX_ENTRIES = previous  # type: ignore[misc]
    return counts


def _line(what: str, count: int, counts: Counter[str], seconds: float) -> str:
    details = ", ".join(f"{name} {number:,}" for name, number in sorted(counts.items()))
    return f"{count:,} {what} in {seconds:.0f} s: {details}; no acknowledged write was lost"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="the number of processes to kill")
    parser.add_argument("--power", type=int, default=1000, help="the number of simulated power failures")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="decides the moments")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    # A kill loses nothing that the operating system has, so the folder may be in memory, which is faster.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root = Path(tempfile.mkdtemp(prefix="kcore-crashes-", dir=memory))
    try:
        began_s = time.monotonic()
        counts = power_failures(options.power, options.seed)
        print(_line("power failures", options.power, counts, time.monotonic() - began_s), flush=True)
        began_s = time.monotonic()
        counts = kills(options.kills, options.seed, root)
        print(_line("kills", options.kills, counts, time.monotonic() - began_s), flush=True)
    except (ViolationError, DataFolderError, LogError) as violation:
        print(f"violation: {violation}; the folder is {root}", file=sys.stderr)
        return 1
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
