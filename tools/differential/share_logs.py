"""Random requests of share groups that read transactions and records with short locks.

The requests are those of the area `share`. In addition, producers write within transactions, and acquisition locks time
out or are renewed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from tools.differential.members import Members
from tools.differential.program import Call, Step
from tools.differential.share import RENEW, Share, ShareDrawer
from tools.differential.side import CLIENT_IDS
from tools.differential.transactions import Transactions

LOCK_MS: Final = 3_000
"""The duration of an acquisition lock, in ms."""


class ShareLogs:
    """Lists of random requests of up to two members of a share group, with transactions and pauses."""

    NAME = "share_logs"
    CALLS: Mapping[str, Call] = {
        **Share.CALLS,
        "pause": Members.CALLS["pause"],
        "append": Transactions.CALLS["produce"],
        **{name: Transactions.CALLS[name] for name in ("init", "add_partitions", "end")},
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns a topic, the settings of the group, two producers, a member, and 15 to 35 random requests."""
        topics = [f"{name}-a", f"{name}-b"]
        group = f"{name}-g"
        steps = [Step(0, "create_topic", {"name": topic, "partitions": 1}) for topic in topics]
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": chance.choice(["read_committed", "read_committed", "read_uncommitted"]),
            "share.record.lock.duration.ms": str(LOCK_MS),
            "share.delivery.count.limit": chance.choice(["2", "3", "5"]),
        }
        steps.append(Step(0, "configure", {"group": group, "settings": settings}))
        drawer = _Drawer(chance, group, topics)
        for tid in drawer.tids:
            arguments = {"tid": tid, "timeout_ms": 60_000, "known": "none", "delta": 0, "version": 4, "known_as": tid}
            steps.append(Step(0, "init", arguments))
        steps.append(Step(0, "beat", {"group": group, "member": "share-one", "epoch": "join", "names": topics[:1]}))
        for _ in range(chance.randrange(15, 35)):
            steps += drawer.steps()
        return steps


class _Drawer(ShareDrawer):
    def __init__(self, chance: random.Random, group: str, topics: list[str]) -> None:
        super().__init__(chance, group, topics)
        self.leaves = False  # Kafka keeps the share partitions of an empty group until its members' connections end
        self.members = [f"share-{each}" for each in CLIENT_IDS[: chance.choice([1, 2])]]
        self.tids = [f"{topics[0]}-t", f"{topics[0]}-u"]
        self.sequences = dict.fromkeys(self.tids, 0)
        self.added: set[str] = set()
        self.pauses = 0

    def steps(self) -> list[Step]:
        """Returns the steps of one random action."""
        kinds = {self._share: 12, self._append: 4, self._end: 3, self._pause: 1}
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        return kind()

    def _share(self) -> list[Step]:
        step = self.step()
        if step.call == "acknowledge" and self.chance.random() < 0.2:
            first = self.chance.choice([0, 0, 1, 2])
            ranges = [(first, first + self.chance.choice([0, 1, 2, 4]), [RENEW])]
            return [step._replace(arguments=step.arguments | {"ranges": ranges, "renew": True, "version": 2})]
        return [step]

    def _append(self) -> list[Step]:
        tid = self.chance.choice(self.tids)
        values = [b"value"] * self.chance.choice([1, 1, 2, 4])
        steps = []
        if tid not in self.added:
            self.added.add(tid)
            arguments: dict[str, Any] = {"tid": tid, "delta": 0, "topics": {self.topics[0]: [0]}, "version": 3}
            steps.append(Step(3, "add_partitions", arguments))
        arguments = {
            "topic": self.topics[0], "partition": 0, "tid": tid, "producer": tid, "delta": 0,
            "sequence": self.sequences[tid], "values": values, "transactional": True, "version": 9,
        }  # fmt: skip
        self.sequences[tid] += len(values)
        return [*steps, Step(3, "append", arguments)]

    def _end(self) -> list[Step]:
        if not self.added:
            return self._share()
        tid = self.chance.choice(sorted(self.added))
        self.added.remove(tid)
        committed = self.chance.random() < 0.5
        return [Step(3, "end", {"tid": tid, "delta": 0, "committed": committed, "version": 4})]

    def _pause(self) -> list[Step]:
        self.pauses += 1
        return [Step(3, "pause", {"ms": LOCK_MS * 4 // 3})] if self.pauses < 3 else self._share()
