"""Requests that fail while there is no memory: for their error response, for the log line about the failure, or for a
retry. Each request completes all the same, because a client, a node or a task waits for its response.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import kcore
from kcore.broker.cluster import forwarding
from kcore.broker.cluster.forwarding import RETRY_FOR_MS, Forwarder
from kcore.broker.cluster.lease_guard import LeaseGuard
from kcore.broker.data import after_commit
from kcore.broker.data.after_commit import complete_with
from kcore.broker.data.transaction_verifier import PartitionVerifier, VerificationRequest
from kcore.clock import ManualClock, Now
from kcore.log import LogError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.envelope import EnvelopeResponse
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.runtime import Pending, RequestContext, failed_requests, sliced, slices
from kcore.runtime.pending import Derived
from kcore.runtime.sliced import SlicedPending, WaitingRequests
from kcore.runtime.slices import Slices
from kcore.server.peers import TcpPeers
from kcore.share import local
from kcore.share.local import _Operation
from kcore.share.shared import SharedPersister
from tests.faults.allocations import require_failing_allocations
from tests.runtime.machines import AddApi
from tests.runtime.test_sliced import API, CONTEXT, FAILED, REQUEST, count

UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR


def no_memory(*_: Any, **__: Any) -> Any:
    raise MemoryError


class NoMemoryApi(AddApi):
    """An API whose first error responses find no memory."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def error(self, context: Any, request: Any, code: Any, message: str | None = None) -> Any:
        if self.failures:
            self.failures -= 1
            raise MemoryError
        return super().error(context, request, code, message)


def test_an_error_response_is_built_again_and_then_replaced_by_the_exception() -> None:
    responses = []
    for failures in range(4):
        pending = Pending(NoMemoryApi(failures), RequestContext(0), "request")
        pending.on_complete(responses.append)
        pending.fail(ErrorCode.NOT_COORDINATOR)
    assert responses[:3] == [
        ("error", ErrorCode.NOT_COORDINATOR, None),
        ("error", ErrorCode.NOT_COORDINATOR, None),
        ("error", UNKNOWN, None),
    ]
    assert isinstance(responses[3], MemoryError)


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("is_pending", [True, False])
def test_an_embedded_node_raises_an_error_that_replaces_a_response(asynchronous: bool, is_pending: bool) -> None:
    """Before, the engine returned the exception as the response. Some APIs return the response of a `Pending` that
    completes at once instead of the `Pending`.
    """
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")

    def replace(engine: Any) -> Callable[[], None]:
        pending = Pending(NoMemoryApi(9), RequestContext(4), request, parked=True)
        engine.apis.made[request.API_KEY] = SimpleNamespace(
            fast=None,
            handle=lambda *_: pending if is_pending else pending.response,
            versions=(0, 4),
            request_type=HeartbeatRequest,
        )
        if not is_pending:
            pending.fail(UNKNOWN)
            return lambda: None
        return lambda: pending.fail(UNKNOWN)

    async def call() -> None:
        async with kcore.open_async() as node:
            asyncio.get_running_loop().call_soon(replace(node.engine))
            await node.send(request, 4)

    def call_and_wait() -> None:
        with kcore.open() as node:
            replace(node.engine)()
            node.send(request, 4)

    with pytest.raises(MemoryError):
        asyncio.run(call()) if asynchronous else call_and_wait()


def test_a_derived_response_that_cannot_be_made_is_an_error() -> None:
    source = Pending(AddApi(), RequestContext(0), "inner", parked=True)
    derived = Derived(AddApi(), RequestContext(0), "outer", source, no_memory)
    source.complete("response")
    assert (derived.parked, derived.response) == (True, ("error", UNKNOWN, None))


@pytest.mark.parametrize("error", [LogError("unreadable"), MemoryError()])
def test_a_failed_read_completes_before_its_log_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("log_storage_error", "log_failed_request"):
        monkeypatch.setattr(after_commit, name, no_memory)
    pending = Pending(AddApi(), RequestContext(0), "request")

    def read() -> None:
        raise error

    with pytest.raises(MemoryError):
        complete_with(pending, read)
    code = pending.api.storage_error if isinstance(error, LogError) else UNKNOWN
    assert pending.response == ("error", code, None)


def test_a_long_request_whose_slice_fails_twice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced, "internal_error_response", no_memory)
    work = Slices()
    work.requests.enabled = True
    pending = work.requests.run(API, CONTEXT, REQUEST, count([], 9, error=MemoryError()))
    work.finish()
    assert pending.response == FAILED
    assert (work.requests._running, len(work)) == (0, 0)


def test_long_requests_that_cannot_be_queued_do_not_hold_back_others(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Slices()
    work.requests.enabled = True
    add, failures = work.add, [1, 1, 0, 1]
    monkeypatch.setattr(Slices, "add", lambda _, *arguments: no_memory() if failures.pop() else add(*arguments))
    monkeypatch.setattr(sliced, "MAX_TOGETHER", 1)
    with pytest.raises(MemoryError):
        work.requests.run(API, CONTEXT, REQUEST, count([], 9))
    running, *waiting = (work.requests.run(API, CONTEXT, REQUEST, count([], 9)) for _ in range(3))
    work.finish()
    assert (running.response, [each.response for each in waiting]) == (9, [FAILED, FAILED])
    assert (work.requests._running, failures) == (0, [])


def test_a_retry_of_a_share_operation_completes_before_its_log_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "log_failure", no_memory)
    operation = _Operation(SimpleNamespace(call=no_memory), AddApi(), SimpleNamespace(group_id="g"))  # type: ignore[arg-type]
    with pytest.raises(MemoryError):
        operation._repeat()
    assert operation.response == ("error", UNKNOWN, None)


def test_an_unreadable_response_to_a_share_operation_is_not_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    class Results:
        @property
        def results(self) -> Any:
            raise MemoryError

    peers = SimpleNamespace(send=lambda node_id, request, version, done: done(Results()))
    persister = SharedPersister(*[None] * 5, cluster=None, peers=peers)  # type: ignore[arg-type]
    api: Any = AddApi()
    monkeypatch.setattr(AddApi, "versions", (0, 0), raising=False)
    pending = persister._send(2, api, SimpleNamespace(topics=[]))
    assert pending.response == ("error", ErrorCode.NOT_COORDINATOR, None)


class Peers:
    """The connections to other nodes, with one response for all requests."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.requests = 0

    def send(self, node_id: int, request: Any, version: int, done: Callable[[Any], None]) -> None:
        self.requests += 1
        if self.requests > 1 and self.response is None:
            raise MemoryError
        done(self.response)


@pytest.mark.parametrize("response", [None, EnvelopeResponse(error_code=UNKNOWN), EnvelopeResponse(response_data=b"")])
@pytest.mark.parametrize("has_timers", [True, False])
def test_a_forwarded_request_completes_before_the_lines_about_its_failure(
    response: Any, has_timers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("log_failure", "_log_refused"):
        monkeypatch.setattr(forwarding, name, no_memory)
    clock = ManualClock()
    now, timers = Now(clock), list[Callable[[], None]]()
    wheel = SimpleNamespace(add=(lambda _, call: timers.append(call)) if has_timers else no_memory)
    cluster: Any = SimpleNamespace(controller_id=2)
    forwarder = Forwarder(cluster, Peers(response), wheel, now)  # type: ignore[arg-type]
    context = RequestContext(7, client_host="/127.0.0.1")
    made: list[Pending] = []
    monkeypatch.setattr(forwarding, "Pending", lambda *a, **named: made.append(Pending(*a, **named)) or made[-1])

    def attempt(call: Callable[[], object]) -> None:
        with contextlib.suppress(MemoryError):
            call()

    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    attempt(lambda: forwarder.forward(AddApi(), context, request))
    while timers:
        clock.advance(RETRY_FOR_MS // 3)
        now.update()
        attempt(timers.pop())
    assert [pending.response for pending in made] == [("error", ErrorCode.NOT_CONTROLLER, None)]


def test_a_parked_response_whose_lease_cannot_be_checked_is_an_error() -> None:
    lease: Any = SimpleNamespace(is_valid=lambda: True)
    guard = LeaseGuard(lease, lambda: True, None, None, node_id=1, creates_topics=False)  # type: ignore[arg-type]
    source = Pending(AddApi(), RequestContext(0), "request", parked=True)
    checked = guard._checked(AddApi(), RequestContext(0), "request", source)
    lease.is_valid = no_memory
    source.complete("response")
    assert checked.response == ("error", UNKNOWN, None)


def test_a_superseded_verification_stays_outstanding_until_it_completes() -> None:
    verifier = PartitionVerifier(None, None, Now(ManualClock()))  # type: ignore[arg-type]
    failures = [1]

    def fail(code: ErrorCode) -> None:
        failures.pop()
        raise MemoryError

    superseded = VerificationRequest(verifier, "x", 1, 0, [("t", 0)], False, lambda _: None, lambda: None)
    verifier._outstanding[superseded.key] = superseded
    following = VerificationRequest(verifier, "x", 1, 0, [("t", 0)], False, lambda _: None, lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VerificationRequest, "fail", lambda _, code: fail(code))
        with pytest.raises(MemoryError):
            verifier.verify(following)
    assert verifier._outstanding == {superseded.key: superseded}


def test_a_superseded_verification_completes_once() -> None:
    """Its receiver may find no memory, or may verify the producer's next request."""
    verifier = PartitionVerifier(None, None, Now(ManualClock()))  # type: ignore[arg-type]
    results: list[tuple[str, Any]] = []

    def request(name: str, then: Callable[[], Any] = lambda: None) -> VerificationRequest:
        def done(codes: Any) -> None:
            results.append((name, codes["t", 0]))
            then()

        return VerificationRequest(verifier, "x", 1, 0, [("t", 0)], False, done, lambda: None)

    following = request("following")
    superseded = request("superseded", no_memory)
    verifier._outstanding[superseded.key] = superseded
    with pytest.raises(MemoryError):
        verifier.verify(following)
    verifier.verify(following)
    verifier._outstanding[superseded.key] = request("first", lambda: verifier.verify(request("second")))
    verifier.verify(request("third"))
    assert results == [
        ("superseded", ErrorCode.NETWORK_EXCEPTION),
        ("following", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("first", ErrorCode.NETWORK_EXCEPTION),
        ("second", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("third", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]
    assert verifier._outstanding == {}


async def test_a_node_that_cannot_be_reached_gives_a_response_before_its_log_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver: Any = SimpleNamespace(loop=asyncio.get_running_loop(), begin_round=lambda: None)
    engine: Any = SimpleNamespace(cluster=SimpleNamespace(broker=lambda *_: no_memory()))
    peers = TcpPeers(driver, engine, "PLAINTEXT", "secret")
    monkeypatch.setattr("kcore.server.peers.log_failure", no_memory)
    monkeypatch.setattr(logging.Logger, "log", no_memory)
    driver.loop.set_exception_handler(lambda *_: None)
    done: asyncio.Future[Any] = driver.loop.create_future()
    peers.send(1, HeartbeatRequest(group_id="g"), 4, done.set_result)
    assert await asyncio.wait_for(done, 60) is None
    peers.close()


def test_handlers_of_failed_requests_need_no_context_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """`contextlib.suppress` needs memory. Before, `log_failure` raised the MemoryError of its own context manager."""
    monkeypatch.setattr("contextlib.suppress", no_memory)
    monkeypatch.setattr(logging.Logger, "error", no_memory)
    failed_requests.log_failure(logging.getLogger("kcore"), MemoryError(), "an error")
    assert failed_requests.internal_error_response(API, CONTEXT, REQUEST, MemoryError()) == FAILED


@pytest.mark.parametrize("count_failing", [1, 3])
def test_long_requests_start_although_an_allocation_fails_at_the_end_of_another_one(
    count_failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the choice of the next request could fail, and the waiting requests waited for another long request."""
    require_failing_allocations()
    testcapi = importlib.import_module("_testcapi")
    monkeypatch.setattr(sliced, "MAX_TOGETHER", 1)
    monkeypatch.setattr(slices, "log_failure", lambda *_: None)
    for nth in range(40):
        work = Slices()
        work.requests.enabled = True
        contexts = [CONTEXT._replace(client_host=f"/10.0.0.{number}", connection_id=number) for number in range(4)]
        pendings = [work.requests.run(API, context, REQUEST, count([], 9)) for context in contexts]
        while work.step() and not pendings[0].done:
            testcapi.set_nomemory(nth, nth + count_failing)
            try:
                work.step()
            except MemoryError:
                pass  # the driver continues
            finally:
                testcapi.remove_mem_hooks()
        work.finish()
        assert [each.done for each in pendings] == [True] * 4, nth
        assert all(each.response in (9, FAILED) for each in pendings)
        assert (work.requests._running, bool(work.requests._waiting)) == (0, False)


def test_a_long_request_that_cannot_wait_does_not_hold_back_others() -> None:
    """Before, its client had an entry without a request, and the choice of the next request failed at this entry."""
    require_failing_allocations()
    testcapi = importlib.import_module("_testcapi")
    pending = SlicedPending(API, CONTEXT, REQUEST, count([], 9), None)
    other = SlicedPending(API, CONTEXT._replace(client_host="/10.0.0.9", connection_id=9), REQUEST, count([], 9), None)
    failures = 0
    for nth in range(20):
        waiting = WaitingRequests()
        expected = [pending, other]
        testcapi.set_nomemory(nth, nth + 1)
        try:
            waiting.add(pending)
        except MemoryError:
            del expected[0]
        finally:
            testcapi.remove_mem_hooks()
        failures += len(expected) == 1
        waiting.add(other)
        assert [waiting.pop() for _ in expected] == expected
        assert not waiting
    assert failures
