"""The error that a checker raises."""

from __future__ import annotations


class SimulationFailure(AssertionError):  # noqa: N818
    """Raised when the simulation violates a rule.

    Attributes:
        checker: the checker's name.
        message: the observation that violates the rule.
    """

    def __init__(self, checker: str, message: str) -> None:
        super().__init__(f"{checker}: {message}")
        self.checker = checker
        self.message = message
