"""Groups whose members join at the same time over TCP, measured from the first join until the group is stable. Every
member has its own connection.

The measured time and CPU usage include those of the client; the CPU usage of the server is listed separately.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kcore.protocol.api_keys import response_class
from kcore.protocol.consumer_protocol import ConsumerProtocolSubscription
from kcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kcore.protocol.schema import Request
from kcore_ext.codec.frames import encode_request

R = TypeVar("R")

HEARTBEAT, CONSUMER_HEARTBEAT, JOIN, SYNC, LEAVE = 4, 1, 9, 5, 5  # versions; all have flexible headers
HEADER_BYTES = 5  # correlation id and an empty section of tagged fields
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS = 79, 27
MINUTES_MS = 300_000
MAX_TURNS = 200


def cpu_ms(pid: int) -> float:
    """Returns the processor time of a process in milliseconds, measured in kernel ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


class Seat:
    """The connection of one group member to the server."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waiting: tuple[int, int] = (0, 0)

    def send(self, request: Any, version: int) -> None:
        """Sends a request. The caller must receive its response before the next request."""
        self._waiting = (type(request).API_KEY, version)
        self.socket.sendall(encode_request(request, version, 1, "bench"))

    def receive(self) -> Any:
        """Receives the response."""
        size = int.from_bytes(self._exactly(4), "big")
        key, version = self._waiting
        return response_class(key).decode(self._exactly(size), version, HEADER_BYTES)

    def call(self, request: Request[R], version: int) -> R:
        """Sends a request and receives its response."""
        self.send(request, version)
        response: R = self.receive()
        return response

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the server closed the connection")
            data += part
        return data

    def close(self) -> None:
        """Closes the connection."""
        self.socket.close()


class ConsumerStorm:
    """A consumer group whose members join at once and send one heartbeat per turn until the group is stable.

    Args:
        seats: a connection for each member.
        group: the id of the group, not used before.
        topic: the topic of all members.
        partitions: the number of the topic's partitions.
    """

    def __init__(self, seats: list[Seat], group: str, topic: str, partitions: int) -> None:
        self.seats, self.group, self.topic, self.partitions = seats, group, topic, partitions
        self.last: list[ConsumerGroupHeartbeatResponse] = []
        self.owned: list[list[TopicPartitions]] = [[] for _ in seats]
        self.turns = 0

    def _turn(self, request_of: Callable[[int], ConsumerGroupHeartbeatRequest]) -> None:
        for index, seat in enumerate(self.seats):
            seat.send(request_of(index), CONSUMER_HEARTBEAT)
        self.last = [seat.receive() for seat in self.seats]
        self.turns += 1
        for index, response in enumerate(self.last):
            assert not response.error_code, response
            if response.assignment is not None:
                assigned = response.assignment.topic_partitions
                self.owned[index] = [TopicPartitions(topic_id=t.topic_id, partitions=t.partitions) for t in assigned]

    def _joining(self, index: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=f"{self.group}-{index}",
            rebalance_timeout_ms=MINUTES_MS,
            subscribed_topic_names=[self.topic],
            topic_partitions=[],
        )

    def _beating(self, index: int) -> ConsumerGroupHeartbeatRequest:
        response = self.last[index]
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=f"{self.group}-{index}",
            member_epoch=response.member_epoch,
            topic_partitions=self.owned[index] if response.assignment is not None else None,
        )

    def run(self) -> None:
        """Runs the storm from the first join until all members have one epoch and every partition has an owner."""
        self._turn(self._joining)
        while not self.at_rest:
            assert self.turns < MAX_TURNS, self.last
            self._turn(self._beating)

    @property
    def at_rest(self) -> bool:
        counts = [sum(len(topic.partitions) for topic in owned) for owned in self.owned]
        one_epoch = len({response.member_epoch for response in self.last}) == 1
        return one_epoch and sum(counts) == self.partitions and max(counts) - min(counts) <= 1

    def leave(self) -> None:
        """Lets all members leave."""
        for index, seat in enumerate(self.seats):
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_id=f"{self.group}-{index}", member_epoch=-1
            )
            assert not seat.call(request, CONSUMER_HEARTBEAT).error_code


class ClassicStorm:
    """A classic group whose members join at the same time. It is stable when all members have sent SyncGroup in one
    generation.

    Args:
        seats: a connection for each member.
        group: the id of the group, not used before.
    """

    def __init__(self, seats: list[Seat], group: str) -> None:
        self.seats, self.group = seats, group
        self.members = ["" for _ in seats]
        self.generations = [-1 for _ in seats]
        self.synced = [-1 for _ in seats]
        self.requests = 0

    def run(self) -> None:
        """Runs the storm from the first join until all members are in the last generation."""
        with selectors.DefaultSelector() as selector:
            for index, seat in enumerate(self.seats):
                selector.register(seat.socket, selectors.EVENT_READ, index)
                self._send(index, self._joining(index), JOIN)
            waiting = set(range(len(self.seats)))
            while waiting or not self.at_rest:
                for key, _ in selector.select():
                    waiting.discard(key.data)
                    if self._continue(key.data, self.seats[key.data].receive()):
                        waiting.add(key.data)

    def _send(self, index: int, request: Any, version: int) -> None:
        self.requests += 1
        self.seats[index].send(request, version)

    def _joining(self, index: int) -> JoinGroupRequest:
        metadata = ConsumerProtocolSubscription(topics=["t"]).encode_versioned(1)
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=MINUTES_MS,
            rebalance_timeout_ms=MINUTES_MS,
            member_id=self.members[index],
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )

    def _continue(self, index: int, response: Any) -> bool:
        """Sends a member's next request after a response. Returns True if the member waits for another response."""
        code = response.error_code
        if hasattr(response, "members"):  # JoinGroup
            self.members[index] = response.member_id
            if code == MEMBER_ID_REQUIRED:
                self._send(index, self._joining(index), JOIN)
                return True
            assert not code, response
            self.generations[index] = response.generation_id
            self._send(index, self._syncing(index, response), SYNC)
            return True
        if code == REBALANCE_IN_PROGRESS:
            self.synced[index] = -1
            self._send(index, self._joining(index), JOIN)
            return True
        assert not code, response
        self.synced[index] = self.generations[index]
        if self.at_rest:
            return False
        beat = HeartbeatRequest(
            group_id=self.group, generation_id=self.generations[index], member_id=self.members[index]
        )
        self._send(index, beat, HEARTBEAT)
        return True

    def _syncing(self, index: int, joined: Any) -> SyncGroupRequest:
        assignments = [
            SyncGroupRequestAssignment(member_id=one.member_id, assignment=b"a" * 40) for one in joined.members
        ]
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.members[index],
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )

    @property
    def at_rest(self) -> bool:
        return self.synced[0] > 0 and len(set(self.synced)) == 1

    def leave(self) -> None:
        """Lets all members leave."""
        members = [MemberIdentity(member_id=member_id) for member_id in self.members]
        assert not self.seats[0].call(LeaveGroupRequest(group_id=self.group, members=members), LEAVE).error_code
