"""The area of topologies of streams groups (KIP-1071): repartition and changelog topics, which the server creates, and
copartitioned topics.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import streams_group_heartbeat as heartbeat
from tools.differential.program import Call, Step
from tools.differential.side import CLIENT_IDS, Side
from tools.differential.streams import Streams
from tools.differential.streams import learn_beat as learn

TIMEOUT_MS: Final = 60_000
CREATED_S: Final = 0.3
TASKS: Final = ("active_tasks", "standby_tasks", "warmup_tasks")
CONFIGS: Final = (
    [],
    [],
    [("cleanup.policy", "compact")],
    [("retention.ms", "-1"), ("cleanup.policy", "delete")],
    [("max.message.bytes", "1000")],
)
"""Settings of internal topics. They are valid: whether Kafka retries a failed creation depends on time."""


def _info(row: dict[str, Any]) -> heartbeat.TopicInfo:
    configs = [heartbeat.KeyValue(key=key, value=value) for key, value in row["configs"]]
    return heartbeat.TopicInfo(
        name=row["name"], partitions=row["partitions"], replication_factor=row["factor"], topic_configs=configs
    )


def _subtopology(row: dict[str, Any]) -> heartbeat.Subtopology:
    return heartbeat.Subtopology(
        subtopology_id=row["id"],
        source_topics=row["sources"],
        source_topic_regex=row["patterns"],
        state_changelog_topics=[_info(each) for each in row["changelogs"]],
        repartition_sink_topics=row["sinks"],
        repartition_source_topics=[_info(each) for each in row["repartitions"]],
        copartition_groups=[
            heartbeat.CopartitionGroup(source_topics=sources, repartition_source_topics=repartitions)
            for sources, repartitions in row["copartitions"]
        ],
    )


def _beat(
    side: Side, group: str, member: str, epoch: str, topology: list[dict[str, Any]] | None, **more: Any
) -> tuple[Any, int]:
    """Builds a StreamsGroupHeartbeat request and its version. `epoch` is `join` or `0`, the member's last epoch."""
    member_id, known = side.members.get(f"{group}/{member}", (member, 0))
    joins = epoch == "join"
    assigned = side.assignments.get(f"{group}/{member}", ((), (), ()))
    parts = None if topology is None else [_subtopology(row) for row in topology]
    return heartbeat.StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=0 if joins else known,
        rebalance_timeout_ms=TIMEOUT_MS if joins else -1,
        topology=None if parts is None else heartbeat.Topology(epoch=more["topology_epoch"], subtopologies=parts),
        process_id=f"p-{member}" if joins else None,
        client_tags=[] if joins else None,
        **dict(zip(TASKS, ((), (), ()) if joins else assigned, strict=True)),
    ), 0


def _await_created(side: Side, **_: Any) -> None:
    """Waits until Kafka's group coordinator knows the internal topics that a heartbeat has created."""
    time.sleep(CREATED_S)


class Topologies:
    """Programs that run up to two members of a streams group with random topologies."""

    NAME = "topologies"
    CALLS: Mapping[str, Call] = {
        "create_topic": Streams.CALLS["create_topic"],
        "beat": Call(_beat, learn, changes_metadata=True, settle=_await_created),
        "describe": Streams.CALLS["describe"],
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns two or three topics, and 5 to 12 requests about the group."""
        drawer = _Drawer(chance, name)
        counts = {f"{name}-a": 2, f"{name}-b": chance.choice([2, 3]), f"{name}-c": 1}
        steps = [
            Step(0, "create_topic", {"name": topic, "partitions": count})
            for topic, count in counts.items()
            if chance.random() < 0.9
        ]
        return steps + [drawer.step(number) for number in range(chance.randrange(5, 12))]


class _Drawer:
    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.name = name
        self.topology = self._topology()

    def step(self, number: int) -> Step:
        member = self.chance.choice(["streams-one", "streams-one", "streams-two"])
        client = CLIENT_IDS.index(member.removeprefix("streams-"))
        if number > 0 and self.chance.random() < 0.25:
            return Step(client, "describe", {"groups": [f"{self.name}-g"]})
        epoch = "join" if number == 0 or self.chance.random() < 0.3 else "0"
        changed = epoch == "join" and number > 0 and self.chance.random() < 0.15
        if changed:
            self.topology = self._topology()
        arguments = {
            "group": f"{self.name}-g", "member": member, "epoch": epoch,
            "topology": self.topology if epoch == "join" else None, "topology_epoch": 1 if changed else 0,
        }  # fmt: skip
        return Step(client, "beat", arguments)

    def _odd(self, frequency: float = 0.08) -> bool:
        return self.chance.random() < frequency

    def _info(self, kind: str) -> dict[str, Any]:
        # No name twice: Kafka fails with an exception.
        self.infos += 1
        name = f"{self.name}-{self.infos}-{kind}"
        return {
            "name": self.chance.choice([f"{self.name} bad", "", f"{self.name}-a"]) if self._odd(0.04) else name,
            "partitions": self.chance.choice([0, 0, 0, 3] if kind == "repartition" else [0, 0, 0, 0, 2]),
            "factor": self.chance.choice([0, 1, -1, 2]) if self._odd() else 0,
            "configs": self.chance.choice(CONFIGS),
        }

    def _topology(self) -> list[dict[str, Any]]:
        self.infos = 0
        rows: list[dict[str, Any]] = []
        for number in range(self.chance.choice([1, 1, 2, 2, 3])):
            sources = self.chance.sample([f"{self.name}-{each}" for each in "abc"], self.chance.choice([0, 1, 1, 2]))
            if self._odd(0.05):
                sources.append(f"{self.name}-none")
            repartitions = [self._info("repartition") for _ in range(self.chance.choice([0, 0, 1, 2]))]
            copartitions = []
            if len(sources) + len(repartitions) > 1 and self._odd(0.5):
                copartitions = [(list(range(len(sources))), list(range(len(repartitions))))]
            rows.append(
                {
                    "id": "0" if self._odd(0.04) else str(number),
                    "sources": sources,
                    "patterns": [f"{self.name}-.*"] if self._odd(0.05) else [],
                    "changelogs": [self._info("changelog") for _ in range(self.chance.choice([0, 1, 1, 2]))],
                    "sinks": [],
                    "repartitions": repartitions,
                    "copartitions": copartitions,
                }
            )
        for info in (each for row in rows for each in row["repartitions"]):
            if not self._odd(0.04):
                self.chance.choice(rows)["sinks"].append(info["name"])
        return rows
