"""Errors that kcore logs. An exception that no injected fault explains is a failure, even if kcore has handled it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kcore.log.errors import LogError
from kcore.log.faults import SimulatedCrashError

EXPLAINED: Final = (LogError, MemoryError, KeyboardInterrupt, SimulatedCrashError, OSError)
"""Types of exceptions that injected faults cause: faults of the disk, the store and the network, and faults within a
commit.
"""


class LoggedErrors(logging.Handler):
    """A log handler that stores the first exception that no fault explains.

    Attributes:
        first: the line of the log and the exception, or None.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Implements `logging.Handler.emit`."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and self.first is None and not isinstance(error, EXPLAINED):
            self.first = f"logged: {record.getMessage()}: {error!r}"


@contextmanager
def collected(errors: LoggedErrors) -> Iterator[None]:
    """Passes the errors that kcore logs in the block to `errors`, and to no other handler."""
    logger = logging.getLogger("kcore")
    level, propagates = logging.root.manager.disable, logger.propagate
    logging.disable(logging.WARNING)
    logger.addHandler(errors)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = propagates
        logger.removeHandler(errors)
        logging.disable(level)
