"""Long requests in slices: the work of a slice, concurrent requests, and abandoned requests."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.errors import KafkaError, LogError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.runtime import Api, Pending, RequestContext, failed_requests, sliced
from kcore.runtime.pending import FEW_NAMES, gather_each
from kcore.runtime.sliced import MAX_TOGETHER, SLICE_COST_US, Work
from kcore.runtime.slices import Slices

CONTEXT = RequestContext(4, "c")
REQUEST = HeartbeatRequest(group_id="g")
FAILED = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


class Beat(Api[Any, Any]):
    key = ApiKey.HEARTBEAT
    request_type = HeartbeatRequest
    response_type = HeartbeatResponse
    versions = (4, 4)

    __slots__ = ()

    def handle(self, context: RequestContext, request: Any) -> Any:
        return self.error(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)

    def error(self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None) -> Any:
        return HeartbeatResponse(error_code=code)


API = Beat()


def slices(enabled: bool = True) -> Slices:
    made = Slices()
    made.requests.enabled = enabled
    return made


def count(done: list[int], steps: int, cost: int = SLICE_COST_US // 4, error: Exception | None = None) -> Work:
    for number in range(steps):
        done.append(number)
        yield cost
    if error is not None:
        raise error
    return steps


@pytest.mark.parametrize(("enabled", "steps"), [(True, 3), (False, 1_000)])
def test_a_short_request_and_one_without_a_loop_are_decided_at_once(enabled: bool, steps: int) -> None:
    work = slices(enabled)
    assert work.requests.run(API, CONTEXT, REQUEST, count([], steps)) == steps
    assert len(work) == 0


def test_a_long_request_is_parked_between_its_slices() -> None:
    work, done = slices(), list[int]()
    pending = work.requests.run(API, CONTEXT, REQUEST, count(done, 10), lambda steps: ("finished", steps))
    assert isinstance(pending, Pending)
    seen = [(len(done), pending.done)]
    while work.step():
        seen.append((len(done), pending.done))
    assert seen == [(4, False), (8, False), (10, False)]  # `finish` runs in a slice of its own
    assert (pending.parked, pending.done, pending.response, len(done)) == (True, True, ("finished", 10), 10)


def test_a_pending_result_of_a_long_request_becomes_its_response() -> None:
    work, inner = slices(), Pending(API, CONTEXT, REQUEST)
    pending = work.requests.run(API, CONTEXT, REQUEST, count([], 10), lambda _: inner)
    work.finish()
    assert not pending.done
    inner.complete("committed")
    assert pending.response == "committed"


@pytest.mark.parametrize(
    ("error", "code"),
    [(KafkaError(ErrorCode.INVALID_REQUEST), ErrorCode.INVALID_REQUEST), (ValueError("a bug"), FAILED.error_code)],
)
def test_a_failure_in_a_later_slice_is_the_response(error: Exception, code: int) -> None:
    work = slices()
    pending = work.requests.run(API, CONTEXT, REQUEST, count([], 10, error=error))
    work.finish()
    assert pending.response == HeartbeatResponse(error_code=code)


@pytest.mark.parametrize(
    ("error", "code"),
    [(KafkaError(ErrorCode.INVALID_REQUEST), ErrorCode.INVALID_REQUEST), (ValueError("a bug"), FAILED.error_code)],
)
def test_a_failure_of_finish_is_the_response(error: Exception, code: int) -> None:
    def finish(result: int) -> Any:
        raise error

    work = slices()
    pending = work.requests.run(API, CONTEXT, REQUEST, count([], 10), finish)
    work.finish()
    assert pending.response == HeartbeatResponse(error_code=code)


@pytest.mark.parametrize(
    ("error", "code"),
    [(LogError("the disk"), ErrorCode.NOT_COORDINATOR), (ValueError("a bug"), FAILED.error_code)],
    ids=["log", "defect"],
)
def test_a_failure_in_a_later_slice_is_the_response_without_memory_for_a_log_line(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []

    def fail(*arguments: Any) -> str:
        names.append(arguments)
        raise MemoryError

    monkeypatch.setattr(failed_requests, "request_name", fail)
    work = slices()
    pending = work.requests.run(API, CONTEXT, REQUEST, count([], 10, error=error))
    work.finish()
    assert names == [(API, CONTEXT)]
    assert pending.response == HeartbeatResponse(error_code=code)


def test_only_few_requests_run_concurrently() -> None:
    """Only a limited number of long requests run at the same time. Further requests wait before their first slice, so
    they take no memory for a response.
    """
    work = slices()
    progress: list[list[int]] = [[] for _ in range(MAX_TOGETHER + 2)]
    pendings = [work.requests.run(API, CONTEXT, REQUEST, count(done, 100)) for done in progress]
    assert [len(done) for done in progress] == [4] + [0] * (MAX_TOGETHER + 1)
    for _ in range(MAX_TOGETHER):
        work.step()
    assert [len(done) for done in progress] == [8] + [4] * (MAX_TOGETHER - 1) + [0, 0]
    work.finish()
    assert [pending.response for pending in pendings] == [100] * len(pendings)


def test_a_read_ends_with_its_connection_and_a_write_continues() -> None:
    work, read, written = slices(), list[int](), list[int]()
    reads = work.requests.run(API, CONTEXT, REQUEST, count(read, 100))
    writes = work.requests.run(API, CONTEXT, REQUEST, count(written, 100), lambda steps: steps)
    reads.abandon()
    writes.abandon()
    work.finish()
    assert (len(read), reads.done, len(written), writes.response) == (4, False, 100, 100)


def test_a_duplicate_name_is_looked_up_once_and_returned_for_each_occurrence() -> None:
    requested: list[str] = []

    def find(name: str) -> str:
        requested.append(name)
        return name.upper()

    for work in (slices(), slices(False)):
        for caches_requests in (1, 3):
            requested.clear()
            names = [f"n{number % (4 * FEW_NAMES)}" for number in range(4 * FEW_NAMES * caches_requests)]
            found = gather_each(API, CONTEXT, REQUEST, names, find, list, work, lambda _: SLICE_COST_US // 10)
            work.finish()
            response = found.response if isinstance(found, Pending) else found
            assert response == [name.upper() for name in names]
            assert requested == names[: 4 * FEW_NAMES]


def test_a_client_does_not_wait_for_all_requests_of_another_one() -> None:
    """Long requests of different client addresses take turns.

    Otherwise a client with 300 connections could delay the requests of all other clients by 100 s.
    """
    work = slices()
    order: list[str] = []

    def send(name: str, host: str, connection_id: int, steps: int = 12) -> None:
        context = CONTEXT._replace(client_host=host, connection_id=connection_id)
        pending = work.requests.run(API, context, REQUEST, count([], steps))
        assert isinstance(pending, Pending)
        pending.on_complete(lambda _: order.append(name))

    for number in range(20):
        send("many", "/10.0.0.1", number)
    for _ in range(MAX_TOGETHER):
        work.step()
    send("other address", "/10.0.0.2", 100)
    send("many", "/10.0.0.2", 101)
    work.finish()
    assert order.index("other address") <= 2 * MAX_TOGETHER
    assert len(order) == 22


def test_a_connection_does_not_wait_for_all_requests_of_the_others() -> None:
    """Connections of one client address take turns, so that a connection with one request need not wait for all
    requests of the others. Each connection's requests keep their order.
    """
    work = slices()
    order: list[tuple[int, int]] = []

    def send(connection_id: int, number: int) -> None:
        pending = work.requests.run(API, CONTEXT._replace(connection_id=connection_id), REQUEST, count([], 12))
        assert isinstance(pending, Pending)
        pending.on_complete(lambda _: order.append((connection_id, number)))

    for number in range(3):
        for connection_id in range(6):
            send(connection_id, number)
    while len(order) < 8:
        work.step()
    send(9, 0)
    work.finish()
    assert order.index((9, 0)) < 8 + 2 * MAX_TOGETHER
    assert [number for connection_id, number in order if connection_id == 2] == [0, 1, 2]


def test_only_recent_work_of_clients_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced, "SPENT_REMEMBERED", 50 * SLICE_COST_US)
    work = slices()
    for connection_id in range(500):
        work.requests.run(API, CONTEXT._replace(connection_id=connection_id), REQUEST, count([], 12))
        work.finish()
    waiting = work.requests._waiting
    assert len(waiting._spent_by_connection) <= 50
    assert not waiting
