"""One planted defect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Patch = tuple[Any, str, Any]
"""Owner, name of the attribute, and its replacement."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted defect.

    Attributes:
        name: its name.
        defect: the defect in a few words.
        checker: the checker that finds it with `seed`.
        seed: a seed that finds it; 0: no seed has found it yet.
        steps: the number of events within which that seed finds it.
        patches: returns what to replace.
    """

    name: str
    defect: str
    checker: str
    seed: int
    steps: int
    patches: Callable[[], list[Patch]]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plants the defect for the duration of the block."""
        replaced: list[Patch] = []
        try:
            for owner, name, value in self.patches():
                replaced.append((owner, name, owner.__dict__[name]))
                setattr(owner, name, value)
            yield
        finally:
            for owner, name, value in reversed(replaced):
                setattr(owner, name, value)
