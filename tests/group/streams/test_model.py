"""Streams groups with random members, processes, faults, topics and restarts, in virtual time.

A seed determines all events: heartbeats, lost responses, duplicate requests, crashes of members and of whole processes,
changes of topics and settings, restarts and failed commits of the server. After every step the invariants of the group
are checked. Once the faults stop, the group must become stable within a bounded number of heartbeats. Then every task
is active in exactly one member, and has as many standby tasks as the processes permit.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kcore.group.streams.group import StreamsGroup
from kcore.group.streams.states import MOVES, MemberState
from kcore.group.streams.tasks import Tasks
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from tests.group.streams.members import GROUP, Member, World, internal, subtopology, task_list, topology
from tests.seeds import first_of

STEPS = 250
SESSION_MS = 6_000
REBALANCE_MS = 4_000
BEAT_MS = 1_000
PROCESSES = ("p1", "p2", "p3", "p4")
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
NO_COORDINATOR = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
APPLICATION = topology(
    subtopology("0", ["ta"], [internal("app-a-changelog")], sinks=["app-r-repartition"]),
    subtopology("1", ["tb"], repartitions=[internal("app-r-repartition")]),
    subtopology("2", ["tc"], [internal("app-c-changelog")]),
)
Task = tuple[str, int]


def in_roles(tasks: Tasks) -> list[set[Task]]:
    return [{(part, number) for part, numbers in role.items() for number in numbers} for role in tasks]


class Client(Member):
    """A member that joins again after an error or a lost response. Only the response to a join repeats the member's
    tasks.
    """

    def __init__(self, world: World, member_id: str, process: str, rng: random.Random) -> None:
        super().__init__(world, member_id, process)
        self.rng = rng

    def request(self) -> StreamsGroupHeartbeatRequest:
        """Returns the next request: a join, or a heartbeat, which reports the member's tasks in 70% of cases."""
        if self.epoch == 0:
            fields = {**self.join_fields(APPLICATION), "rebalance_timeout_ms": REBALANCE_MS}
            return StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, **fields)
        reports = self.rng.random() < 0.7
        return StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            active_tasks=task_list(self.active) if reports else None,
            standby_tasks=task_list(self.standby) if reports else None,
            warmup_tasks=[] if reports else None,
        )

    def take_or_lose(self, response: StreamsGroupHeartbeatResponse | None) -> None:
        """Handles a response; None means that it was lost."""
        if response is None or response.error_code in (*FENCED, *NO_COORDINATOR):
            self.epoch, self.active, self.standby = 0, {}, {}
        else:
            assert response.error_code == ErrorCode.NONE, response
            self.take(response)


class Model:
    """The world, its clients, and the invariants."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(
            {"ta": 4, "tb": 3, "tc": 2},
            group_streams_min_session_timeout_ms=1,
            group_streams_session_timeout_ms=SESSION_MS,
            group_streams_min_heartbeat_interval_ms=1,
            group_streams_heartbeat_interval_ms=BEAT_MS,
            group_streams_assignment_interval_ms=self.rng.choice([0, 0, 1000]),
            group_streams_initial_rebalance_delay_ms=self.rng.choice([0, 0, 2000]),
        )
        self.ids = 0
        self.clients = [self.new_client() for _ in range(self.rng.randint(2, 8))]
        self.epochs = (0, 0)
        self.states: dict[str, MemberState] = {}

    def new_client(self) -> Client:
        self.ids += 1
        return Client(self.world, f"m{self.ids}", self.rng.choice(PROCESSES), self.rng)

    def group(self) -> StreamsGroup | None:
        group = self.world.machine.groups.get(GROUP)
        return group if isinstance(group, StreamsGroup) else None

    # ---- events

    def beat(self, client: Client, faults: bool = True) -> None:
        """Sends one heartbeat. The request may be lost, duplicated or fail to commit, and the response may be lost."""
        draw = self.rng.random() if faults else 1.0
        request = client.request()
        if draw < 0.05:
            client.take_or_lose(None)
            return
        if 0.05 <= draw < 0.10:
            self.world.fail_next_commit()
        response = self.world.call(self.world.heartbeats, request)
        self.world.engine.failures_left = 0
        if 0.10 <= draw < 0.18 and client.epoch:
            again = self.world.call(self.world.heartbeats, request)
            if response.active_tasks is None and again.active_tasks is not None:
                response = again  # the client reads both responses
        client.take_or_lose(None if 0.18 <= draw < 0.26 else response)

    def step(self) -> None:
        """Runs one event."""
        rng = self.rng
        draw = rng.random()
        if draw < 0.70 and self.clients:
            self.beat(rng.choice(self.clients))
        elif draw < 0.80:
            self.world.advance(rng.randint(100, BEAT_MS))
        elif draw < 0.82 and len(self.clients) > 1:
            self.clients.pop(rng.randrange(len(self.clients)))
        elif draw < 0.83:
            crashed = rng.choice(PROCESSES)
            self.clients = [client for client in self.clients if client.process != crashed]
        elif draw < 0.85 and len(self.clients) > 1:
            leaving = self.clients.pop(rng.randrange(len(self.clients)))
            if leaving.epoch:
                leaving.leave()
        elif draw < 0.90 and len(self.clients) < 8:
            self.clients.append(self.new_client())
        elif draw < 0.94:
            self.world.set_group(GROUP, streams_num_standby_replicas=rng.randint(0, 2))
        elif draw < 0.98:
            self.world.create_internal()
        else:
            self.world.restart()

    # ---- invariants

    def check(self) -> None:
        """Checks the invariants: no task is active in two members, and no process has two copies of a task.

        Unfenced clients run only their own tasks, and epochs never decrease.
        """
        group = self.group()
        if group is None:
            return
        active: dict[Task, str] = {}
        in_process: dict[tuple[str, Task], str] = {}
        for member in group.members.values():
            current = member.current
            for role, (assigned, revoking) in enumerate(
                zip(in_roles(current.assigned), in_roles(current.revoking), strict=True)
            ):
                assert not assigned & revoking, member
                for task in assigned | revoking:
                    if role == 0:
                        assert task not in active, f"{task} is active in {active[task]} and {member.member_id}"
                        active[task] = member.member_id
                    key = (member.metadata.process_id, task)
                    assert key not in in_process, f"{key} is in {in_process[key]} and {member.member_id}"
                    in_process[key] = member.member_id
            assert current.revoking.is_empty is (current.state is not MemberState.UNREVOKED), member
            before = self.states.get(member.member_id, current.state)
            assert current.state is before or current.state in MOVES[before], f"{member} was {before.name}"
        self.states = {member.member_id: member.current.state for member in group.members.values()}
        for client in self.clients:
            found = group.members.get(client.member_id)
            if found is not None and client.epoch in (found.current.member_epoch, found.current.previous_epoch):
                for part, numbers in client.active.items():
                    for number in numbers:
                        owner = active.get((part, number))
                        assert owner == client.member_id, f"{client.member_id} runs {part}_{number} of {owner}"
        epochs = (group.group_epoch, group.assignment_epoch)
        assert epochs[0] >= self.epochs[0], f"the group epoch fell from {self.epochs} to {epochs}"
        assert epochs[1] >= self.epochs[1], f"the assignment epoch fell from {self.epochs} to {epochs}"
        self.epochs = epochs

    def come_to_rest(self) -> None:
        """Stops the faults and sends heartbeats of all members, once per interval."""
        if not self.clients:
            self.clients.append(self.new_client())
        bound = (SESSION_MS + REBALANCE_MS) // BEAT_MS + 25
        for done in range(bound):
            if self.is_at_rest() and done > (SESSION_MS + REBALANCE_MS) // BEAT_MS + 2:
                return
            for client in self.clients:
                self.beat(client, faults=False)
                self.check()
            self.world.create_internal()
            self.world.advance(BEAT_MS)
        raise AssertionError(f"not at rest after {bound} rounds: {self.world.describe()}")

    def is_at_rest(self) -> bool:
        group = self.group()
        return (
            group is not None
            and group.state_name() == "Stable"
            and group.members.keys() == {client.member_id for client in self.clients}
        )

    def check_rest(self) -> None:
        """Checks that every client runs its target, and that every task is active once and has its standby tasks."""
        active: Counter[Task] = Counter()
        standby: Counter[Task] = Counter()
        for client in self.clients:
            wanted = [
                {part: sorted(numbers) for part, numbers in role.items()}
                for role in self.world.group.target_of(client.member_id)
            ]
            assert [client.active, client.standby, {}] == wanted
            active.update((part, number) for part, numbers in client.active.items() for number in numbers)
            standby.update((part, number) for part, numbers in client.standby.items() for number in numbers)
        tasks = {"0": 4, "1": 4, "2": 2}
        assert active == {(part, number): 1 for part, count in tasks.items() for number in range(count)}
        replicas = self.world.streams.settings(GROUP).num_standby_replicas
        copies = min(replicas, len({client.process for client in self.clients}) - 1)
        stateful = {(part, number): copies for part in ("0", "2") for number in range(tasks[part]) if copies}
        assert standby == stateful


@pytest.mark.parametrize("seed", first_of(range(40), 12))
def test_tasks_are_active_once_and_groups_come_to_rest(seed: int) -> None:
    """The invariants hold for every seed; the parameter of the test is the seed."""
    model = Model(seed)
    for _ in range(STEPS):
        model.step()
        model.check()
    model.come_to_rest()
    model.check_rest()
    before = model.world.describe()
    model.world.restart()
    after = model.world.describe()
    # A restart forgets the decided partition counts until the next heartbeat.
    before.topology = after.topology = None
    assert after == before


def test_one_seed_gives_one_log() -> None:
    """The same seed writes the same log, so that a failure can be reproduced."""
    logs = []
    for _ in range(2):
        model = Model(7)
        for _ in range(STEPS):
            model.step()
        logs.append([(str(key), str(value)) for key, value in model.world.records()])
    assert logs[0] == logs[1]
    assert len(logs[0]) > 100
