"""Tasks with state for Python workers, as Kafka Streams has them, without a JVM: members of a streams group.

Workers count the words of a topic with four partitions. A task counts one partition; its state is the count so far.
Each task also has a standby task in another worker, which holds a copy of the state. The coordinator assigns the tasks,
moves as few of them as possible, and gives the tasks of a lost worker to the workers with the copies. A task that comes
to a worker without a copy is restored from the changelog, here a dictionary.

python examples/stream_tasks.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import kcore
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

GROUP, SOURCE, TASKS = "word-counters", "words", 4
SESSION_MS = 45_000
COUNTER = Subtopology(
    subtopology_id="count", source_topics=[SOURCE], state_changelog_topics=[TopicInfo(name=f"{GROUP}-changelog")]
)
SETTINGS = {
    "group.streams.num.standby.replicas": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}


class Worker:
    """A member of the group. A process with several threads would have several members with one process id.

    Attributes:
        state: its state directory: the state of tasks, which outlives a change of their role.
        active: the tasks that it runs.
        standby: the tasks of other workers whose state it copies.
        restored: tasks whose state it had to restore.
    """

    def __init__(self, engine: kcore.SyncEngine, changelog: dict[int, int], name: str) -> None:
        self.engine = engine
        self.changelog = changelog
        self.name = name
        self.epoch = 0
        self.state: dict[int, int] = {}
        self.active: list[int] = []
        self.standby: list[int] = []
        self.restored: list[int] = []

    def heartbeat(self, **fields: Any) -> None:
        """Sends a heartbeat and takes over the tasks in the response."""
        request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=self.name, member_epoch=self.epoch, **fields)
        response: StreamsGroupHeartbeatResponse = self.engine.send(request)
        assert response.error_code == ErrorCode.NONE, response
        self.epoch = response.member_epoch
        if response.active_tasks is not None:
            self.active = numbers(response.active_tasks)
            self.standby = numbers(response.standby_tasks or ())
            for task in self.active:
                if task not in self.state:
                    self.restored += [task] if task in self.changelog else []
                    self.state[task] = self.changelog.get(task, 0)

    def join(self) -> None:
        """Sends the first heartbeat, which carries the topology."""
        self.heartbeat(
            rebalance_timeout_ms=60_000,
            process_id=self.name,
            topology=Topology(subtopologies=[COUNTER]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )

    def report(self) -> None:
        """Sends a heartbeat with the tasks that it has: what it no longer reports, others may have."""
        self.heartbeat(active_tasks=tasks(self.active), standby_tasks=tasks(self.standby), warmup_tasks=[])

    def leave(self) -> None:
        """Leaves the group; its tasks are reassigned at once."""
        self.epoch = -1
        self.heartbeat()

    def count(self, words: int) -> None:
        """Counts new words in every task, and writes the counts to the changelog."""
        for task in self.active:
            self.state[task] += words
            self.changelog[task] = self.state[task]

    def copy(self) -> None:
        """Brings its copies up to date."""
        for task in self.standby:
            self.state[task] = self.changelog.get(task, 0)

    def shown(self, numbered: Iterable[int]) -> str:
        """Returns tasks with their counts."""
        return " ".join(f"{task}={self.state[task]}" for task in sorted(numbered)) or "none"


def numbers(entries: Iterable[TaskIds]) -> list[int]:
    """Returns the task numbers of a response."""
    return [task for entry in entries for task in entry.partitions]


def tasks(numbered: list[int]) -> list[TaskIds]:
    """Returns tasks as a heartbeat reports them."""
    return [TaskIds(subtopology_id="count", partitions=numbered)] if numbered else []


def settle(*workers: Worker) -> None:
    """Exchanges heartbeats until all tasks are where the coordinator wants them."""
    for _ in range(6):
        for worker in workers:
            worker.report()
    for worker in workers:
        worker.copy()


def show(title: str, *workers: Worker) -> None:
    """Prints the tasks of every worker with their counts."""
    print(title)
    for worker in workers:
        restored = f", restored {worker.restored}" if worker.restored else ""
        print(f"  {worker.name} runs {worker.shown(worker.active)}; copies: {worker.shown(worker.standby)}{restored}")
        worker.restored = []


def main() -> None:
    """Runs workers that come and go; every count survives."""
    clock = kcore.ManualClock()
    with kcore.open(clock=clock, config=SETTINGS) as engine:
        topic = CreatableTopic(name=SOURCE, num_partitions=TASKS, replication_factor=1)
        engine.send(CreateTopicsRequest(topics=[topic], timeout_ms=1_000))
        changelog: dict[int, int] = {}
        ann, ben, cat = (Worker(engine, changelog, name) for name in ("ann", "ben", "cat"))
        ann.join()
        settle(ann)
        ann.count(10)
        show("ann starts; copies need a second worker", ann)
        ben.join()
        settle(ann, ben)
        show("ben restores two tasks; each has copies of the other's", ann, ben)
        ann.count(5)
        ben.count(7)
        settle(ann, ben)
        ben.leave()
        settle(ann)
        show("ben leaves; ann has the counts", ann)
        cat.join()
        settle(ann, cat)
        engine.advance(SESSION_MS - 1)
        cat.report()
        engine.advance(1)
        settle(cat)
        show("cat joins, and ann is silent for a session; cat has the counts of her tasks", cat)


if __name__ == "__main__":
    main()
