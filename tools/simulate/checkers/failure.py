"""The error that a checker raises."""

from __future__ import annotations


class SimulationFailure(AssertionError):  # noqa: N818
    """A rule that the simulation has broken.

    Attributes:
        checker: the checker's name.
        message: the observation that breaks the rule.
    """

    def __init__(self, checker: str, message: str) -> None:
        super().__init__(f"{checker}: {message}")
        self.checker = checker
        self.message = message
