"""Failures after a decision: no lost write is acknowledged, and other requests are not affected."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kcore.errors import KafkaError
from kcore.log import FailureReason, LogError
from kcore.log.errors import FencedWriteError
from kcore.protocol import EncodeError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Outcome, Pending, Record, RequestContext, ShardState, ShardTimer, failed_requests, gather
from kcore.runtime.commit import CommitPipeline
from kcore.runtime.shard_services import ShardServices
from kcore_ext.batch import BatchBuilder, iter_records
from tests.runtime.machines import KEY, AddApi, Bench, Count, CounterMachine, Name

NOT_COORDINATOR = ("error", ErrorCode.NOT_COORDINATOR, None)
BUG = ("error", ErrorCode.UNKNOWN_SERVER_ERROR, None)


class PickyLog:
    """A shard's log that refuses the next appends with an error, and otherwise works."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.refusals: list[Exception] = []

    def append(self, batch: bytearray, leader_epoch: int) -> int:
        if self.refusals:
            raise self.refusals.pop(0)
        return int(self.inner.append(batch, leader_epoch))

    def append_built(self, batch: BatchBuilder, leader_epoch: int) -> int:
        return self.append(batch.build_bytearray(), leader_epoch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def picky(bench: Bench) -> PickyLog:
    log = PickyLog(bench.shard._log)
    bench.shard._log = log
    return log


def stored(bench: Bench) -> list[tuple[bytes | None, bytes | None]]:
    return [(r.key, r.value) for _, batch in bench.log.open(KEY).batches() for r in iter_records(batch)]


class Unencodable:
    def encode_key(self) -> bytes:
        raise EncodeError("name", "too long for its length")


class AwkwardApi(AddApi):
    """An API whose result the test chooses: `decision` returns the records and the response."""

    decision: Any = None

    def decide(self, machine: CounterMachine, context: RequestContext, request: Any) -> Any:
        if request[0] == "awkward":
            return self.decision(machine)
        return super().decide(machine, context, request)


def awkward(decision: Any, **options: Any) -> Bench:
    bench = Bench(**options)
    bench.api = AwkwardApi()
    bench.api.decision = decision
    return bench


# ---- the log refuses a batch


@pytest.mark.parametrize("error", [LogError("no", FailureReason.IO_ERROR), KafkaError(ErrorCode.INVALID_TXN_STATE)])
def test_a_batch_refused_by_the_log_at_the_end_of_a_round_is_not_acknowledged(error: Exception) -> None:
    bench = Bench()
    log = picky(bench)
    bench.run("add", "a", 1)
    bench.pipeline.commit()
    write, read = bench.run("add", "a", 5), bench.run("read", "a")
    log.refusals = [error]
    assert not bench.pipeline.commit()
    assert (write.response, read.response) == (NOT_COORDINATOR, NOT_COORDINATOR)
    bench.slices.finish()
    assert bench.run("read", "a") == ("count", "a", 1)
    assert stored(bench) == [(b"a", b"3:1")]
    again = bench.run("add", "a", 1)
    assert bench.pipeline.commit()
    assert again.response == ("added", "a", 2)


def test_a_batch_refused_by_the_log_during_a_round_aborts_the_round() -> None:
    """The log refuses a batch with records of several requests. The whole round is aborted, and all of these requests
    get NOT_COORDINATOR.
    """
    bench = Bench(max_batch_bytes=400)
    log = picky(bench)
    log.refusals = [LogError("no", FailureReason.IO_ERROR)]
    responses = [bench.run("add", f"name-{n:040}", n) for n in range(8)]
    bench.pipeline.commit()
    bench.slices.finish()
    given = [response.response if isinstance(response, Pending) else response for response in responses]
    assert given == [NOT_COORDINATOR] * 8
    assert stored(bench) == []
    assert bench.shard.machine.counts == {}
    assert bench.shard.state is ShardState.ACTIVE


def test_an_aborted_round_writes_nothing_of_other_shards() -> None:
    """A round with records of two shards is aborted. All its responses are errors, so the records of both shards are
    dropped.
    """
    bench = Bench()
    log = picky(bench)
    from kcore.log import PartitionKey
    from tests.runtime import machines

    other_key = PartitionKey(bytes(15) + b"\x0a", 0)
    other = machines.Shard(
        "__other",
        0,
        bench.log.open(other_key),
        CounterMachine,
        ShardServices(bench.pipeline, bench.wheel, bench.slices, bench.now),
    )
    other.load()
    bench.slices.finish()
    theirs = other.run(bench.api, RequestContext(0), ("add", "b", 1))
    ours = bench.run("add", "a", 1)
    log.refusals = [LogError("no", FailureReason.IO_ERROR)]
    assert not bench.pipeline.commit()
    assert (theirs.response, ours.response) == (NOT_COORDINATOR, NOT_COORDINATOR)
    bench.slices.finish()
    assert list(bench.log.open(other_key).batches()) == []
    assert other.machine.counts == {}
    retried = other.run(bench.api, RequestContext(0), ("add", "b", 1))
    assert bench.pipeline.commit()
    assert retried.response == ("added", "b", 1)


def test_a_transaction_of_a_refused_producer_changes_nothing() -> None:
    bench = Bench()
    log = picky(bench)
    before = bench.run("add", "a", 1)
    bench.pipeline.commit()
    log.refusals = [KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)]
    assert bench.run("in transaction", "b", 2) == ("error", ErrorCode.INVALID_PRODUCER_EPOCH, None)
    log.refusals = [LogError("no", FailureReason.IO_ERROR)]
    assert bench.run("in transaction", "b", 2) == NOT_COORDINATOR
    after = bench.run("add", "c", 1)
    assert bench.pipeline.commit()
    assert (before.response, after.response) == (("added", "a", 1), ("added", "c", 1))
    assert bench.shard.machine.counts == {"a": 1, "c": 1}
    assert stored(bench) == [(b"a", b"3:1"), (b"c", b"3:1")]


def test_a_transaction_that_cannot_be_replayed_is_not_written() -> None:
    bench = Bench()
    assert bench.run("in transaction", "unreplayable", 2) == NOT_COORDINATOR
    assert not bench.pipeline.commit()
    bench.slices.finish()
    assert stored(bench) == []
    assert bench.shard.state is ShardState.ACTIVE


def test_an_append_of_another_writer_between_replay_and_write_is_detected() -> None:
    """The shard has replayed records at offsets that another writer now occupies, so the round fails."""
    bench = Bench()
    lost = bench.run("add", "a", 1)
    builder = BatchBuilder(1_000, base_timestamp_ms=1)
    builder.append(1, b"intruder", b"0:9")
    log = bench.log.open(KEY)
    log.append(bytearray(builder.build()), log.leader_epoch)
    assert not bench.pipeline.commit()
    bench.slices.finish()
    assert lost.response == NOT_COORDINATOR
    assert bench.shard.machine.counts == {}
    assert stored(bench) == []


@pytest.mark.parametrize("error", [MemoryError("no room"), OSError("the disk went away")])
def test_an_unknown_error_of_a_commit_is_a_failed_commit(error: Exception) -> None:
    bench = Bench()
    lost = bench.run("add", "a", 1)

    def commit() -> None:
        raise error

    real, bench.log.commit = bench.log.commit, commit  # type: ignore[method-assign]
    assert not bench.pipeline.commit()
    bench.log.commit = real  # type: ignore[method-assign]
    bench.log.rollback()
    bench.slices.finish()
    assert lost.response == NOT_COORDINATOR
    kept = bench.run("add", "a", 2)
    assert bench.pipeline.commit()
    assert kept.response == ("added", "a", 2)
    assert stored(bench) == [(b"a", b"3:2")]


def test_an_interrupt_during_a_commit_keeps_the_logs_state_and_reaches_the_caller() -> None:
    bench = Bench()
    lost = bench.run("add", "a", 1)
    real = bench.log.commit

    def commit() -> None:
        real()
        raise KeyboardInterrupt

    bench.log.commit = commit  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        bench.pipeline.commit()
    bench.log.commit = real  # type: ignore[method-assign]
    bench.slices.finish()
    assert lost.response == NOT_COORDINATOR
    assert bench.run("read", "a") == ("count", "a", 1), "the count was written, so later responses have it"


# ---- bugs in state machines


def test_a_record_that_cannot_be_encoded_is_refused_before_anything_changes() -> None:
    bench = awkward(lambda machine: Outcome([Record(Name("a"), Count(1)), Record(Unencodable(), None)], "kept"))
    assert bench.run("awkward") == BUG
    assert bench.shard.machine.counts == {}
    assert not bench.pipeline.dirty


def test_requests_completed_by_an_aborted_decision_are_refused() -> None:
    """A request completes a parked request, but its own record cannot be encoded. Both requests get an error, because
    no record was written.
    """

    def decide(machine: CounterMachine) -> Outcome:
        for _, _, pending in machine.waiting:
            machine.context.respond(pending, "your assignment")
        return Outcome([Record(Unencodable(), None)], "kept")

    bench = awkward(decide)
    waiting = bench.run("wait", "a", 1)
    assert bench.run("awkward") == BUG
    assert waiting.response == BUG


def test_requests_completed_by_a_raising_decision_are_refused() -> None:
    def decide(machine: CounterMachine) -> Outcome:
        machine.context.respond(machine.waiting[0][2], "your assignment")
        raise RuntimeError("a bug")

    bench = awkward(decide)
    waiting = bench.run("wait", "a", 1)
    assert bench.run("awkward") == BUG
    assert waiting.response == BUG


@pytest.mark.parametrize("error", [ValueError("a bug"), MemoryError()], ids=["defect", "memory"])
def test_a_decision_that_raises_has_a_response_without_memory_for_a_log_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []

    def decide(machine: CounterMachine) -> Outcome:
        raise error

    def fail(*arguments: Any) -> str:
        names.append(arguments)
        raise MemoryError

    monkeypatch.setattr(failed_requests, "request_name", fail)
    bench = awkward(decide)
    response = bench.run("awkward")
    bench.pipeline.commit()
    assert names == [(bench.api, RequestContext(0))]
    assert (response.response if isinstance(response, Pending) else response) == BUG


@pytest.mark.parametrize("step", ["fields", "request_name"])
def test_a_refused_request_has_a_response_without_memory_for_a_log_line(
    step: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **named: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(failed_requests, step, fail)
    caplog.set_level(logging.INFO)
    refused = KafkaError(ErrorCode.INVALID_REQUEST)
    response = failed_requests.error_response(AddApi(), RequestContext(0), ("add", "a", 1), refused)
    assert response == ("error", ErrorCode.INVALID_REQUEST, None)
    assert caplog.records == []


class Uncollectable:
    """Encoded records that cannot be added to a batch."""

    size_bytes = 10

    def __len__(self) -> int:
        return 1

    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        raise ValueError("a bug")


def test_records_that_were_replayed_but_not_added_to_the_batch_fail_the_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = awkward(lambda machine: Outcome(Uncollectable(), "kept"))
    bench.shard.machine.replay_block = lambda *_: None  # type: ignore[attr-defined]
    bench.run("awkward")
    assert not bench.pipeline.commit()
    bench.slices.finish()
    assert (bench.shard.state, stored(bench)) == (ShardState.ACTIVE, [])
    (line,) = [
        record.getMessage()
        for record in caplog.records
        if (record.name, record.levelname) == ("kcore.runtime.shard", "ERROR")
    ]
    assert line == (
        "shard __counters-0: the state in memory and the records of the commit differ after an error; the commit "
        "fails, and the shard loads its state again; please report the error"
    )


@pytest.mark.parametrize(
    ("error", "advice"),
    [(LogError("no"), "if this repeats, check the disk"), (ValueError("a bug"), "please report the error")],
    ids=["log", "defect"],
)
def test_the_log_line_of_a_refused_transaction_advises_on_its_error(
    error: Exception, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    picky(bench).refusals = [error]
    assert bench.run("in transaction", "b", 2) == NOT_COORDINATOR
    (line,) = [
        record.getMessage()
        for record in caplog.records
        if (record.name, record.levelname) == ("kcore.runtime.shard", "ERROR")
    ]
    assert line.endswith(f"the sender gets KAFKA_STORAGE_ERROR and tries again; {advice}")


class Faulty(ShardTimer):
    __slots__ = ()

    def fire(self) -> Outcome | None:
        raise RuntimeError("a bug in a timeout")


def test_a_timer_that_raises_does_not_stop_the_others() -> None:
    bench = Bench()
    bench.run("add", "a", 1)
    bench.pipeline.commit()
    bench.shard.schedule(bench.now.now_ms + 100, Faulty())
    bench.run("forget after", "a", 100)
    bench.advance(100)
    bench.pipeline.commit()
    assert bench.shard.machine.counts == {}


def test_long_work_that_raises_ends_and_other_work_continues() -> None:
    bench = Bench()
    done = []

    def faulty() -> Iterator[None]:
        yield
        raise RuntimeError("a bug in long work")

    def sound() -> Iterator[None]:
        for n in range(5):
            done.append(n)
            yield

    bench.slices.add(faulty())
    bench.slices.add(sound())
    bench.slices.finish()
    assert done == [0, 1, 2, 3, 4]
    assert len(bench.slices) == 0


def test_a_machine_that_cannot_be_created_or_unloaded_fails_its_load_only() -> None:
    bench = Bench()
    bench.shard.factory = lambda context: 1 / 0
    bench.shard.machine.on_unloaded = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    parked = bench.run("wait", "a", 1)
    bench.log.failures_left = 1
    bench.run("add", "a", 1)
    bench.pipeline.commit()
    bench.slices.finish()
    assert parked.response == NOT_COORDINATOR
    assert bench.shard.state is ShardState.FAILED


# ---- callbacks and participants


def test_a_raising_callback_does_not_prevent_other_responses() -> None:
    bench = Bench()
    got: list[Any] = []
    for n in range(3):
        pending = bench.run("add", "a", 1)
        pending.on_complete(got.append if n != 1 else lambda response: 1 / 0)
    assert bench.pipeline.commit()
    assert got == [("added", "a", 1), ("added", "a", 3)]
    assert not bench.pipeline.dirty


@pytest.mark.parametrize(("failures", "code"), [(1, "storage"), (2, "unknown")])
def test_an_api_that_cannot_build_the_error_of_a_failed_round_tries_again(failures: int, code: str) -> None:
    bench = Bench()
    api = AddApi()
    left = [failures]

    def error(context: RequestContext, request: Any, code: ErrorCode, message: str | None = None) -> Any:
        if left[0]:
            left[0] -= 1
            raise MemoryError
        return AddApi.error(api, context, request, code, message)

    api.error = error  # type: ignore[method-assign]
    bench.api = api
    got: list[Any] = []
    for _ in range(3):
        bench.run("add", "a", 1).on_complete(got.append)
    bench.log.failures_left = 1
    assert not bench.pipeline.commit()
    first = api.storage_error if code == "storage" else ErrorCode.UNKNOWN_SERVER_ERROR
    assert got == [("error", first, None), *[("error", api.storage_error, None)] * 2]


@pytest.mark.parametrize("background", [False, True])
def test_a_response_that_is_added_twice_keeps_its_first_value(background: bool) -> None:
    """An interrupt may come after a response was added and before this was recorded."""
    bench = Bench()
    bench.run("add", "a", 1)
    add = bench.pipeline.respond_after_commit
    if background:
        commit = bench.pipeline.start_background(threading.Lock())
        assert commit is not None
        commit.write()
        add = bench.pipeline.respond_after_background
    pending = Pending(bench.api, RequestContext(0), ("read", "a"))
    add(pending, "first")
    add(pending, "second")
    assert bench.pipeline.finish_background(commit) if background else bench.pipeline.commit()
    assert pending.response == "first"


def test_a_failed_round_completes_all_responses_although_memory_was_short(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_response = CommitPipeline._fail_response
    raised = []

    def short(self: CommitPipeline, pending: Pending, error: LogError, attempt: int) -> None:
        if not raised:
            raised.append(pending)
            raise MemoryError
        fail_response(self, pending, error, attempt)

    monkeypatch.setattr(CommitPipeline, "_fail_response", short)
    bench = Bench()
    pendings = [bench.run("add", "a", 1) for _ in range(3)]
    bench.log.failures_left = 1
    assert not bench.pipeline.commit()
    assert [pending.response for pending in pendings] == [NOT_COORDINATOR] * 3
    assert not bench.pipeline.interrupted


def test_a_raising_participant_does_not_prevent_notifications_of_others() -> None:
    class Participant:
        allows_background_commit = True

        def __init__(self, faulty: bool) -> None:
            self.faulty = faulty
            self.news: list[str] = []

        def seal(self) -> None:
            pass

        def committed(self) -> None:
            if self.faulty:
                raise RuntimeError("a bug after a commit")
            self.news.append("committed")

        def failed(self, error: LogError) -> None:
            if self.faulty:
                raise RuntimeError("a bug after a failed commit")
            self.news.append("failed")

    bench = Bench()
    first, last = Participant(True), Participant(False)
    for fails in (0, 1):
        bench.log.failures_left = fails
        bench.pipeline.enlist(first)
        pending = bench.run("add", "a", 1)
        bench.pipeline.enlist(last)
        assert bench.pipeline.commit() is not bool(fails)
        assert pending.done
    assert last.news == ["committed", "failed"]


def test_parts_that_cannot_be_combined_still_give_a_response() -> None:
    api, context = AddApi(), RequestContext(0)
    part = Pending(api, context, "part")
    whole = gather(api, context, "whole", [part], lambda parts: 1 / 0)
    part.complete("a")
    assert whole.response == BUG


def test_the_cause_of_a_failed_write_is_logged_once_in_a_row(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If several commits in a row fail for the same cause, only the first failure is logged.

    The next failure is logged if its cause differs or if a commit has succeeded in between.
    """
    bench = Bench()
    written = bench.log.write
    full, other = "the disk is full", "another cause"
    for cause in (full, full, other, None, full):

        def write(write_set: Any, cause: str | None = cause) -> None:
            if cause is not None:
                raise LogError(cause)
            written(write_set)

        monkeypatch.setattr(bench.log, "write", write)
        bench.run("add", "a", 1)
        assert bench.pipeline.commit() is (cause is None)
        bench.slices.finish()
    prefix = "commit: the log in memory refused a write: "
    advice = (
        "; the requests of this commit fail; the clients try again; if this repeats, check the disk or the database of "
        "the log"
    )
    lines = [record.getMessage() for record in caplog.records if record.name == "kcore.runtime.commit"]
    again = "commit: the log in memory accepts writes again, after 3 refused writes"
    assert lines == [prefix + full + advice, prefix + other + advice, again, prefix + full + advice]


@pytest.mark.parametrize(
    ("error", "level", "advice"),
    [
        (
            LogError("no space left", FailureReason.DISK_FULL),
            logging.ERROR,
            "free space on the disk: writes then succeed again, without a restart",
        ),
        (
            LogError("the log needs a larger map", FailureReason.SIZE_LIMIT),
            logging.ERROR,
            "the clients try again; raise the limit of the address space (`ulimit -v`), or delete records",
        ),
        (
            FencedWriteError("another node leads the partition"),
            logging.WARNING,
            "the clients find the new leader of the partitions and try again",
        ),
    ],
    ids=["full disk", "limit of memory", "failover"],
)
def test_the_log_says_what_an_operator_can_do_about_a_refused_write(
    error: LogError, level: int, advice: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()

    def write(write_set: Any) -> None:
        raise error

    monkeypatch.setattr(bench.log, "write", write)
    bench.run("add", "a", 1)
    assert not bench.pipeline.commit()
    (record,) = [record for record in caplog.records if record.name == "kcore.runtime.commit"]
    assert record.levelno == level
    assert record.getMessage().endswith(f": {error}; the requests of this commit fail; {advice}")
