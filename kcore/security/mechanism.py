"""A SASL mechanism's server side: tokens of the client in, tokens for it out, and in the end a name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from kcore.errors import KcoreError


class AuthenticationError(KcoreError):
    """A peer did not prove who it is.

    The text may go to the peer and into the log: it must never hold a part of a token, nor say whether a user exists.
    """


class Mechanism(ABC):
    """One exchange of one peer. Subclasses are named after the mechanism.

    Attributes:
        name: the mechanism's name in SASL's registry.
        blocking: whether `evaluate` may take long (it derives keys, or calls a user's code), so that whoever has other
            peers to serve calls it on another thread.
        complete: whether the exchange is over and the peer is who it says.
        user: the authenticated name, once complete.
        expires_at_ms: the wall-clock time in ms since 1970 at which the proof loses its force; None: it does not.
    """

    __slots__ = ("complete", "expires_at_ms", "user")

    name: ClassVar[str]
    blocking: ClassVar[bool] = False

    def __init__(self) -> None:
        self.complete = False
        self.user = ""
        self.expires_at_ms: int | None = None

    @abstractmethod
    def evaluate(self, token: bytes) -> bytes:
        """Takes the peer's next token and returns the answer to it, maybe empty.

        Raises:
            AuthenticationError: the token is malformed or proves nothing; the exchange is over.
        """
