"""The log of denied operations, with a limit on its rate."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcore.protocol.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kcore.clock import Now

logger = logging.getLogger("kcore.authorizer")

WINDOW_MS = 10_000
MAX_LINES = 10
"""Maximum number of log lines for one principal, operation and resource type within `WINDOW_MS`.

One further line reports the number of denials that were not logged.
"""
MAX_WINDOWS = 1_000
MAX_PRINCIPAL_CHARACTERS = 300


class Window:
    """The denials of one principal, operation and resource type since `begin_ms`."""

    __slots__ = ("begin_ms", "count")

    def __init__(self, begin_ms: int) -> None:
        self.begin_ms = begin_ms
        self.count = 0


class DenialLog:
    """The log lines about denied operations. Their number is limited, so that a client that is denied often cannot fill
    the disk.

    Args:
        now: the clock, which the driver reads once for each round of requests.
    """

    __slots__ = ("_now", "_windows")

    def __init__(self, now: Now) -> None:
        self._now = now
        self._windows: dict[tuple[str, int, int], Window] = {}

    def denied(self, principal: str, client_host: str, operation: int, resource_type: int, name: str) -> None:
        """Logs a denied operation, unless the current window already has `MAX_LINES` log lines of this kind."""
        key = (principal[:MAX_PRINCIPAL_CHARACTERS], operation, resource_type)
        now_ms = self._now.now_ms
        window = self._windows.get(key)
        if window is None or now_ms - window.begin_ms >= WINDOW_MS:
            if window is not None and window.count > MAX_LINES:
                logger.info(
                    "authorizer: %d further denials of %s on resources of type %s for principal %r were not logged, "
                    "because the limit is %d log lines in %d s",
                    window.count - MAX_LINES,
                    Operation(operation).name,
                    ResourceType(resource_type).name,
                    principal,
                    MAX_LINES,
                    WINDOW_MS // 1000,
                )
            if len(self._windows) >= MAX_WINDOWS:
                self._windows.clear()
            window = self._windows[key] = Window(now_ms)
        window.count += 1
        if window.count <= MAX_LINES:
            logger.info(
                "authorizer: denied %s on %s %r for principal %r from %s; if the principal needs this access, add "
                "an ACL that allows it",
                Operation(operation).name, ResourceType(resource_type).name, name, principal, client_host,
            )  # fmt: skip
        elif window.count == MAX_LINES + 1:
            logger.info(
                "authorizer: further denials of %s on resources of type %s for principal %r are only counted, not "
                "logged, for up to %d s",
                Operation(operation).name,
                ResourceType(resource_type).name,
                principal,
                WINDOW_MS // 1000,
            )
