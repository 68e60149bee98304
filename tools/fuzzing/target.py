"""What a target is."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod


class BugError(AssertionError):
    """Something that must hold does not."""


class Target(ABC):
    """One reader of strangers' bytes."""

    name: str

    @abstractmethod
    def make(self, rng: random.Random) -> bytes:
        """A valid input, as a rule."""

    @abstractmethod
    def run(self, data: bytes) -> None:
        """Reads an input; raises where there is a bug."""
