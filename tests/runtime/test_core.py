"""Compares the compiled part of a shard with its reference implementation: responses, state and log are equal."""

from __future__ import annotations

import threading
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Outcome, Pending, Record, RequestContext, Shard
from kcore.runtime.commit import BackgroundCommit, CommitPipeline
from kcore.runtime.shard_services import ShardServices
from tests.reference.runtime import ReferencePipeline, ReferenceShard
from tests.runtime.machines import KEY, TOPIC, AddApi, Bench, CounterMachine, Name


class OddApi(AddApi):
    """An AddApi that also produces records that cannot be encoded or replayed."""

    def decide(self, machine: CounterMachine, context: RequestContext, request: Any) -> Any:
        verb, name, *_ = request
        if verb == "unencodable":
            return Outcome([Record(Name(name), 5)], "kept")  # type: ignore[arg-type]
        if verb == "unreplayable":
            return Outcome([Record(Name(name), None), Record(Name("unreplayable"), None)], "kept")
        if verb == "nothing":
            return Outcome([], "nothing kept")
        if verb == "reach":  # completes parked readers, then fails
            for _, _, pending in machine.waiting:
                machine.context.respond(pending, "reached")
            machine.waiting.clear()
            raise RuntimeError("a bug")
        return super().decide(machine, context, request)


class OneBench(Bench):
    """A bench for a compiled shard or for its reference implementation. Records every response."""

    def __init__(self, kind: type[Shard[Any]]) -> None:
        self.kind = kind
        super().__init__(max_batch_bytes=200)
        self.api = OddApi()
        self.responses: list[Any] = []
        self.background_commit: BackgroundCommit | None = None

    def make_pipeline(self) -> CommitPipeline:
        return ReferencePipeline(self.log) if self.kind is ReferenceShard else CommitPipeline(self.log)

    def make(self, index: int) -> Shard[CounterMachine]:
        return self.kind(
            TOPIC,
            index,
            self.log.open(KEY),
            CounterMachine,
            ShardServices(self.pipeline, self.wheel, self.slices, self.now),
            max_batch_bytes=self.max_batch_bytes,
        )

    def submit(self, number: int, request: tuple[Any, ...]) -> None:
        if request[0] == "take off":
            self.background_commit = self.pipeline.start_background(threading.Lock()) or self.background_commit
        elif request[0] in ("commit", "land"):
            self.log.failures_left = int(request[1] == "fails")
            background_commit, self.background_commit = self.background_commit, None
            if background_commit is not None:
                background_commit.write()
            written = (
                self.pipeline.commit()
                if request[0] == "commit"
                else background_commit and self.pipeline.finish_background(background_commit)
            )
            self.responses.append((number, request[0], written))
        elif request[0] == "load":
            self.slices.finish()
        elif request[0] == "pass":
            self.advance(request[2])
        else:
            result = self.run(*request)
            if isinstance(result, Pending):
                self.responses.append((number, "waits", result.parked))
                result.on_complete(lambda response: self.responses.append((number, "late", response)))
            else:
                self.responses.append((number, "now", result))

    def state(self) -> tuple[Any, ...]:
        shard = self.shard
        machine = shard.machine
        batches = [bytes(batch) for _, batch in self.log.open(KEY).batches()]
        flags = shard.dirty, shard.committing, self.pipeline.dirty, self.pipeline.committing
        return self.responses, shard.state, flags, shard.parked, machine.counts, machine.replayed, batches


names = st.sampled_from(["a", "b"])
requests = st.one_of(
    st.tuples(st.sampled_from(["add", "wait", "forget after", "in transaction"]), names, st.integers(1, 5)),
    st.tuples(st.sampled_from(["read", "refuse", "bug", "unencodable", "unreplayable", "nothing", "reach"]), names),
    st.tuples(st.just("large"), names.map(lambda _: 50) | st.just(300)).map(lambda pair: ("large", "x", pair[1])),
    st.tuples(st.sampled_from(["commit", "land"]), st.sampled_from(["works", "works", "fails"])),
    st.sampled_from([("take off", ""), ("load", "")]),
    st.tuples(st.just("pass"), st.just(""), st.integers(1, 5)),
)


@settings(deadline=None)
@given(st.lists(requests, max_size=25))
def test_both_give_the_same_responses_state_and_log(wanted: list[tuple[Any, ...]]) -> None:
    compiled, plain = OneBench(Shard), OneBench(ReferenceShard)
    for number, request in enumerate(wanted):
        for bench in (compiled, plain):
            bench.submit(number, request)
        assert compiled.state() == plain.state()


def test_both_refuse_requests_if_the_shard_is_not_active() -> None:
    for kind in (Shard, ReferenceShard):
        bench = OneBench(kind)
        bench.shard.load() if bench.shard.state.value == "failed" else bench.shard.unload()
        bench.submit(0, ("read", "a"))
        assert bench.responses == [(0, "now", ("error", ErrorCode.NOT_COORDINATOR, None))]
