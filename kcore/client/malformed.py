"""Turns failures of the code that reads responses into errors that name the broker, the API and the cause."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kcore.protocol.api_keys import api_name

if TYPE_CHECKING:
    from kcore.client.aio.broker import Broker
    from kcore.errors import KafkaError

MALFORMED: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,
    struct.error,
)
"""Exceptions that code may raise when it reads a response with missing rows or invalid values."""

MAX_CAUSE: Final = 300
"""Maximum length of the cause in an error message. The cause may quote a long value of the response."""


def malformed(broker: Broker | None, request: Any, error: Exception | str) -> KafkaError:
    """Returns a `MalformedResponseError`.

    Args:
        broker: the broker that sent the response; None: unknown.
        request: the request that the broker responded to.
        error: the exception of the code that read the response, or a text that describes the fault.
    """
    from kcore.errors.malformed import MalformedResponseError  # noqa: PLC0415 - only a failed request needs it

    address = "a broker" if broker is None or not broker.port else f"the broker at {broker.host}:{broker.port}"
    cause = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return MalformedResponseError(address, api_name(request.API_KEY), cause[:MAX_CAUSE])
