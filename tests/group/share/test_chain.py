"""Requests that run in several steps: their responses if a step fails."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.errors import KafkaError
from kcore.group.share.chain import chain
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatResponse
from kcore.runtime import Pending, failed_requests
from tests.runtime.test_sliced import API, CONTEXT, FAILED, REQUEST


def failing_after_first_step(error: Exception) -> tuple[Pending, Pending]:
    """Returns a request whose second step raises an error, and the pending result of its first step."""

    def fail(result: Any) -> Any:
        raise error

    first = Pending(API, CONTEXT, REQUEST)
    return chain(API, CONTEXT, REQUEST, first, fail), first


@pytest.mark.parametrize(
    ("error", "code"),
    [(KafkaError(ErrorCode.INVALID_REQUEST), ErrorCode.INVALID_REQUEST), (ValueError("a bug"), FAILED.error_code)],
)
def test_a_failure_of_a_later_step_is_the_response(error: Exception, code: int) -> None:
    pending, first = failing_after_first_step(error)
    first.complete("the result of the first step")
    assert pending.response == HeartbeatResponse(error_code=code)


@pytest.mark.parametrize("error", [ValueError("a bug"), MemoryError()], ids=["defect", "memory"])
def test_a_step_that_fails_has_a_response_without_memory_for_a_log_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []

    def fail(*arguments: Any) -> str:
        names.append(arguments)
        raise MemoryError

    monkeypatch.setattr(failed_requests, "request_name", fail)
    pending, first = failing_after_first_step(error)
    first.complete("the result of the first step")
    assert names == [(API, CONTEXT)]
    assert pending.response == FAILED


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ValueError("a bug"), "please report the error"),
        (MemoryError(), "the process is out of memory: reduce the load, or add memory to the machine"),
    ],
    ids=["defect", "memory"],
)
def test_the_log_line_of_a_failed_step_advises_on_its_error(
    error: Exception, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, first = failing_after_first_step(error)
    first.complete("the result of the first step")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.getMessage() == f"Heartbeat of client 'c' failed; the client gets UNKNOWN_SERVER_ERROR; {advice}"
