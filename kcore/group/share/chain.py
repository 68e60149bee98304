"""Requests that run in several steps, such as a decision, an operation of the persister, and a second decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kcore.errors import KafkaError
from kcore.process_logging import limited_logger
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.failed_requests import log_failed_request
from kcore.runtime.pending import Pending, gather
from kcore.share.persister import when_complete

if TYPE_CHECKING:
    from kcore.group.share.offsets import BeginAlterResult, BeginDeleteResult
    from kcore.runtime.api import Api, RequestContext

logger = limited_logger(__name__)

Step = Callable[[Any], Any]
"""A function that runs one step of a request, for example a decision in a shard.

Its argument is the result of the previous step. It returns its own result, or a `Pending` for it.
"""


class Chained(Pending):
    """The pending response to a request that runs in several steps."""

    __slots__ = ("_steps",)

    def __init__(self, api: Api[Any, Any], context: RequestContext, request: Any, steps: tuple[Step, ...]) -> None:
        super().__init__(api, context, request, parked=True)
        self._steps = list(steps)

    def advance(self, result: Any) -> None:
        """Runs the next step with `result`, the result of the previous step. Completes the request after the last step.

        Also completes the request early if `result` is already a response of the API.
        """
        if isinstance(result, self.api.response_type) or not self._steps:
            self.complete(result)
            return
        step = self._steps.pop(0)
        try:
            when_complete(step(result), self.advance)
        except KafkaError as error:
            self.complete(self.api.error(self.context, self.request, error.code, error.message))
        except Exception as error:
            message = "%s failed; the client gets UNKNOWN_SERVER_ERROR%s"
            self.fail(ErrorCode.UNKNOWN_SERVER_ERROR)  # first: there may be no memory for the line
            log_failed_request(logger, error, message, self.api, self.context)


def chain(api: Api[Any, Any], context: RequestContext, request: Any, first: Any, *steps: Step) -> Any:
    """Runs the steps of a request in order. Each step begins when the result of the previous step is durable.

    Args:
        api: the API of the request. If a step returns a response of this API, usually an error, the chain ends.
        context: the context of the request.
        request: the request that the steps serve.
        first: the result of the first step, or a `Pending` for it.
        steps: the remaining steps.

    Returns:
        The response, or a `Pending` for it.
    """
    chained = Chained(api, context, request, steps)
    when_complete(first, chained.advance)
    return chained.response if chained.done else chained


def with_result(api: Api[Any, Any], decided: BeginAlterResult | BeginDeleteResult, result: Any) -> Any:
    """Adds the share coordinator's response to the result of the first step of a request.

    Args:
        api: the API of the request.
        decided: the result of the first step, in which the group coordinator decided the change.
        result: the share coordinator's response, or a `Pending` for it.

    Returns:
        `decided` with the response, or a `Pending` for it.
    """
    if not isinstance(result, Pending):
        return decided._replace(result=result)
    return gather(api, result.context, result.request, [result], lambda parts: decided._replace(result=parts[0]))
