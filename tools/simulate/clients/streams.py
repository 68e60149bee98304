"""Members of streams groups: report their topology and tasks as Kafka Streams does (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from kcore.protocol.topic_partition import TopicPartition
from tools.simulate.clients.client import NETWORK, Client

LEAVE_EPOCH = -1
JOIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
Tasks = tuple[tuple[str, tuple[int, ...]], ...]


class StreamsMember(Client):
    """A member that runs the tasks it gets. Options: group, subtopologies (id -> source topic), closing_ms, process.

    As in Kafka 4.3, the coordinator does not send tasks again if the response was lost. So after a lost response the
    member joins again, unless the next response has its tasks. The member also joins again after an error, because
    the coordinator may have assigned tasks. An example is NOT_COORDINATOR after a write with an unknown result.

    Attributes:
        epoch: the member epoch; 0 before it has joined.
        owned: the active tasks that the member runs: (subtopology, partition) -> the epoch in which it got the task.
    """

    def start(self) -> None:
        """Implements `Client.start`."""
        self._channel = self.channel()
        self.member_id = f"streams-{self.name}-{self.life}"
        self.epoch = 0
        self.owned: dict[TopicPartition, int] = {}
        self._target: Tasks = ()
        self._owned: Tasks = ()
        self._standby: Tasks = ()
        self._reported = False
        self._response_lost = False
        self._leaving = False
        self._interval_ms = 1_000
        self.spawn(self._run())

    @property
    def closed(self) -> bool:
        """True if this client is no longer a member."""
        return self._leaving or self.epoch <= 0

    async def _run(self) -> None:
        while self.alive and not self._leaving:
            try:
                response = await self._channel.call(self._request(), timeout_ms=5_000)
            except NETWORK:
                self._reported, self._response_lost = False, True
                await self.kernel.sleep(self.choice.choice([20, 500]))
                continue
            self._receive(response)
            if not self.epoch:
                await self.kernel.sleep(20)
            elif self._target != self._owned:
                await self._change_tasks()
            else:
                await self.kernel.sleep(self._interval_ms)

    def _request(self) -> StreamsGroupHeartbeatRequest:
        fields: dict[str, Any] = {"group_id": self.options["group"], "member_id": self.member_id}
        fields["member_epoch"] = self.epoch
        if not self.epoch:
            parts = [
                Subtopology(subtopology_id=name, source_topics=[topic])
                for name, topic in sorted(self.options["subtopologies"].items())
            ]
            fields |= {
                "rebalance_timeout_ms": 10_000,
                "topology": Topology(epoch=0, subtopologies=parts),
                "process_id": self.options.get("process", self.name),
            }
        if not self.epoch or not self._reported:
            fields |= {"active_tasks": _rows(self._owned), "standby_tasks": _rows(self._standby), "warmup_tasks": []}
        return StreamsGroupHeartbeatRequest(**fields)

    def _receive(self, response: StreamsGroupHeartbeatResponse) -> None:
        code = response.error_code
        if code in JOIN_AGAIN:
            self._lose_all()
            return
        if code:
            self._reported, self._response_lost = False, True
            return
        lost, self._response_lost = self._response_lost, False
        if lost and response.active_tasks is None:
            self._lose_all()
            return
        self._reported = True
        self.epoch = response.member_epoch
        self._interval_ms = max(1, response.heartbeat_interval_ms)
        if response.active_tasks is not None:
            self._target = _tasks(response.active_tasks)
            self._standby = _tasks(response.standby_tasks)

    async def _change_tasks(self) -> None:
        """Closes tasks, which takes some time, and reports the new tasks with the next heartbeat."""
        target = self._target
        kept = set(_places(target))
        if not kept >= set(self.owned):
            await self.kernel.sleep(self.choice.choice([0, self.options["closing_ms"]]))
        self.owned = {partition: self.owned.get(partition, self.epoch) for partition in _places(target)}
        self._owned = target
        self._reported = False

    def _lose_all(self) -> None:
        self.epoch = 0
        self.owned = {}
        self._target = self._owned = self._standby = ()
        self._reported = False

    def shut_down(self) -> None:
        """Implements `Client.shut_down`: leaves the group."""
        if self.alive and not self._leaving and self.epoch > 0:
            self._leaving = True
            request = StreamsGroupHeartbeatRequest(
                group_id=self.options["group"], member_id=self.member_id, member_epoch=LEAVE_EPOCH
            )
            self._channel.send(request, lambda result: self.kill(), timeout_ms=3_000)
        else:
            self.kill()

    def kill(self) -> None:
        """Implements `Client.kill`."""
        super().kill()
        self.owned = {}

    def at_rest(self) -> str | None:
        """Implements `Client.at_rest`."""
        if self.closed or not self._reported or self._target != self._owned:
            return f"epoch {self.epoch}, tasks {self._owned}, target {self._target}"
        return None


def _tasks(rows: Iterable[TaskIds] | None) -> Tasks:
    return tuple(sorted((row.subtopology_id, tuple(sorted(row.partitions))) for row in rows or ()))


def _rows(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in tasks]


def _places(tasks: Tasks) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name, numbers in tasks for number in numbers]
