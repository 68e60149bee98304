"""The server side of a SASL mechanism: maps client tokens to server tokens and finally yields a user name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from typing import ClassVar

from kcore.errors import KcoreError


class PostponedError(KcoreError):
    """A token cannot be evaluated yet, because the evaluation would wait for another thread.

    Args:
        until: a future that is done when the token can be evaluated again.
    """

    def __init__(self, until: Future[None]) -> None:
        super().__init__("the evaluation of the token is postponed")
        self.until = until


class Mechanism(ABC):
    """One SASL exchange with one peer. Subclasses are named after the mechanism.

    Attributes:
        name: the mechanism's name in SASL's registry.
        threads: number of threads on which a server calls `evaluate`, if the call can take long (key derivation, user
            code); 0: the call is fast, and runs on the event loop.
        complete: True once the exchange has ended with the peer authenticated.
        user: the authenticated name, once complete.
        expires_at_ms: the wall-clock time in ms since 1970 at which the authentication expires; None: never.
    """

    __slots__ = ("complete", "expires_at_ms", "user")

    name: ClassVar[str]
    threads: ClassVar[int] = 0

    def __init__(self) -> None:
        self.complete = False
        self.user = ""
        self.expires_at_ms: int | None = None

    @abstractmethod
    def evaluate(self, token: bytes) -> bytes:
        """Evaluates the peer's next token and returns the response token, which may be empty.

        Raises:
            AuthenticationError: the token is malformed or invalid; the exchange has ended.
            PostponedError: the token must be evaluated again later. Only a mechanism with threads raises it.
        """
