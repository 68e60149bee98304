"""The interface of fuzzing targets."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod


class BugError(AssertionError):
    """Raised when an invariant is violated."""


class Target(ABC):
    """One decoder of untrusted bytes."""

    name: str

    @abstractmethod
    def make(self, rng: random.Random) -> bytes:
        """Generates a mostly valid input."""

    @abstractmethod
    def run(self, data: bytes) -> None:
        """Decodes an input; raises if there is a bug."""
