"""Evaluates the SASL tokens of slow mechanisms on separate threads. The client addresses take turns."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from kcore.process_logging import limited_logger, log_failure
from kcore.security.mechanism import PostponedError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = limited_logger(__name__)

MAX_WAITING: Final = 1_000
"""Maximum number of logins of one client address that wait for a thread or are postponed.

The server closes the connection of a client that would exceed the number.
"""
RETRY_S: Final = 1.0
"""Time after which the queue tries again to start a thread, if no login is running.

Otherwise, the end of a running login starts the next login.
"""


class Login:
    """A token that waits for its evaluation.

    Attributes:
        host: the client's address.
        evaluate: evaluates the token; runs on another thread. If it raises PostponedError, it is called again later.
        done: receives the result on the loop's thread, unless the login was cancelled.
    """

    __slots__ = ("done", "evaluate", "host")

    def __init__(self, host: str, evaluate: Callable[[], bytes], done: Callable[[asyncio.Future[bytes]], None]) -> None:
        self.host = host
        self.evaluate = evaluate
        self.done: Callable[[asyncio.Future[bytes]], None] | None = done


class LoginQueue:
    """The tokens of one mechanism that wait for a thread.

    The addresses take turns. The oldest and the newest login of an address are evaluated alternately. So old logins are
    served in order, and many password guesses from an address do not block a new login from that address. A login whose
    evaluation is postponed holds no thread until it is evaluated again.

    Args:
        loop: the event loop; all methods run on its thread.
        mechanism: name of the mechanism.
        threads: number of threads, which are started when they are needed.
    """

    __slots__ = (
        "_executor",
        "_free",
        "_loop",
        "_mechanism",
        "_newest_first",
        "_postponed",
        "_retry",
        "_threads",
        "_waiting",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, mechanism: str, threads: int) -> None:
        self._loop = loop
        self._mechanism = mechanism
        self._executor = ThreadPoolExecutor(threads, f"kcore-login-{mechanism}")
        self._threads = self._free = threads
        self._retry: asyncio.TimerHandle | None = None
        self._newest_first = False
        self._waiting: dict[str, dict[Login, None]] = {}  # by address, the next one first
        self._postponed: dict[str, dict[Login, None]] = {}  # by address

    def __len__(self) -> int:
        """Returns the number of logins that wait for a thread."""
        return sum(map(len, self._waiting.values()))

    def add(self, login: Login) -> bool:
        """Adds a login. Returns False if too many logins of its address wait."""
        own = self._waiting.get(login.host, {})
        if len(own) + len(self._postponed.get(login.host, ())) >= MAX_WAITING:
            return False
        own[login] = None
        self._waiting[login.host] = own
        self._start()
        return True

    def cancel(self, login: Login) -> None:
        """Removes a login whose client has disconnected. A running evaluation continues without effect."""
        login.done = None
        _remove(self._waiting, login)
        _remove(self._postponed, login)

    def _start(self) -> None:
        while self._free and self._waiting:
            host = next(iter(self._waiting))
            own = self._waiting.pop(host)
            self._newest_first = not self._newest_first
            login = next(reversed(own) if self._newest_first else iter(own))
            del own[login]
            if own:
                self._waiting[host] = own
            self._free -= 1
            # Emptied if no thread can be started: the executor keeps the call, and runs it with the next thread.
            calls = [login.evaluate]
            try:
                future = self._loop.run_in_executor(self._executor, partial(_call_first, calls))
                future.add_done_callback(partial(self._done, login))
            except (RuntimeError, MemoryError) as error:
                calls.clear()
                self._free += 1
                self._waiting.setdefault(host, {})[login] = None
                self._handle_start_failure(error)
                return

    def _handle_start_failure(self, error: Exception) -> None:
        """Logs that a thread could not be started. If no login is running, schedules a retry after `RETRY_S`.

        Otherwise, the end of a running login starts the next login.
        """
        if self._free == self._threads and self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._start_again)
        log_failure(
            logger,
            error,
            "SASL: cannot start a thread for a login with %s; the login waits; check the process's limit of threads "
            "(ulimit -u)",
            self._mechanism,
        )  # fmt: skip

    def _start_again(self) -> None:
        self._retry = None
        self._start()

    def _done(self, login: Login, future: asyncio.Future[bytes]) -> None:
        self._free += 1
        try:
            error = None if future.cancelled() else future.exception()
            if login.done is not None and not (isinstance(error, PostponedError) and self._postpone(login, error)):
                login.done(future)
        finally:
            self._start()

    def _postpone(self, login: Login, error: PostponedError) -> bool:
        """Stores a login until it can be evaluated again. Returns False if memory is exhausted."""
        try:
            self._postponed.setdefault(login.host, {})[login] = None
            error.until.add_done_callback(partial(self._resume_soon, login))
        except MemoryError:
            _remove(self._postponed, login)
            return False
        return True

    def _resume_soon(self, login: Login, _: Future[None]) -> None:
        """Schedules the next evaluation of a login on the loop's thread. May be called on any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._resume, login)

    def _resume(self, login: Login) -> None:
        if _remove(self._postponed, login):
            self._waiting.setdefault(login.host, {})[login] = None
            self._start()

    def close(self) -> None:
        """Drops the waiting logins and ends the threads."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._waiting.clear()
        self._postponed.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)


def _remove(logins: dict[str, dict[Login, None]], login: Login) -> bool:
    """Removes a login from the logins of its address; returns False if the address does not have it."""
    own = logins.get(login.host)
    if own is None or own.pop(login, login) is login:
        return False
    if not own:
        del logins[login.host]
    return True


def _call_first(calls: list[Callable[[], bytes]]) -> bytes:
    return calls.pop()()
