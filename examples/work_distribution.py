"""Distributes work without topics: a user-defined protocol type and assignment, with Kafka's rebalancing.

Three workers of one process share ten jobs. One worker leaves, and the other two get its jobs. The group protocol
carries opaque bytes: only the workers interpret the leader's assignment.

python examples/work_distribution.py
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import kcore
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

JOBS = [f"job-{n}" for n in range(10)]
GROUP, TYPE, PROTOCOL = "crew", "jobs", "round-robin"


class Worker:
    """One member of the group. `jobs` has its current jobs."""

    def __init__(self, node: kcore.EmbeddedNode, name: str) -> None:
        self.node = node
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.jobs: list[str] = []

    def rebalance(self, crew: int) -> None:
        """Joins and syncs until `crew` workers share the jobs."""
        while True:
            share = self._share()
            if share is not None and share["crew"] == crew:
                self.jobs = share["jobs"]
                return
            while share is not None and not self.must_rebalance():
                time.sleep(0.01)  # a worker joined too late for this generation: its join starts the next one

    def _share(self) -> dict[str, Any] | None:
        """Returns the assignment of one generation, or None if the next generation has already begun."""
        joined = self._join()
        while joined.error_code:  # the first response only assigns a member id (KIP-394)
            self.member_id = joined.member_id if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""
            joined = self._join()
        self.member_id, self.generation = joined.member_id, joined.generation_id
        response = self.node.send(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type=TYPE,
                protocol_name=PROTOCOL,
                assignments=self._assign(joined) if joined.leader == self.member_id else [],
            )
        )
        return None if response.error_code else json.loads(response.assignment)

    def _join(self) -> JoinGroupResponse:
        return self.node.send(
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=5_000,
                member_id=self.member_id,
                protocol_type=TYPE,
                protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=self.name.encode())],
            ),
            client_id=self.name,
        )

    @staticmethod
    def _assign(joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = sorted(joined.members, key=lambda member: member.metadata)
        return [
            SyncGroupRequestAssignment(
                member_id=member.member_id,
                assignment=json.dumps({"crew": len(members), "jobs": JOBS[index :: len(members)]}).encode(),
            )
            for index, member in enumerate(members)
        ]

    def must_rebalance(self) -> bool:
        """Returns True if a heartbeat announces a rebalance."""
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        return self.node.send(request).error_code != 0

    def leave(self) -> None:
        """Leaves the group and releases its jobs."""
        self.node.send(LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self.member_id)]))


def rebalance_all(workers: list[Worker]) -> None:
    """Rebalances all workers, each in its own thread, because they wait for each other."""
    threads = [threading.Thread(target=worker.rebalance, args=[len(workers)]) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def show(workers: list[Worker]) -> None:
    for worker in workers:
        print(f"{worker.name}: {' '.join(worker.jobs)}")


def main() -> None:
    with kcore.open(config={"group.initial.rebalance.delay.ms": 200}) as node:
        crew = [Worker(node, name) for name in ("ann", "ben", "cat")]
        rebalance_all(crew)
        show(crew)
        crew.pop().leave()
        print("cat leaves")
        rebalance_all([worker for worker in crew if worker.must_rebalance()])
        show(crew)


if __name__ == "__main__":
    main()
