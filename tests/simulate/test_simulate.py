"""The simulator: fixed seeds find no violation, planted defects are found, a seed gives one trace, and scripts are
shortened.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import subprocess
import sys
import traceback
from pathlib import Path

import lmdb
import pytest

from kcore.broker.data.retention import Housekeeping
from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.log import LmdbLogEngine, MemoryLogEngine
from kcore.log.faults import SimulatedCrashError
from kcore.runtime import RequestContext
from tests import kit
from tests.kit import create
from tests.log.batches import batch, contents, fill, key
from tools.simulate.batches import decode
from tools.simulate.campaign import RECORD, append_batch, read_record, run_batch, totals
from tools.simulate.checkers.heap import leaked
from tools.simulate.cluster.plan import draw_cluster_plan
from tools.simulate.interrupts import interrupted
from tools.simulate.mutants import MUTANTS
from tools.simulate.mutants.mutant import findings
from tools.simulate.node import _Gate
from tools.simulate.plan import Plan, draw_plan
from tools.simulate.run import run_plan
from tools.simulate.shrink import shrink
from tools.simulate.stores import LmdbStore, MemoryStore

ROOT = Path(__file__).resolve().parents[2]
CLEAN_SEEDS = (4, 8, 14)
CLEAN_CLUSTER_SEEDS = (1, 16)
SCRIPTS = sorted(Path(__file__).with_name("scripts").glob("*.json"))
FOUND = findings()
QUICK_STEPS = 3_000


@pytest.mark.parametrize("seed", CLEAN_SEEDS)
def test_a_fixed_seed_is_clean_and_checks_something(seed: int) -> None:
    result = run_plan(draw_plan(seed))
    assert result.failure is None
    assert result.checks["ownership"] > 20
    assert result.checks["offsets"] > 100
    assert result.checks["durability"] > 100
    assert result.checks["replay"] > 0
    assert result.checks["audit"] == 1


@pytest.mark.parametrize("seed", CLEAN_CLUSTER_SEEDS)
def test_a_fixed_seed_of_a_cluster_is_clean_and_checks_something(seed: int) -> None:
    result = run_plan(draw_cluster_plan(seed))
    assert result.failure is None
    assert result.checks["leaders"] > 1_000
    assert result.checks["fenced"] > 100
    assert result.checks["stale reads"] > 100
    assert result.checks["durability"] > 100
    assert result.checks["audit"] == 1


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if found.steps <= QUICK_STEPS else pytest.mark.long) for name, found in FOUND.items()],
)
def test_a_planted_defect_is_found_within_its_steps(name: str) -> None:
    """The simulator must find each defect that the test inserts into kcore, within twice the recorded number of steps.

    The margin is needed because a change of kcore's code moves the events of a seed to other steps.
    """
    found = FOUND[name]
    with MUTANTS[name].planted():
        result = run_plan(MUTANTS[name].plan(found.seed))
    assert result.failure is not None
    assert (result.failure.checker, result.steps <= 2 * found.steps) == (found.checker, True), result
    cause = result.failure.__cause__
    raised_in = traceback.extract_tb(cause.__traceback__)[-1].filename if cause is not None else ""
    assert Path(raised_in).parent.name != "mutants", f"the planted code does not fit kcore's code: {cause!r}"


def test_every_planted_defect_is_found() -> None:
    assert FOUND.keys() == MUTANTS.keys()
    assert len([name for name in FOUND if not MUTANTS[name].cluster]) >= 40
    assert len([name for name in FOUND if MUTANTS[name].cluster]) >= 5


def test_the_engine_reaches_the_objects_of_its_requests() -> None:
    engine = Engine(MemoryLogEngine(), Config.of({}), ManualClock())
    assert leaked(engine) == {}
    engine.submit(RequestContext(7, "test"), create("t"))
    assert leaked(engine) == {"Pending": 1, "CreateTopicsRequest": 1}
    engine.commit()
    assert leaked(engine) == {}
    engine.close()


def test_an_error_that_kcore_handles_and_logs_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise TypeError("planted")

    monkeypatch.setattr(Housekeeping, "_retain", fails)
    result = run_plan(draw_plan(4))
    line = "background work: Periodic._run of Housekeeping.enforce_retention failed; kcore drops the rest of this work"
    assert str(result.failure) == f"exceptions: logged: {line}; please report the error: TypeError('planted')"
    assert logging.getLogger("kcore").propagate


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_of_a_mended_defect_is_clean(path: Path) -> None:
    result = run_plan(Plan.from_json(path.read_text()))
    assert result.failure is None


def test_every_planted_defect_replaces_something_and_takes_it_back() -> None:
    for mutant in MUTANTS.values():
        before = [(owner, name, owner.__dict__[name]) for owner, name, _ in mutant.patches()]
        with mutant.planted():
            assert all(owner.__dict__[name] is not value for owner, name, value in before), mutant.name
        assert all(owner.__dict__[name] is value for owner, name, value in before), mutant.name


def test_a_seed_has_the_same_trace_in_every_process() -> None:
    """The processes have different hashes of strings."""
    program = (
        "from tools.simulate.cluster.plan import draw_cluster_plan; from tools.simulate.plan import draw_plan; "
        "from tools.simulate.run import run_plan; "
        "print(run_plan(draw_plan(3)).digest, run_plan(draw_cluster_plan(1000)).digest)"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    ]
    assert digests[0] == digests[1]
    assert [len(digest) for digest in digests[0].split()] == [64, 64]


def test_a_plan_survives_json() -> None:
    plan = draw_plan(12)
    assert Plan.from_json(plan.to_json()) == plan
    assert draw_plan(12) == plan
    assert draw_plan(13) != plan
    cluster = draw_cluster_plan(12)
    assert cluster.nodes > 1
    assert Plan.from_json(cluster.to_json()) == cluster


def test_a_failing_plan_shrinks_to_what_the_failure_needs() -> None:
    found = FOUND["no-journal-replay"]
    plan = draw_plan(found.seed)
    lines: list[str] = []
    with MUTANTS["no-journal-replay"].planted():
        smaller = shrink(plan, found.checker, lines.append, max_runs=12)
        again = run_plan(smaller)
    assert lines
    assert len(smaller.faults) + len(smaller.clients) < len(plan.faults) + len(plan.clients)
    assert again.failure is not None
    assert again.failure.checker == found.checker


def test_a_campaign_adds_to_its_record(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    for first in (4, 8):
        append_batch(record, run_batch("version", first, 60.0, most_seeds=1))
    first, second = read_record(record)
    assert (first.commit, first.first_seed, first.seeds, first.failures) == ("version", 4, 1, [])
    assert first.events == run_plan(draw_plan(4)).steps
    assert totals(record).startswith(f"2 seeds, {first.events + second.events:,} events, ")


def test_the_record_of_the_campaign_is_complete() -> None:
    batches = list(read_record(RECORD))
    assert batches
    assert all(batch.seeds > 0 and batch.events > 0 and batch.commit for batch in batches)


class Forgotten:
    """An object in a cycle. Its finalizer calls a function of kcore, as those of log files do."""

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        key()


def test_finalizers_of_other_objects_are_no_events() -> None:
    """A garbage collection within the traced code would call finalizers, and their events would count."""
    before = gc.get_threshold()
    counts = []
    for forgotten in (0, 100):
        log = MemoryLogEngine()
        fill(log.open(key()), log, 1)
        log.open(key()).append(batch(), 0)
        gc.collect()
        for _ in range(forgotten):
            Forgotten()
        try:
            with interrupted(1_000_000, MemoryError, print, "") as interrupt:
                gc.set_threshold(1, 1, 1)
                log.commit()
        finally:
            gc.set_threshold(*before)
        counts.append(interrupt.left)
    assert counts[0] == counts[1] < 1_000_000 - 3


def test_an_interrupt_comes_at_its_event() -> None:
    """The interrupt raises its exception at the event with the given number.

    Events are calls of kcore's functions, and calls of compiled functions that these functions make.
    """
    lines: list[str] = []
    for events_before in range(40):
        log = MemoryLogEngine()
        stored = fill(log.open(key()), log, 1)
        log.open(key()).append(batch(), 0)
        try:
            with interrupted(events_before, MemoryError, lines.append) as interrupt:
                log.commit()
        except MemoryError:
            assert interrupt.raised
        else:
            break
        assert contents(log.open(key()))[:1] == stored
    assert 3 < len(lines) == events_before < 40
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize("journal", [False, True], ids=["transaction", "journal"])
def test_a_crash_in_a_write_loses_only_that_write(moment: str, power: bool, journal: bool) -> None:
    for seed in range(2):
        store = LmdbStore(random.Random(seed))
        try:
            log = store.open()
            partition = log.open(key())
            stored = fill(partition, log, 3)
            store.arm_crash(moment, power)
            partition.append(batch(), 0)
            if not journal:
                log.put_meta("value", b"takes a transaction")
            with pytest.raises(SimulatedCrashError):
                log.commit()
            store.crash(power)
            found = contents(store.open().open(key()))
            assert found[: len(stored)] == stored
            assert len(found) - len(stored) in ((1,) if moment == "after" else (0, 1))
            assert isinstance(store.log, LmdbLogEngine)
            assert store.log.verify(deep=True) == []
        finally:
            store.close()


def test_a_crash_in_a_write_that_the_engine_waits_for_ends_the_engine() -> None:
    """A crash is simulated while the engine waits for the end of a background commit. The engine must raise the crash's
    error.

    Otherwise it would continue with a log that the crash has closed.
    """
    store = MemoryStore()
    engine = Engine(store.open(), Config.of({}), ManualClock())
    engine.submit(RequestContext(7, "test"), create("t"))
    gate = _Gate()
    gate.commit = engine.pipeline.start_background(gate, exclusive=True)
    assert gate.commit is not None
    store.arm_crash("before", power=False)
    with pytest.raises(SimulatedCrashError):
        engine.pipeline.finish_background(gate.commit)


@pytest.mark.parametrize("failure", ["flush", "write", "torn write", "commit", "commit landed"])
def test_a_disk_failure_is_an_error_or_a_durable_write(failure: str) -> None:
    store = LmdbStore(random.Random(1))
    try:
        log = store.open()
        partition = log.open(key())
        stored = fill(partition, log, 3)
        store.arm(failure)
        partition.append(batch(), 0)
        if failure.startswith("commit"):
            log.put_meta("value", b"takes a transaction")
        if failure == "commit landed":
            log.commit()
            stored = contents(partition)
            assert len(stored) == 4
        else:
            with pytest.raises(Exception, match="simulated"):
                log.commit()
        stored += fill(partition, log, 1)
        store.crash(power=True)
        assert contents(store.open().open(key())) == stored
    finally:
        store.close()


def test_the_simulated_disk_is_gone_after_its_store() -> None:
    from kcore.log import journal_file, lmdb_environment

    write, sync = journal_file._write_all, journal_file._sync
    store = LmdbStore(random.Random(1))
    assert journal_file._write_all is not write
    store.open()
    store.close()
    assert (journal_file._write_all, journal_file._sync, lmdb_environment.lmdb) == (write, sync, lmdb)  # type: ignore[attr-defined]


def test_the_checkers_decode_batches_themselves() -> None:
    records = list(decode(kit.batch([b"a", b"b", b"c"], producer_id=7, epoch=2, sequence=0)))
    assert [(record.offset, record.key, record.value) for record in records] == [
        (0, None, b"a"),
        (1, None, b"b"),
        (2, None, b"c"),
    ]
    assert {(record.producer_id, record.epoch, record.control, record.transactional) for record in records} == {
        (7, 2, False, False)
    }
