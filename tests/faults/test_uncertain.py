"""A commit whose result the log cannot determine yet: requests fail until the log can determine the result."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

import kcore
from kcore.log import CorruptLogError, LmdbLogEngine, LogError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import ShardState
from tests.kit import batch, commit, committed, fetch, make_topic, produce
from tests.log.test_failures import break_commit
from tests.runtime.machines import Bench
from tools.interrupting.ledger import SETTINGS


def code_of(engine: Any, offset: int) -> ErrorCode:
    response = engine.send(commit("g", {("t", 0): offset}), 9)
    return ErrorCode(response.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("lands", [False, True])
def test_a_commit_of_unknown_result_fails_its_requests_until_the_file_can_be_read(
    tmp_path: Path, lands: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit fails, and the file cannot be read, so all requests fail. Later requests succeed once the file is
    back.

    The server logs the cause in one line, without a traceback.
    """
    folder, hidden = tmp_path / "data", tmp_path / "hidden"
    clock = kcore.ManualClock()
    with kcore.open(folder, config=SETTINGS, clock=clock) as engine:
        make_topic(engine, "t")
        assert code_of(engine, 1) is ErrorCode.NONE
        log = engine.engine.log
        assert isinstance(log, LmdbLogEngine)
        break_commit(log, lands, lmdb.DiskError("mdb_txn_commit"))
        folder.rename(hidden)
        refused = [code_of(engine, offset) for offset in (2, 3, 4)]
        assert log.uncertain
        lines = [record for record in caplog.records if "it is unknown whether" in record.getMessage()]
        assert [(record.exc_info, "No such file" in record.getMessage()) for record in lines] == [(None, True)]
        hidden.rename(folder)
        refused.append(code_of(engine, 5))
        assert refused == [ErrorCode.NOT_COORDINATOR] * 4
        assert not log.uncertain
        assert committed(engine, "g") == {("t", 0): 2 if lands else 1}
        assert code_of(engine, 6) is ErrorCode.NONE
    with kcore.open(folder, config=SETTINGS) as engine:
        assert committed(engine, "g") == {("t", 0): 6}


def test_memory_that_runs_out_in_the_handler_of_a_durable_commit_does_not_stop_the_engine(tmp_path: Path) -> None:
    """The first failure comes after the LMDB transaction, the others while the log determines the result."""
    with kcore.open(tmp_path / "data", config=SETTINGS, clock=kcore.ManualClock()) as engine:
        make_topic(engine, "t")
        assert code_of(engine, 1) is ErrorCode.NONE
        log = engine.engine.log
        environment = log._storage._environment  # type: ignore[attr-defined]
        break_commit(log, True, MemoryError())  # type: ignore[arg-type]
        reopen = type(environment).reopen
        failures = iter([MemoryError()] * 5)

        def short_of_memory(self: Any) -> int:
            for error in failures:
                raise error
            return int(reopen(self))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(environment), "reopen", short_of_memory)
            codes = [code_of(engine, offset) for offset in range(2, 7)]
        assert codes[0] is ErrorCode.NOT_COORDINATOR
        assert codes[-1] is ErrorCode.NONE
        assert committed(engine, "g") == {("t", 0): 6}
    with kcore.open(tmp_path / "data", config=SETTINGS) as engine:
        assert committed(engine, "g") == {("t", 0): 6}


def test_a_batch_of_a_failed_round_is_no_duplicate_before_the_result_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has discarded the batch, but an exception after the discard leaves the producer's state in memory."""
    records = batch([b"a"], producer_id=7, epoch=0, sequence=0)
    with kcore.open(tmp_path / "data", config=SETTINGS, clock=kcore.ManualClock()) as engine:
        make_topic(engine, "t")

        def no_memory_after(call: Any) -> Any:
            def run(log: LmdbLogEngine) -> None:
                call(log)
                raise MemoryError

            return run

        def no_memory(log: LmdbLogEngine) -> None:
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(LmdbLogEngine, "commit", no_memory)
            patch.setattr(LmdbLogEngine, "rollback", no_memory_after(LmdbLogEngine.rollback))
            patch.setattr(LmdbLogEngine, "recover", no_memory_after(LmdbLogEngine.recover))
            failed = [engine.send(produce("t", records), 9) for _ in range(3)]
        failed.append(engine.send(produce("t", records), 9))
        stored = engine.send(produce("t", records), 9)
        rows = [response.responses[0].partition_responses[0] for response in (*failed, stored)]
        assert [(row.error_code, row.base_offset) for row in rows] == [(56, -1)] * 4 + [(0, 0)]
    with kcore.open(tmp_path / "data", config=SETTINGS) as engine:
        row = engine.send(fetch("t"), 12).responses[0].partitions[0]
        assert row.high_watermark == 1


class Unreadable:
    """A shard's log whose next read fails with an error."""

    def __init__(self, inner: Any, error: Exception) -> None:
        self.inner = inner
        self.errors = [error]

    def runs(self, start: int | None = None) -> Iterator[list[tuple[int, bytes]]]:
        if self.errors:
            raise self.errors.pop()
        yield from self.inner.runs(start)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    ("error", "damaged"),
    [
        (MemoryError(), False),
        (LogError("reading batches: input/output error"), False),
        (CorruptLogError("p", 3, "CRC"), True),
        (ValueError("no such record"), True),
    ],
)
def test_a_failed_load_is_repeated_soon_and_advises_a_repair_only_after_damage(
    error: Exception, damaged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.shard._log = Unreadable(bench.shard._log, error)
    with caplog.at_level(logging.ERROR):
        bench.shard.failed(LogError("a commit failed"))
        bench.slices.finish()
    assert bench.shard.state is ShardState.FAILED
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert "the next attempt is in 1 s" in line
    assert ("stop the server and run `kcore log repair`" in line) == damaged
    bench.advance(1_000)
    bench.slices.finish()
    assert bench.shard.state is ShardState.ACTIVE
