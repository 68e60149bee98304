"""Random requests to the share coordinator (KIP-932), for the comparison with Apache Kafka.

The share coordinator stores the states of share partitions for group coordinators and partition leaders."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from tools.differential.program import Call, Step
from tools.differential.side import CLIENT_IDS, Side
from tools.differential.topics import CREATE

ARCHIVED: Final = 4
ACKNOWLEDGED: Final = 2
AVAILABLE: Final = 0
ACQUIRED: Final = 1


def _initialize(side: Side, group: str, topic: str, rows: list[tuple[int, int, int]]) -> tuple[Any, int]:
    partitions = [
        initialize_share_group_state.PartitionData(partition=partition, state_epoch=epoch, start_offset=start)
        for partition, epoch, start in rows
    ]
    data = [initialize_share_group_state.InitializeStateData(topic_id=side.topic_id(topic), partitions=partitions)]
    return initialize_share_group_state.InitializeShareGroupStateRequest(group_id=group, topics=data), 0


def _read(side: Side, group: str, topic: str, rows: list[tuple[int, int]]) -> tuple[Any, int]:
    partitions = [read_share_group_state.PartitionData(partition=number, leader_epoch=epoch) for number, epoch in rows]
    data = [read_share_group_state.ReadStateData(topic_id=side.topic_id(topic), partitions=partitions)]
    return read_share_group_state.ReadShareGroupStateRequest(group_id=group, topics=data), 0


def _summarize(side: Side, group: str, topic: str, rows: list[tuple[int, int]], version: int) -> tuple[Any, int]:
    partitions = [
        read_share_group_state_summary.PartitionData(partition=number, leader_epoch=epoch) for number, epoch in rows
    ]
    data = [read_share_group_state_summary.ReadStateSummaryData(topic_id=side.topic_id(topic), partitions=partitions)]
    return read_share_group_state_summary.ReadShareGroupStateSummaryRequest(group_id=group, topics=data), version


def _write(side: Side, group: str, topic: str, rows: list[dict[str, Any]], version: int) -> tuple[Any, int]:
    partitions = [
        write_share_group_state.PartitionData(
            partition=row["partition"],
            state_epoch=row["state_epoch"],
            leader_epoch=row["leader_epoch"],
            start_offset=row["start"],
            delivery_complete_count=row["complete"] if version >= 1 else -1,
            state_batches=[
                write_share_group_state.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                )
                for first, last, state, count in row["batches"]
            ],
        )
        for row in rows
    ]
    data = [write_share_group_state.WriteStateData(topic_id=side.topic_id(topic), partitions=partitions)]
    return write_share_group_state.WriteShareGroupStateRequest(group_id=group, topics=data), version


def _delete(side: Side, group: str, topic: str, numbers: list[int]) -> tuple[Any, int]:
    partitions = [delete_share_group_state.PartitionData(partition=number) for number in numbers]
    data = [delete_share_group_state.DeleteStateData(topic_id=side.topic_id(topic), partitions=partitions)]
    return delete_share_group_state.DeleteShareGroupStateRequest(group_id=group, topics=data), 0


class ShareState:
    """Lists of random requests that read and write the states of share partitions of one share group.

    The share partitions belong to an existing topic and to a topic that does not exist.
    """

    NAME = "share_state"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "initialize": Call(_initialize),
        "read": Call(_read),
        "summarize": Call(_summarize),
        "write": Call(_write),
        "delete": Call(_delete),
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns 15 to 30 random requests."""
        drawer = _Drawer(chance, name)
        first = [Step(0, "create_topic", {"name": f"{name}-a", "partitions": 2})]
        return first + [drawer.step() for _ in range(chance.randrange(15, 30))]


class _Drawer:
    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.name = name
        self.start_offset = 0  # never decreases: kcore would keep the larger one, as Kafka 4.4 does

    def step(self) -> Step:
        kinds = {self._initialize: 3, self._read: 3, self._summarize: 3, self._write: 7, self._delete: 1}
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        call, arguments = kind()
        place = {
            "group": f"{self.name}-g" if self.chance.random() < 0.97 else "",
            "topic": f"{self.name}-{self.chance.choices('ax', [20, 1])[0]}",
        }
        return Step(self.chance.randrange(len(CLIENT_IDS)), call, place | arguments)

    def _partitions(self) -> list[int]:
        numbers = self.chance.sample([0, 1], self.chance.choice([1, 1, 2]))
        return numbers if self.chance.random() < 0.95 else [self.chance.choice([2, -1]), *numbers]

    def _epoch(self) -> int:
        return self.chance.choices([0, 1, 2, 3, -1], [8, 4, 2, 1, 1])[0]

    def _initialize(self) -> tuple[str, dict[str, Any]]:
        rows = [(each, self._epoch(), self.chance.choice([0, self.start_offset, -1])) for each in self._partitions()]
        return "initialize", {"rows": rows}

    def _read(self) -> tuple[str, dict[str, Any]]:
        return "read", {"rows": [(each, self._epoch()) for each in self._partitions()]}

    def _summarize(self) -> tuple[str, dict[str, Any]]:
        rows = [(each, self._epoch()) for each in self._partitions()]
        return "summarize", {"rows": rows, "version": self.chance.choice([0, 1])}

    def _batches(self) -> list[tuple[int, int, int, int]]:
        batches = []
        at = self.chance.randrange(20)
        for _ in range(self.chance.choice([0, 1, 1, 2, 3])):
            last = at + self.chance.randrange(6)
            state = self.chance.choice([AVAILABLE, AVAILABLE, ACKNOWLEDGED, ARCHIVED])
            batches.append((at, last, state, self.chance.randrange(1, 4)))
            at = last + self.chance.randrange(1, 4)
        if batches and self.chance.random() < 0.05:
            first, last, *_ = batches[-1]
            batches[-1] = (first, last, ACQUIRED, 0)
        if len(batches) > 1 and self.chance.random() < 0.2:
            self.chance.shuffle(batches)
        return batches

    def _write(self) -> tuple[str, dict[str, Any]]:
        self.start_offset = max(self.start_offset, self.chance.choice([0, 3, 10, 20]))
        rows = [
            {
                "partition": each,
                "state_epoch": self._epoch(),
                "leader_epoch": self._epoch(),
                "start": self.chance.choice([-1, self.start_offset]),
                "complete": self.chance.choice([0, 3, -1]),
                "batches": self._batches(),
            }
            for each in self._partitions()
        ]
        return "write", {"rows": rows, "version": self.chance.choice([0, 1])}

    def _delete(self) -> tuple[str, dict[str, Any]]:
        return "delete", {"numbers": self._partitions()}
