"""Test programs: lists of random requests, each drawn from a seed, and the areas (parts of the protocol) that draw
them.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from tools.differential.side import Side

SETTLE_S: Final = 10.0
"""Maximum time in seconds between a response and the moment at which the requested change is in effect."""
LONG: Final = re.compile(r"(.)\1{30,}")
"""A pattern for long runs of one character. Reports shorten them."""


class Step(NamedTuple):
    """One request of a test program, from one client.

    Attributes:
        client: the number of the client that sends the request.
        call: the name of a call of the area.
        arguments: the arguments of the call; their values have the same meaning for both servers.
    """

    client: int
    call: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={_short(value)}" for name, value in self.arguments.items())
        return f"client {self.client}: {self.call}({arguments})"


def _short(value: Any) -> str:
    text = repr(value)
    return LONG.sub(r"\1…", text)


class Call(NamedTuple):
    """A kind of request that test programs send.

    Attributes:
        build: builds the request and selects its version. Its parameters are the side and the step's arguments.
        learn: stores the values that the server chose, for later steps. Its parameters are the side, the response and
            the step's arguments.
        waits: True if the response may wait for requests of other clients.
        changes_metadata: True if the servers' metadata may change a moment after the response.
        settle: waits until the server has finished the work that follows the response. Its parameters are the side and
            the step's arguments.
    """

    build: Callable[..., tuple[Any, int]]
    learn: Callable[..., None] | None = None
    waits: bool = False
    changes_metadata: bool = False
    settle: Callable[..., None] | None = None


class Area(Protocol):
    """A part of the protocol that one kind of test program tests."""

    NAME: str
    CALLS: Mapping[str, Call]

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns the random steps of one test program. `name` is the prefix of every name that the steps create."""
        ...


def await_condition(side: Side, request: Any, version: int, done: Callable[[Any], bool]) -> None:
    """Repeats a request for at most `SETTLE_S`, until its response shows that a change has taken effect."""
    until_s = time.monotonic() + SETTLE_S
    while time.monotonic() < until_s:
        side.send(-1, request, version)
        if done(side.receive(-1)):
            return
        time.sleep(0.005)


def learned_epoch(side: Side, name: str, delta: int) -> tuple[str, int]:
    """Returns a member's id, and the sum of `delta` and its last epoch or generation.

    If the member has not joined, the id is unknown to the server, and the sum is `delta`.
    """
    member_id, epoch = side.members.get(name, ("nobody", 0))
    return member_id, epoch + delta
