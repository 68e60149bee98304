"""Log lines of failures name the object and advise on the error."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from kcore.log.errors import LogError
from kcore.process_logging import log_name, next_step
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Outcome, Pending, Record, RequestContext
from kcore.runtime.shard_timer import ShardTimer
from kcore.runtime.slices import Slices
from tests.runtime.machines import Bench, Count, Name


class Unnamed:
    def method(self) -> None: ...


class Named(Unnamed):
    def __repr__(self) -> str:
        return "t-0"


class Broken:
    def __repr__(self) -> str:
        raise MemoryError


def work() -> Iterator[None]:
    yield
    raise RuntimeError("a bug")


def test_functions_methods_and_generators_have_their_qualified_names() -> None:
    assert log_name(work) == log_name(work()) == "work"
    assert log_name(Named().method) == log_name(partial(partial(Named().method), 1)) == "Unnamed.method"


def test_objects_of_kcore_have_the_name_of_their_repr_or_class(monkeypatch: pytest.MonkeyPatch) -> None:
    for own in (Named, Unnamed, Broken):
        monkeypatch.setattr(own, "__module__", "kcore.broker.partition")
    assert (log_name(Named()), log_name(Unnamed())) == ("t-0", "Unnamed")
    assert log_name(Broken()) == "an unknown object"


def test_objects_of_the_user_have_the_name_of_their_class() -> None:
    """The `repr` of a user's callback may contain a password."""
    assert (log_name(Named()), log_name(Broken())) == ("Named", "Broken")


def test_the_advice_depends_on_the_error() -> None:
    assert next_step(RuntimeError()) == "; please report the error"
    assert next_step(MemoryError()) == "; the process is out of memory: reduce the load, or add memory to the machine"
    assert next_step(KeyboardInterrupt()) == ""


@pytest.mark.parametrize(("subject", "name"), [(None, "work"), (Named(), "work of t-0")])
def test_failed_work_is_named_with_its_subject(subject: object, name: str, caplog: pytest.LogCaptureFixture) -> None:
    slices = Slices()
    slices.add(work(), subject)
    slices.finish()
    assert caplog.messages == [
        f"background work: {name} failed; kcore drops the rest of this work; please report the error"
    ]


def test_a_subject_without_a_name_does_not_stop_other_work() -> None:
    done: list[int] = []

    def other() -> Iterator[None]:
        yield
        done.append(1)

    slices = Slices()
    slices.add(work(), Broken())
    slices.add(other())
    slices.finish()
    assert done == [1]


def test_a_failed_commit_names_its_shards(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.run("add", "a", 1)
    bench.pipeline.abort_round(LogError("a fault"))
    bench.pipeline.commit()
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors[0] == (
        "commit: one change of the commit of shard __counters-0 cannot be written; kcore therefore writes no change of "
        "this commit, and the clients of its requests get an error and try again; if this repeats, check the disk of "
        "the log"
    )


def test_refused_records_of_a_component_are_not_in_the_log_line(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(max_batch_bytes=400)
    bench.shard.write(Outcome(records=[Record(Name(f"secret{n}"), Count(n)) for n in range(100)]))
    assert caplog.messages[-1] == (
        "shard __counters-0: the records of a component of this node were refused with UNKNOWN_SERVER_ERROR, and none "
        "of them is written; an earlier line of this shard has the cause"
    )


class Unnameable(ShardTimer):
    """A timer whose name cannot be made, because memory is short."""

    def __repr__(self) -> str:
        raise MemoryError

    def fire(self) -> None: ...


def test_responses_of_refused_records_are_replaced_although_the_action_has_no_name() -> None:
    bench = Bench()
    pending = Pending(bench.api, RequestContext(0), ("add", "a", 1), parked=True)
    bench.shard.respond(pending, "success")
    with pytest.raises(MemoryError):
        bench.shard._unwritten(Unnameable(), ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [response for _, response in bench.shard._outbox] == [("error", ErrorCode.UNKNOWN_SERVER_ERROR, None)]
