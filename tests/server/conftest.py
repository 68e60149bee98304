"""Fixtures with servers, on asyncio's loop and on uvloop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.server.half_open import Tls
from tests.server.live import LiveServer, server_log


@pytest.fixture(params=["asyncio", "uvloop"])
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., LiveServer]]:
    """Returns a function that starts a server: `serve({setting: value})`."""
    with ExitStack() as stack:

        def start(settings: dict[str, str] | None = None, **options: Any) -> LiveServer:
            return stack.enter_context(LiveServer(settings, request.param, **options))

        yield start


@pytest.fixture
def live(serve: Callable[..., LiveServer]) -> LiveServer:
    """Yields a server with the fixture's default settings, which avoid delays."""
    return serve()


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    """Yields the list of lines that servers log."""
    with server_log() as lines:
        yield lines


@pytest.fixture
def tls(serve: Callable[..., LiveServer], tmp_path: Path) -> Callable[..., Tls]:
    """Yields a function that starts a server with a TLS listener: `tls({setting: value})`."""
    return lambda settings=None: Tls(serve, tmp_path, settings or {})


@pytest.fixture
def peers() -> Iterator[ExitStack]:
    """Yields a list of sockets, which are closed at the end of the test."""
    with ExitStack() as stack:
        yield stack
