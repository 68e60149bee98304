"""Limits on the log lines that clients cause, so that a hostile client cannot fill the disk with them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kcore.process_logging import fields

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

QUIET_S: Final = 10.0
"""Minimum time between two warnings of one `QuietLog`."""

ADDRESS_BURST: Final = 20
"""Maximum number of log lines that one client address may cause in a burst. After a burst, kcore allows the address one
more line per second.
"""

TOTAL_BURST: Final = 200
"""Maximum number of log lines that all client addresses together may cause in a burst. After a burst, kcore allows them
`TOTAL_PER_S` more lines per second.
"""

TOTAL_PER_S: Final = 10

MAX_ADDRESSES: Final = 1_000
"""Maximum number of addresses whose lines are counted. A further address replaces the address that was added first."""


class QuietLog:
    """A logger of at most one warning every `QUIET_S`. Each warning has the number of warnings suppressed before it.

    Args:
        clock: returns the time in seconds.
    """

    __slots__ = ("_clock", "_omitted", "_since_s")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since_s = -QUIET_S
        self._omitted = 0

    def warn(self, message: str, *arguments: object, **about: object) -> None:
        """Logs a warning, or counts it as suppressed."""
        now_s = self._clock()
        if now_s - self._since_s < QUIET_S:
            self._omitted += 1
            return
        if self._omitted:
            message += " (%d similar warnings suppressed)"
            arguments = (*arguments, self._omitted)
        self._since_s, self._omitted = now_s, 0
        logger.warning(message, *arguments, extra=fields(**about))


class _Budget:
    """The number of lines that may still be logged; it grows with time up to a maximum."""

    __slots__ = ("_left", "_maximum", "_per_s", "_since_s", "omitted")

    def __init__(self, maximum: int, per_s: float, now_s: float) -> None:
        self._maximum = maximum
        self._per_s = per_s
        self._left = float(maximum)
        self._since_s = now_s
        self.omitted = 0

    def has_line(self, now_s: float) -> bool:
        """Returns True if a line is left."""
        self._left = min(self._maximum, self._left + (now_s - self._since_s) * self._per_s)
        self._since_s = now_s
        return self._left >= 1

    def consume(self) -> None:
        """Subtracts one line from the budget."""
        self._left -= 1


class ClientLog:
    """The logger of events of single clients. It limits the number of lines for each client address, and in total.

    After suppressed lines of an address, its next line contains their number.

    Args:
        clock: returns the time in seconds.
    """

    __slots__ = ("_by_host", "_clock", "_total")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_host: dict[str, _Budget] = {}
        self._total = _Budget(TOTAL_BURST, TOTAL_PER_S, clock())

    def log(self, level: int, host: str, message: str, *arguments: object, **about: object) -> None:
        """Logs a line, or counts it as suppressed.

        Args:
            level: level of the line.
            host: the client's address.
            message: the message, with `%` placeholders.
            arguments: the values of the placeholders.
            about: the fields of the line.
        """
        if not logger.isEnabledFor(level):
            return
        now_s = self._clock()
        budget = self._by_host.get(host)
        if budget is None:
            if len(self._by_host) >= MAX_ADDRESSES:
                del self._by_host[next(iter(self._by_host))]
            budget = self._by_host[host] = _Budget(ADDRESS_BURST, 1, now_s)
        if not (budget.has_line(now_s) and self._total.has_line(now_s)):
            budget.omitted += 1
            return
        budget.consume()
        self._total.consume()
        if budget.omitted:
            message += " (%d log lines about this address suppressed)"
            arguments = (*arguments, budget.omitted)
            budget.omitted = 0
        logger.log(level, message, *arguments, extra=fields(**about))
