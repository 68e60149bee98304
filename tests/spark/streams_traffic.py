"""Members of streams groups for random traffic: processes with standby tasks and internal topics."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kcore.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)


def application(group: str) -> Topology:
    """Returns the topology of a group: a stateful subtopology that feeds another one."""
    repartition = f"{group}-repartition"
    changelog = TopicInfo(name=f"{group}-changelog", replication_factor=1)
    return Topology(
        epoch=1,
        subtopologies=[
            Subtopology(
                subtopology_id="0",
                source_topics=["u"],
                state_changelog_topics=[changelog],
                repartition_sink_topics=[repartition],
            ),
            Subtopology(subtopology_id="1", repartition_source_topics=[TopicInfo(name=repartition)]),
        ],
    )


class StreamsTraffic:
    """Joins, heartbeats and leaves of streams groups.

    Args:
        send: sends a request and returns the response.
        chance: the random number generator.
    """

    def __init__(self, send: Callable[[Any], Any], chance: random.Random) -> None:
        self._send = send
        self._chance = chance
        self._members: list[dict[str, Any]] = []
        self._made = 0

    def join(self) -> None:
        """Adds a member to one of a few processes."""
        self._made += 1
        group = f"streams{self._chance.randrange(4)}"
        member = {"group": group, "id": f"thread{self._made}", "epoch": 0, "active": (), "standby": ()}
        endpoint = Endpoint(host="host", port=self._made) if self._chance.random() < 0.3 else None
        joined = self._beat(
            member,
            rebalance_timeout_ms=60_000,
            topology=application(group),
            process_id=f"process{self._chance.randrange(3)}",
            user_endpoint=endpoint,
            client_tags=[KeyValue(key="zone", value=str(self._chance.randrange(2)))],
        )
        if joined:
            self._members.append(member)

    def beat(self) -> None:
        """Sends heartbeats of all members of a group."""
        if self._members:
            group = self._chance.choice(self._members)["group"]
            for member in [one for one in self._members if one["group"] == group]:
                if not self._beat(member):
                    self._members.remove(member)

    def leave(self) -> None:
        """Removes a member."""
        if self._members:
            member = self._members.pop(self._chance.randrange(len(self._members)))
            self._beat({**member, "epoch": -1})

    def clear(self) -> None:
        """Discards all members, whose sessions have ended."""
        self._members.clear()

    def _beat(self, member: dict[str, Any], **fields: Any) -> bool:
        """Sends one heartbeat that reports the member's tasks. Returns False if the member is fenced."""
        request = StreamsGroupHeartbeatRequest(
            group_id=member["group"],
            member_id=member["id"],
            member_epoch=member["epoch"],
            active_tasks=member["active"],
            standby_tasks=member["standby"],
            warmup_tasks=(),
            **fields,
        )
        response = self._send(request)
        if response.error_code:
            return False
        member["epoch"] = response.member_epoch
        if response.active_tasks is not None:
            for role, entries in (("active", response.active_tasks), ("standby", response.standby_tasks)):
                member[role] = [TaskIds(subtopology_id=e.subtopology_id, partitions=e.partitions) for e in entries]
        return True
