"""Fixtures with servers, on asyncio's loop and on uvloop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.server.live import LiveServer, server_log


@pytest.fixture(params=["asyncio", "uvloop"])
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., LiveServer]]:
    """Returns a function that starts servers: `serve({setting: value})`."""
    with ExitStack() as stack:

        def start(settings: dict[str, str] | None = None, **options: Any) -> LiveServer:
            return stack.enter_context(LiveServer(settings, request.param, **options))

        yield start


@pytest.fixture
def live(serve: Callable[..., LiveServer]) -> LiveServer:
    """Yields a server with settings without delays."""
    return serve()


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    """Yields the lines that servers log."""
    with server_log() as lines:
        yield lines
