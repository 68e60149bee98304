"""The responses to requests whose `handle` raised an error."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kcore.errors import CloseConnectionError, KafkaError, LogError
from kcore.process_logging import fields, limited_logger, log_failure, next_step
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.runtime.api import Api, RequestContext

logger = limited_logger("kcore.engine")


def request_name(api: Api[Any, Any], context: RequestContext) -> str:
    """Returns the API and the client of a request, for log lines."""
    return f"{api.name} of client {context.client_id!r}"


def log_failed_request(
    component_logger: logging.Logger,
    error: BaseException,
    message: str,
    api: Api[Any, Any],
    context: RequestContext,
    *values: object,
) -> None:
    """Logs an error of a request that was handled. It never raises an `Exception` itself, so that the response follows.

    Args:
        component_logger: the component's logger.
        error: the error; its traceback is logged with the message.
        message: the message, with the placeholders of `values`, then `%s` for the request, and `%s` for the advice to
            the operator.
        api: the API of the request.
        context: the client and the API version of the request.
        values: the values of the first placeholders, such as the name of the component.
    """
    try:  # noqa: SIM105 - `suppress` would need memory
        log_failure(component_logger, error, message, *values, request_name(api, context), next_step(error))
    except Exception:
        pass  # no memory for the name of the request


def log_storage_error(
    component_logger: logging.Logger,
    error: LogError,
    message: str,
    api: Api[Any, Any],
    context: RequestContext,
) -> None:
    """Logs an error of the log that failed a request. It never raises an `Exception` itself, so that the response
    follows.

    The line has no traceback: the cause is not in kcore's code, and each retry of a client repeats the line.

    Args:
        component_logger: the component's logger.
        error: the error of the log.
        message: the message, with three placeholders: `%s` for the request, `%s` for the error, and `%s` for the error
            code of the response.
        api: the API of the request.
        context: the client and the API version of the request.
    """
    try:  # noqa: SIM105 - `suppress` would need memory
        component_logger.error(message, request_name(api, context), error, api.storage_error.name)
    except Exception:
        pass  # no memory for the name of the request


def error_response(api: Api[Any, Any], context: RequestContext, request: Any, error: Exception) -> Any:
    """Returns the error response to a request whose `handle` raised `error`, and logs the error.

    Raises:
        CloseConnectionError: the protocol has no response for the request (Produce, acks=0).
    """
    if isinstance(error, KafkaError):
        if logger.isEnabledFor(logging.INFO):
            _log_refused_request(error, api, context)
        return api.error(context, request, error.code, error.message)
    if isinstance(error, CloseConnectionError):
        raise error
    return internal_error_response(api, context, request, error)


def _log_refused_request(error: KafkaError, api: Api[Any, Any], context: RequestContext) -> None:
    """Logs a request that gets the code of a KafkaError. It never raises an `Exception` itself."""
    try:
        event = fields(
            api=api.name,
            error=error.code.name,
            client_id=context.client_id,
            connection=context.connection_id,
        )
        logger.info("%s was refused: %s", request_name(api, context), error, extra=event)
    except Exception:
        pass  # no memory for the line


def internal_error_response(api: Api[Any, Any], context: RequestContext, request: Any, error: Exception) -> Any:
    """Returns the error response to a request that failed because of an error of the log or of kcore, and logs the
    error.
    """
    if isinstance(error, LogError):
        log_storage_error(
            logger,
            error,
            "%s failed, because the log reported an error: %s; the client gets %s and tries again; if this "
            "repeats, check the disk of the log",
            api,
            context,
        )
        return api.error(context, request, api.storage_error)
    log_failed_request(logger, error, "%s failed; the client gets UNKNOWN_SERVER_ERROR%s", api, context)
    return api.error(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)
