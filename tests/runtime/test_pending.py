"""A pending response completes exactly once and calls its callback. It has at most one callback, which may be set
before or after the completion.
"""

from functools import partial
from typing import Any

import pytest

from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Pending, RequestContext, gather
from tests.runtime.machines import AddApi


def pending(*, parked: bool = False) -> Pending:
    return Pending(AddApi(), RequestContext(0), "request", parked=parked)


def test_the_callback_may_be_set_first_or_last() -> None:
    got: list[object] = []
    first, last = pending(), pending()
    first.on_complete(got.append)
    first.complete("a")
    last.complete("b")
    last.on_complete(got.append)
    assert got == ["a", "b"]


def test_a_second_response_raises() -> None:
    once = pending()
    once.complete("a")
    with pytest.raises(AssertionError, match="exactly once"):
        once.complete("b")


def test_a_failure_is_the_apis_own_error() -> None:
    got: list[object] = []
    failed = pending()
    failed.on_complete(got.append)
    failed.fail(ErrorCode.NOT_COORDINATOR)
    assert got == [("error", ErrorCode.NOT_COORDINATOR, None)]


def test_an_abandoned_response_is_dropped() -> None:
    got: list[object] = []
    left = pending()
    left.on_complete(got.append)
    left.abandon()
    left.complete("a")
    assert (got, left.done) == ([], True)


def test_gather_waits_for_all_parts_and_keeps_their_order() -> None:
    late, later, done = pending(), pending(parked=True), pending()
    done.complete("c")
    whole = gather(AddApi(), RequestContext(0), "request", [late, "b", done, later], "".join)
    assert isinstance(whole, Pending)
    assert whole.parked, "one parked part parks the whole"
    later.complete("d")
    assert not whole.done
    late.complete("a")
    assert whole.response == "abcd"


def test_gather_of_complete_parts_is_the_response() -> None:
    done = pending()
    done.complete("b")
    assert gather(AddApi(), RequestContext(0), "request", ["a", done], "".join) == "ab"


class Step(Pending):
    """A pending response whose callback for another response raises an exception."""

    def arrived(self, response: object) -> None:
        raise ValueError("a bug")


class NoMemoryApi(AddApi):
    def error(self, *arguments: Any, **named: Any) -> Any:
        raise MemoryError


@pytest.mark.parametrize("bound", [True, False])
def test_a_step_that_raises_fails_its_response(bound: bool, caplog: pytest.LogCaptureFixture) -> None:
    """If a step raises an exception, the client gets UNKNOWN_SERVER_ERROR instead of no response."""
    got: list[object] = []
    part, whole = pending(), Step(AddApi(), RequestContext(0), "request")
    whole.on_complete(got.append)
    part.on_complete(whole.arrived if bound else partial(whole.arrived))
    part.complete("a")
    assert got == [("error", ErrorCode.UNKNOWN_SERVER_ERROR, None)]
    assert [record.getMessage() for record in caplog.records] == [
        "the receiver of a response of Heartbeat raised an error"
    ]


def test_a_step_without_memory_for_the_error_passes_the_exception_on() -> None:
    """A callback raises an exception, and there is no memory for an error response. The response completes with the
    exception, so that the server closes the connection.
    """
    got: list[object] = []
    part, whole = pending(), Step(NoMemoryApi(), RequestContext(0), "request")
    whole.on_complete(got.append)
    part.on_complete(whole.arrived)
    part.complete("a")
    (error,) = got
    assert isinstance(error, ValueError)


def test_a_step_that_raises_after_its_response_changes_nothing() -> None:
    part, whole = pending(), Step(AddApi(), RequestContext(0), "request")
    whole.complete("done")
    part.on_complete(whole.arrived)
    part.complete("a")
    assert whole.response == "done"


def test_gather_fails_if_the_whole_cannot_be_built() -> None:
    part = pending()
    whole = gather(AddApi(), RequestContext(0), "request", [part], lambda parts: parts[1])
    assert isinstance(whole, Pending)
    part.complete("a")
    assert whole.response == ("error", ErrorCode.UNKNOWN_SERVER_ERROR, None)
