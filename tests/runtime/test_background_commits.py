"""Rounds that are committed in the background while the shard processes later requests. No response is sent before its
commit, and no part of a failed round remains.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kcore.log import LogError, PartitionKey
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Outcome, Pending, Record, RequestContext, Shard, ShardState
from kcore.runtime.commit import BackgroundCommit, CommitPipeline
from kcore.runtime.shard_services import ShardServices
from kcore_ext.batch import iter_records
from tests.runtime.machines import KEY, AddApi, Bench, Count, CounterMachine, Name

NOT_COORDINATOR = ("error", ErrorCode.NOT_COORDINATOR, None)
OTHER = PartitionKey(bytes(15) + b"\x0a", 0)


class TwoShards(Bench):
    """Two shards with a log each, and one pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self.other: Shard[CounterMachine] = Shard(
            "__other",
            0,
            self.log.open(OTHER),
            CounterMachine,
            ShardServices(self.pipeline, self.wheel, self.slices, self.now),
        )
        self.other.load()
        self.slices.finish()

    def run_on(self, shard: Shard[CounterMachine], *request: Any) -> Any:
        return shard.run(self.api, RequestContext(0), request)

    def start_background(self) -> BackgroundCommit:
        background_commit = self.pipeline.start_background(threading.Lock())
        assert background_commit is not None
        return background_commit

    def stored(self, key: PartitionKey = KEY) -> list[tuple[bytes | None, bytes | None]]:
        return [(r.key, r.value) for _, batch in self.log.open(key).batches() for r in iter_records(batch)]


def response_of(response: Any) -> Any:
    """Returns the response of a request, or None while the request is pending."""
    return response if not isinstance(response, Pending) else response.response if response.done else None


def test_responses_wait_only_for_the_round_that_they_depend_on() -> None:
    bench = TwoShards()
    first = bench.run("add", "a", 1)
    background_commit = bench.start_background()
    assert (bench.pipeline.committing, bench.pipeline.dirty, bench.pipeline.has_uncommitted) == (True, False, True)
    read, elsewhere = bench.run("read", "a"), bench.run_on(bench.other, "read", "b")
    assert response_of(elsewhere) == ("count", "b", 0)
    second = bench.run("add", "a", 1)
    late = bench.run("read", "a")
    background_commit.write()
    assert [response_of(response) for response in (first, read, second, late)] == [None] * 4
    assert bench.pipeline.finish_background(background_commit)
    assert (bench.pipeline.committing, bench.pipeline.dirty, bench.pipeline.has_uncommitted) == (False, True, True)
    assert [response_of(response) for response in (first, read)] == [("added", "a", 1), ("count", "a", 1)]
    assert [response_of(response) for response in (second, late)] == [None, None]
    assert bench.stored() == [(b"a", b"3:1")]
    assert bench.pipeline.commit()
    assert [response_of(response) for response in (second, late)] == [("added", "a", 2), ("count", "a", 2)]
    assert bench.stored() == [(b"a", b"3:1"), (b"a", b"3:2")]
    assert response_of(bench.run("read", "a")) == ("count", "a", 2)
    assert (bench.pipeline.rounds, bench.pipeline.failures, bench.pipeline.committing) == (2, 0, False)


def test_a_parked_request_completed_meanwhile_waits_for_the_background_commit() -> None:
    bench = TwoShards()
    parked = bench.run("wait", "a", 5)
    bench.run("add", "a", 1)
    background_commit = bench.start_background()
    bench.shard.machine.context.respond(parked, ("reached", "a", 1))
    bench.run("read", "a")
    assert response_of(parked) is None
    background_commit.write()
    bench.pipeline.finish_background(background_commit)
    assert response_of(parked) == ("reached", "a", 1)


def test_a_failed_round_discards_decisions_made_on_top_of_it() -> None:
    bench = TwoShards()
    bench.run("add", "a", 1)
    bench.pipeline.commit()
    first = bench.run("add", "a", 10)
    background_commit = bench.start_background()
    on_top, read, elsewhere = (
        bench.run("add", "a", 100),
        bench.run("read", "a"),
        bench.run_on(bench.other, "add", "b", 1),
    )
    bench.log.failures_left = 1
    background_commit.write()
    assert not bench.pipeline.finish_background(background_commit)
    assert [response_of(response) for response in (first, on_top, read, elsewhere)] == [NOT_COORDINATOR] * 4
    assert (bench.pipeline.dirty, bench.pipeline.committing, bench.pipeline.has_uncommitted) == (False, False, False)
    bench.slices.finish()
    assert (response_of(bench.run("read", "a")), response_of(bench.run_on(bench.other, "read", "b"))) == (
        ("count", "a", 1),
        ("count", "b", 0),
    )
    again = bench.run("add", "a", 1)
    assert bench.pipeline.commit()
    assert response_of(again) == ("added", "a", 2)
    assert (bench.stored(), bench.stored(OTHER)) == ([(b"a", b"3:1"), (b"a", b"3:2")], [])


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_failed_round_whose_discard_could_not_be_called_is_discarded_by_the_next_commits(
    monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """A commit fails, and the calls that discard its round raise MemoryError. The next commits discard the round."""
    bench = TwoShards()
    bench.run("add", "a", 1)
    bench.pipeline.commit()
    bench.run("add", "a", 10)
    background_commit = bench.start_background()
    bench.log.failures_left = 1
    background_commit.write()
    errors = [MemoryError()] * lost

    def interrupted(call: Any) -> Any:
        def run(*arguments: Any) -> None:
            if errors:
                raise errors.pop()
            call(*arguments)

        return run

    monkeypatch.setattr(bench.log, "fail", interrupted(bench.log.fail))
    monkeypatch.setattr(bench.log, "recover", interrupted(bench.log.recover))
    assert not bench.pipeline.finish_background(background_commit)
    for left in reversed(range(lost - 1)):
        assert (bench.pipeline.uncertain, len(errors)) == (True, left)
        refused = bench.run("add", "a", 100)
        assert not bench.pipeline.commit()
        assert response_of(refused) == NOT_COORDINATOR
    assert not bench.pipeline.uncertain
    bench.slices.finish()
    again = bench.run("add", "a", 1)
    assert bench.pipeline.commit()
    assert response_of(again) == ("added", "a", 2)
    assert bench.stored() == [(b"a", b"3:1"), (b"a", b"3:2")]


def test_a_round_whose_discard_could_not_be_called_is_not_written_by_the_next_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`rollback` and `recover` raise MemoryError, so the log still has the staged records of the failed round.

    The next commit must not write these records.
    """
    bench = TwoShards()
    refused = bench.run("add", "a", 10)

    def no_memory() -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(bench.log, "commit", no_memory)
        patch.setattr(bench.log, "rollback", no_memory)
        patch.setattr(bench.log, "recover", no_memory)
        assert not bench.pipeline.commit()
    late = bench.run("add", "a", 100)
    assert not bench.pipeline.commit()
    bench.slices.finish()
    again = bench.run("add", "a", 1)
    assert bench.pipeline.commit()
    assert [response_of(response) for response in (refused, late, again)] == [NOT_COORDINATOR] * 2 + [("added", "a", 1)]
    assert bench.stored() == [(b"a", b"3:1")]


def test_an_inline_commit_waits_for_the_background_commit_and_finishes_it_first() -> None:
    bench = TwoShards()
    first = bench.run("add", "a", 1)
    background_commit = bench.start_background()
    second = bench.run("add", "a", 1)
    writer = threading.Timer(0.01, background_commit.write)
    writer.start()
    assert bench.pipeline.commit()
    writer.join()
    assert (response_of(first), response_of(second)) == (("added", "a", 1), ("added", "a", 2))
    assert bench.pipeline.finish_background(background_commit), "the commit has ended already, and is not changed"
    assert bench.stored() == [(b"a", b"3:1"), (b"a", b"3:2")]


def test_a_commit_whose_start_was_interrupted_does_not_keep_the_log_open(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = TwoShards()
    first = bench.run("add", "a", 1)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CommitPipeline, "_begin_background", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.start_background()
    abandoned = threading.Thread(target=bench.pipeline.abandon, daemon=True)
    abandoned.start()
    abandoned.join(10)
    assert not abandoned.is_alive()
    assert (response_of(first), bench.stored()) == (None, [])


def test_a_cancelled_commit_is_not_written() -> None:
    bench = TwoShards()
    bench.run("add", "a", 1)
    background_commit = bench.start_background()
    bench.pipeline.abandon()
    background_commit.write()
    assert bench.stored() == []


def test_an_inline_commit_after_a_failed_background_commit_reports_the_failure() -> None:
    bench = TwoShards()
    first = bench.run("add", "a", 1)
    background_commit = bench.start_background()
    second = bench.run("add", "a", 1)
    bench.log.failures_left = 1
    background_commit.write()
    assert not bench.pipeline.commit()
    assert (response_of(first), response_of(second)) == (NOT_COORDINATOR, NOT_COORDINATOR)
    assert not bench.pipeline.finish_background(background_commit)
    bench.slices.finish()
    assert bench.stored() == []


def test_some_rounds_are_not_committed_in_the_background() -> None:
    """A round without writes is not committed in the background, nor a round that will be aborted. The same applies if
    another background commit still runs.

    A shard may forbid background commits, because requests could read its uncommitted state.
    """
    bench = TwoShards()
    assert bench.pipeline.start_background(threading.Lock()) is None
    bench.run("add", "a", 1)
    background_commit = bench.start_background()
    bench.run_on(bench.other, "add", "b", 1)
    assert bench.pipeline.start_background(threading.Lock()) is None
    background_commit.write()
    bench.pipeline.finish_background(background_commit)
    bench.shard.allows_background_commit = False
    bench.run("add", "a", 1)
    assert not bench.pipeline.allows_background_commit
    assert bench.pipeline.start_background(threading.Lock()) is None
    assert bench.pipeline.commit()
    assert bench.pipeline.allows_background_commit
    lost = bench.run_on(bench.other, "add", "b", 1)
    bench.pipeline.abort_round(LogError("no"))
    assert bench.pipeline.start_background(threading.Lock()) is None
    assert not bench.pipeline.commit()
    assert response_of(lost) == NOT_COORDINATOR
    bench.slices.finish()
    assert (bench.stored(), bench.stored(OTHER)) == ([(b"a", b"3:1"), (b"a", b"3:2")], [(b"b", b"3:1")])


def test_a_shard_with_invalid_memory_is_reloaded_after_its_last_commit() -> None:
    class Awkward(AddApi):
        def decide(self, machine: CounterMachine, context: RequestContext, request: Any) -> Any:
            if request[0] == "unreplayable":
                return Outcome([Record(Name("unreplayable"), Count(1))], "kept")
            return super().decide(machine, context, request)

    bench = TwoShards()
    bench.api = Awkward()
    first = bench.run("add", "a", 1)
    background_commit = bench.start_background()
    refused = bench.run("unreplayable")
    assert response_of(refused) == NOT_COORDINATOR
    assert bench.shard.state is ShardState.FAILED, "the log does not have the whole round yet"
    background_commit.write()
    assert bench.pipeline.finish_background(background_commit)
    assert response_of(first) == ("added", "a", 1)
    assert bench.shard.state is ShardState.FAILED, "the shard enlisted in the next round before it changed anything"
    assert bench.pipeline.commit()
    assert bench.shard.state is ShardState.LOADING
    bench.slices.finish()
    assert response_of(bench.run("read", "a")) == ("count", "a", 1)
    assert bench.stored() == [(b"a", b"3:1")]


class BackgroundCommits(RuleBasedStateMachine):
    """A random sequence of requests, commits and failures.

    Invariants: each acknowledged count is in the log and never disappears, a refused count is not in the log, and the
    state in memory equals the log.
    """

    @initialize()
    def begin(self) -> None:
        self.bench = TwoShards()
        self.background_commit: BackgroundCommit | None = None
        self.fails = False
        self.wrote = False
        self.open_requests: list[tuple[PartitionKey, Any]] = []
        self.number = 0

    def shard(self, other: bool) -> tuple[PartitionKey, Shard[CounterMachine]]:
        return (OTHER, self.bench.other) if other else (KEY, self.bench.shard)

    @rule(other=st.booleans())
    def add(self, other: bool) -> None:
        key, shard = self.shard(other)
        self.number += 1
        self.open_requests.append((key, self.bench.run_on(shard, "add", f"n{self.number}", self.number)))

    @rule(other=st.booleans(), back=st.integers(0, 3))
    def read(self, other: bool, back: int) -> None:
        key, shard = self.shard(other)
        self.open_requests.append((key, self.bench.run_on(shard, "read", f"n{max(1, self.number - back)}")))

    @rule(other=st.booleans())
    def go_wrong(self, other: bool) -> None:
        """Makes the replay of a request's records fail."""
        _, shard = self.shard(other)
        refused = shard.write(Outcome([Record(Name("unreplayable"), Count(1))]))
        assert refused is not None

    @rule()
    def start_background(self) -> None:
        committing = self.bench.pipeline.committing
        background_commit = self.bench.pipeline.start_background(threading.Lock())
        assert background_commit is None or not committing
        if background_commit is not None:
            self.background_commit, self.wrote = background_commit, False

    @rule(fails=st.booleans())
    def write(self, fails: bool) -> None:
        if self.background_commit is not None and not self.wrote:
            self.bench.log.failures_left = int(fails)
            self.background_commit.write()
            self.wrote, self.fails = True, fails

    @rule()
    def finish_background(self) -> None:
        if self.background_commit is not None and self.wrote:
            assert self.bench.pipeline.finish_background(self.background_commit) is not self.fails
            self.background_commit = None

    @rule(fails=st.booleans())
    def commit(self, fails: bool) -> None:
        if self.background_commit is None or self.wrote:
            self.bench.log.failures_left = int(fails)
            self.bench.pipeline.commit()
            self.bench.log.failures_left = 0
            self.background_commit = None

    @rule()
    def finish_loads(self) -> None:
        self.bench.slices.finish()

    @invariant()
    def what_was_told_is_in_the_log(self) -> None:
        stored = {key: {k for k, _ in self.bench.stored(key)} for key in (KEY, OTHER)}
        still: list[tuple[PartitionKey, Any]] = []
        for key, result in self.open_requests:
            response = response_of(result)
            if response is None:
                still.append((key, result))
            elif response[0] == "added" or (response[0] == "count" and response[2]):
                assert response[1].encode() in stored[key], response
            elif response[0] == "error":
                assert response[1] in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), response
        self.open_requests = still

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        if self.background_commit is not None and not self.wrote:
            self.background_commit.write()
        self.bench.pipeline.commit()
        self.bench.slices.finish()
        self.bench.pipeline.commit()
        self.what_was_told_is_in_the_log()
        assert self.open_requests == []
        for key, shard in ((KEY, self.bench.shard), (OTHER, self.bench.other)):
            counts = {k.decode(): int(v.split(b":")[1]) for k, v in self.bench.stored(key) if k and v}
            assert shard.state is ShardState.ACTIVE
            assert shard.machine.counts == counts


TestBackgroundCommits = pytest.mark.timeout(300)(BackgroundCommits.TestCase)
TestBackgroundCommits.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, print_blob=True)
