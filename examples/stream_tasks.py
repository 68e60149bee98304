"""Stateful tasks, like those of Kafka Streams, for Python workers that are members of a streams group.

Workers count the words of a topic with four partitions. A task counts one partition, and its state is the count. Each
task also has a standby task in another worker, which holds a copy of the state. The coordinator assigns the tasks, and
moves as few of them as possible. If a worker is lost, the coordinator assigns its tasks to the workers that have the
copies. A worker without a copy restores the state of a task from the changelog, which is a dictionary here.

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
        state: task -> state. It stays when the role of the task changes; Kafka Streams keeps it in a directory.
        active: the tasks that the worker runs.
        standby: tasks that other workers run; this worker has copies of their state.
        restored: the tasks with a state that was restored since the last output.
    """

    def __init__(self, node: kcore.EmbeddedNode, changelog: dict[int, int], name: str) -> None:
        self.node = node
        self.changelog = changelog
        self.name = name
        self.epoch = 0
        self.state: dict[int, int] = {}
        self.active: list[int] = []
        self.standby: list[int] = []
        self.restored: list[int] = []

    def heartbeat(self, **fields: Any) -> None:
        """Sends a heartbeat and starts the tasks in the response."""
        request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=self.name, member_epoch=self.epoch, **fields)
        response: StreamsGroupHeartbeatResponse = self.node.send(request)
        assert response.error_code == ErrorCode.NONE, response
        self.epoch = response.member_epoch
        if response.active_tasks is not None:
            self.active = from_heartbeat(response.active_tasks)
            self.standby = from_heartbeat(response.standby_tasks or ())
            for task in self.active:
                if task not in self.state:
                    self.restored += [task] if task in self.changelog else []
                    self.state[task] = self.changelog.get(task, 0)

    def join(self) -> None:
        """Sends the first heartbeat, with the topology."""
        self.heartbeat(
            rebalance_timeout_ms=60_000,
            process_id=self.name,
            topology=Topology(subtopologies=[COUNTER]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )

    def report(self) -> None:
        """Sends a heartbeat with the worker's tasks. The coordinator then knows that the worker has no other tasks."""
        active, standby = to_heartbeat(self.active), to_heartbeat(self.standby)
        self.heartbeat(active_tasks=active, standby_tasks=standby, warmup_tasks=[])

    def leave(self) -> None:
        """Leaves the group. The coordinator reassigns the tasks at once."""
        self.epoch = -1
        self.heartbeat()

    def count(self, words: int) -> None:
        """Counts new words in every task, and writes the counts to the changelog."""
        for task in self.active:
            self.state[task] += words
            self.changelog[task] = self.state[task]

    def copy(self) -> None:
        """Copies the state of the standby tasks from the changelog."""
        for task in self.standby:
            self.state[task] = self.changelog.get(task, 0)

    def counts_of(self, tasks: Iterable[int]) -> str:
        """Formats tasks with their counts."""
        return " ".join(f"{task}={self.state[task]}" for task in sorted(tasks)) or "none"


def from_heartbeat(entries: Iterable[TaskIds]) -> list[int]:
    """Returns the task numbers of a response."""
    return [task for entry in entries for task in entry.partitions]


def to_heartbeat(tasks: list[int]) -> list[TaskIds]:
    """Converts task numbers to the task list of a heartbeat request."""
    return [TaskIds(subtopology_id="count", partitions=tasks)] if tasks else []


def settle(*workers: Worker) -> None:
    """Sends heartbeats until every task has moved to its target, which takes at most six rounds in this example."""
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
        active, standby = worker.counts_of(worker.active), worker.counts_of(worker.standby)
        print(f"  {worker.name} runs {active}; copies: {standby}{restored}")
        worker.restored = []


def main() -> None:
    """Starts and stops workers. No count is lost."""
    clock = kcore.ManualClock()
    with kcore.open(clock=clock, config=SETTINGS) as node:
        topic = CreatableTopic(name=SOURCE, num_partitions=TASKS, replication_factor=1)
        node.send(CreateTopicsRequest(topics=[topic], timeout_ms=1_000))
        changelog: dict[int, int] = {}
        ann, ben, cat = (Worker(node, changelog, name) for name in ("ann", "ben", "cat"))
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
        node.advance(SESSION_MS - 1)
        cat.report()
        node.advance(1)
        settle(cat)
        show("cat joins, and ann fails for a whole session timeout; cat has the counts of ann's tasks", cat)


if __name__ == "__main__":
    main()
