"""Random requests of streams groups (KIP-1071), for the comparison with Apache Kafka.

They contain topologies, tasks, endpoints and committed offsets."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import streams_group_describe, streams_group_heartbeat
from tools.differential.groups import Groups
from tools.differential.program import Call, Step
from tools.differential.share import Share
from tools.differential.side import CLIENT_IDS, Side
from tools.differential.topics import CREATE

TIMEOUT_MS: Final = 60_000
MEMBERS: Final = 2
"""Maximum number of members of a streams group.

With more members, Kafka's assignor breaks ties by the order of hash maps, and kcore's assignor by ids.
"""
TASKS: Final = ("active_tasks", "standby_tasks", "warmup_tasks")
SHARED_CALLS: Final = {name: Groups.CALLS[name] for name in ("commit", "fetch_offsets", "delete_offsets", "delete")}


def _subtopology(number: int, sources: list[str], changelogs: list[str]) -> Any:
    logs = [streams_group_heartbeat.TopicInfo(name=name) for name in changelogs]
    return streams_group_heartbeat.Subtopology(
        subtopology_id=str(number), source_topics=sources, state_changelog_topics=logs
    )


def _beat(
    side: Side, group: str, member: str, epoch: str, topology: list[tuple[list[str], list[str]]] | None, **more: Any
) -> tuple[Any, int]:
    """Builds a StreamsGroupHeartbeat request and its version.

    `epoch` is `join`, `leave`, or a number that is added to the member's last epoch. `owned` selects the owned tasks
    in the request: `none`, `all` or `empty`.
    """
    member_id, known = side.members.get(f"{group}/{member}", (member, 0))
    number = {"join": 0, "leave": -1}.get(epoch)
    assigned = side.assignments.get(f"{group}/{member}", ((), (), ()))
    owned = {"none": (None, None, None), "empty": ((), (), ()), "all": assigned}[more["owned"]]
    parts = None if topology is None else [_subtopology(n, *row) for n, row in enumerate(topology)]
    port = more.get("port")
    return streams_group_heartbeat.StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=known + int(epoch) if number is None else number,
        endpoint_information_epoch=more.get("endpoint_epoch", 0),
        rebalance_timeout_ms=more.get("timeout_ms", TIMEOUT_MS if epoch == "join" else -1),
        topology=None
        if parts is None
        else streams_group_heartbeat.Topology(epoch=more.get("topology_epoch", 0), subtopologies=parts),
        process_id=more.get("process"),
        user_endpoint=None if port is None else streams_group_heartbeat.Endpoint(host="here", port=port),
        client_tags=[streams_group_heartbeat.KeyValue(key="zone", value="a")] if epoch == "join" else None,
        shutdown_application=more.get("shutdown", False),
        **dict(zip(TASKS, owned, strict=True)),
    ), 0


def learn_beat(side: Side, response: Any, group: str, member: str, **_: Any) -> None:
    """Stores the member's id, epoch and tasks."""
    if response.error_code:
        return
    name = f"{group}/{member}"
    side.members[name] = (response.member_id or member, max(response.member_epoch, 0))
    if response.active_tasks is not None:
        side.assignments[name] = tuple(getattr(response, kind) or () for kind in TASKS)


def _describe(side: Side, groups: list[str]) -> tuple[Any, int]:
    return streams_group_describe.StreamsGroupDescribeRequest(group_ids=groups), 0


class Streams:
    """Lists of random requests of up to two members of a streams group, with tasks of up to two subtopologies."""

    NAME = "streams"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "configure": Share.CALLS["configure"],
        "beat": Call(_beat, learn_beat),
        "describe": Call(_describe),
        "list": Share.CALLS["list"],
        **SHARED_CALLS,
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns three topics, the settings of the group, and 10 to 40 random requests."""
        topics = [f"{name}-a", f"{name}-b", f"{name}-changelog"]
        group = f"{name}-g"
        steps = [Step(0, "create_topic", {"name": topic, "partitions": 2}) for topic in topics]
        if chance.random() < 0.5:
            settings = {"streams.num.standby.replicas": "1"}
            steps.append(Step(0, "configure", {"group": group, "settings": settings}))
        drawer = _Drawer(chance, group, topics)
        steps += [drawer.step() for _ in range(chance.randrange(10, 40))]
        return steps


class _Drawer:
    def __init__(self, chance: random.Random, group: str, topics: list[str]) -> None:
        self.chance = chance
        self.group = group
        self.topics = topics
        a, b, changelog = topics
        topologies: list[list[tuple[list[str], list[str]]]] = [
            [([a], [])],
            [([a], [changelog])],
            [([a], [changelog]), ([b], [])],
            [([a + "-none"], [])],
        ]
        self.topology = chance.choices(topologies, [3, 4, 4, 1])[0]
        self.other = chance.choice(topologies)
        self.endpoints = chance.random() < 0.4 and self.topology is not topologies[-1]
        # Two members of one process never have the same partition. A member keeps its process: after a change, the ties
        # of Kafka's assignor would be broken by chance.
        self.members = [f"streams-{each}" for each in CLIENT_IDS[:MEMBERS]]
        self.processes = {name: "p-" + chance.choice([name, name, "both"]) for name in self.members}
        self.joined = False
        self.weights = {
            self._beat: 14, self._describe: 3, self._commit: 3, self._fetch: 2, self._delete_offsets: 1, self._list: 1,
            self._delete: 1,
        }  # fmt: skip

    def step(self) -> Step:
        client = self.chance.randrange(MEMBERS)
        (kind,) = self.chance.choices(list(self.weights), list(self.weights.values()))
        call, arguments = kind(self.members[client])
        return Step(client, call, arguments)

    def _beat(self, member: str) -> tuple[str, dict[str, Any]]:
        epoch = self.chance.choices(["join", "0", "leave", "-1", "1"], [28, 54, 10, 4, 4])[0]
        joins = epoch == "join"
        arguments: dict[str, Any] = {
            "group": self.group,
            "member": member,
            "epoch": epoch,
            "topology": None,
            "owned": "empty" if joins else self.chance.choices(["all", "none", "empty"], [6, 3, 1])[0],
        }
        if joins:
            self.joined = True
            changed = self.chance.random() < 0.1
            arguments["topology"] = self.other if changed else self.topology
            arguments["topology_epoch"] = self.chance.choice([0, 1]) if changed else 0
            arguments["process"] = self.processes[member]
            # Kafka 4.3.1 fails if there is an endpoint and a source topic does not exist.
            if self.endpoints and not changed:
                arguments["port"] = 1_000 + self.members.index(member)
        elif self.chance.random() < 0.04:
            arguments["shutdown"] = True
        if self.endpoints and self.chance.random() < 0.5:
            arguments["endpoint_epoch"] = self.chance.choice([0, 1, 2])
        return "beat", arguments

    def _describe(self, member: str) -> tuple[str, dict[str, Any]]:
        return "describe", {"groups": [self.group, self.group + "-none"]}

    def _offsets(self) -> dict[str, list[int]]:
        return {self.topics[0]: self.chance.sample([0, 1], self.chance.choice([1, 2]))}

    def _delta(self) -> int:
        return self.chance.choices([0, -1, 1], [80, 10, 10])[0]

    def _commit(self, member: str) -> tuple[str, dict[str, Any]]:
        rows = [(name, number, 7, "") for name, numbers in self._offsets().items() for number in numbers]
        who = member if self.chance.random() < 0.8 or not self.joined else None
        version = self.chance.choice([8, 9, 10])
        return "commit", {
            "group": self.group, "member": who, "delta": self._delta(), "offsets": rows, "version": version,
        }  # fmt: skip

    def _fetch(self, member: str) -> tuple[str, dict[str, Any]]:
        return "fetch_offsets", {
            "group": self.group,
            "topics": self._offsets() if self.chance.random() < 0.6 else None,
            "stable": False,
            "version": self.chance.choice([7, 9, 10]),
            "member": member if self.chance.random() < 0.5 else None,
            "delta": self._delta(),
        }

    def _delete_offsets(self, member: str) -> tuple[str, dict[str, Any]]:
        return "delete_offsets", {"group": self.group, "topics": self._offsets()}

    def _list(self, member: str) -> tuple[str, dict[str, Any]]:
        states = self.chance.choice([[], ["Stable"], ["NotReady"], ["Empty"]])
        return "list", {"states": states, "types": self.chance.choice([[], ["streams"]])}

    def _delete(self, member: str) -> tuple[str, dict[str, Any]]:
        return "delete", {"groups": [self.group], "version": 2}
