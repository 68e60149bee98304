"""Random requests of members that miss their deadlines, for the comparison with Apache Kafka.

Members of both group protocols stop their heartbeats, do not join again, do not assign, or do not revoke partitions,
until a session or a rebalance times out. Other members stay alive meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from tools.differential.members import IDLE_CLIENT, Members, MembersDrawer
from tools.differential.program import Call, Step

TIMEOUT_MS: Final = 3_000
"""The session timeout of all members and the rebalance timeout of most, in ms."""
KEPT_ALIVE_MS: Final = 1_900
"""Time between the requests of the members that stay alive, in ms."""
LONG_MS: Final = 60_000


class Timeouts:
    """Lists of requests of up to three members of a group, with pauses after which timeouts have passed."""

    NAME = "timeouts"
    CALLS: Mapping[str, Call] = Members.CALLS

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns two topics, the settings of the group, and two or three bursts of requests with pauses."""
        topics = [f"{name}-a", f"{name}-b"]
        steps = [Step(0, "create_topic", {"name": topic, "partitions": 2}) for topic in topics]
        drawer = _Drawer(chance, name, topics)
        settings = {"consumer.session.timeout.ms": str(TIMEOUT_MS)}
        steps.append(Step(0, "configure", {"group": drawer.group, "settings": settings}))
        for _ in range(chance.choice([2, 3])):
            steps += drawer.burst()
            steps += drawer.pause()
            steps += drawer.final()
        return steps


class _Drawer(MembersDrawer):
    def __init__(self, chance: random.Random, name: str, topics: list[str]) -> None:
        super().__init__(chance, name, topics)
        self.with_patterns = False
        self.patterns = [None] * self.size
        self.rebalance_ms = [chance.choice([TIMEOUT_MS, TIMEOUT_MS, LONG_MS]) for _ in range(self.size)]

    def tick(self, client: int, **more: Any) -> Step:
        return super().tick(client, session_ms=TIMEOUT_MS, rebalance_ms=self.rebalance_ms[client], **more)

    def burst(self) -> list[Step]:
        """Returns up to ten requests, which take less than the timeout together."""
        steps: list[Step] = []
        while len(steps) < self.chance.randrange(4, 10):
            steps += self.steps()
        return steps[:10]

    def pause(self) -> list[Step]:
        """Returns a pause after which all timeouts have passed. Some members send requests meanwhile."""
        alive = [client for client in range(self.size) if self.chance.random() < 0.4]
        steps = [self.tick(client) for client in alive]
        for _ in range(3):
            steps.append(Step(IDLE_CLIENT, "pause", {"ms": KEPT_ALIVE_MS}))
            steps += [self.tick(client) for client in alive]
        return steps

    def final(self) -> list[Step]:
        """Returns requests that show the members of the group."""
        return [
            Step(IDLE_CLIENT, "describe", {"groups": [self.group], "version": 5}),
            Step(IDLE_CLIENT, "describe_consumer", {"groups": [self.group], "version": 1}),
        ]
