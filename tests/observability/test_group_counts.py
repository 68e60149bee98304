"""Numbers of groups by state: the incremental counters equal a count over all groups."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from kcore.engine import Engine
from kcore.group.classic.group import ClassicGroup
from kcore.log import MemoryLogEngine, MemoryStorage
from kcore.log.faults import FaultInjectingEngine
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.runtime import ShardState
from tests.harness import DrivenHarness
from tests.kit import COMMIT_VERSION, commit, join, leave, sync


def counted(engine: Engine) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for shard in engine.groups:
        assert shard.state is ShardState.ACTIVE
        for key, count in shard.machine.groups.counts.items():
            assert count >= 0, key
            if count:
                found[key] = found.get(key, 0) + count
    return found


def scanned(engine: Engine) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for shard in engine.groups:
        for group in shard.machine.groups.values():
            key = group.group_type.value, group.state_name()
            found[key] = found.get(key, 0) + 1
    return found


class World(DrivenHarness):
    """An engine whose members join, leave and expire, whose commits fail, and which restarts."""

    SETTINGS: ClassVar[Mapping[str, Any]] = {
        "offsets.topic.num.partitions": 2,
        "group.initial.rebalance.delay.ms": 10,
        "group.min.session.timeout.ms": 1,
        "offsets.retention.minutes": 1,
        "offsets.retention.check.interval.ms": 30_000,
    }

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.storage = MemoryStorage()
        self.members: dict[str, set[str]] = {}
        self.consumers: dict[str, dict[str, int]] = {}
        super().__init__(topics={"t": 4}, log=self.opened_log())

    def opened_log(self) -> FaultInjectingEngine:
        """Opens the log on the storage, which survives a restart."""
        return FaultInjectingEngine(MemoryLogEngine(self.storage))

    def new_uuid(self) -> bytes:
        return self.random.randbytes(16)

    def consume(self, group: str) -> None:
        """Makes a member of a consumer group join, send a heartbeat, or leave."""
        members = self.consumers.setdefault(group, {})
        member = self.random.choice([*members, self.new_uuid().hex()])
        epoch = members.get(member, 0)
        if epoch and self.random.random() < 0.2:
            epoch = -1
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=5_000 if epoch == 0 else -1,
            subscribed_topic_names=["t"] if epoch == 0 else None,
            topic_partitions=[] if epoch == 0 else None,
        )
        response = self.begin(request, 1)
        if getattr(response, "error_code", 1) == 0 and epoch >= 0:
            members[member] = response.member_epoch
        else:
            members.pop(member, None)

    def step(self) -> str:
        group = f"g{self.random.randrange(6)}"
        members = self.members.setdefault(group, set())
        member = self.random.choice(sorted(members)) if members else ""
        action = self.random.choice(
            ["consume"] * 5
            + ["join", "join", "rejoin", "sync", "sync", "leave", "commit", "delete", "pass", "pass", "fail"]
        )
        if self.random.random() < 0.03:
            action = "restart"
        if action == "join":
            response = self.begin(join(group, session_ms=5_000, rebalance_ms=5_000), 5)
            if getattr(response, "error_code", 0) == 79:
                members.add(response.member_id)
                if self.random.random() < 0.8:
                    again = join(group, response.member_id, session_ms=5_000, rebalance_ms=5_000)
                    self.begin(again, 5)
        elif action == "rejoin":
            self.begin(join(group, member, session_ms=5_000, rebalance_ms=5_000), 5)
        elif action == "sync":
            for shard in self.engine.groups:
                classic = [one for one in shard.machine.groups.values() if isinstance(one, ClassicGroup)]
                for found in classic:
                    self.begin(sync(found.group_id, found.leader_id or "", found.generation_id), 3)
        elif action == "leave":
            self.begin(leave(group, member), 4)
            members.discard(member)
        elif action == "consume":
            self.consume(f"c{self.random.randrange(3)}")
        elif action == "commit":
            self.begin(commit(group, {("t", 0): 1}), COMMIT_VERSION)
        elif action == "delete":
            self.begin(DeleteGroupsRequest(groups_names=[group]), 2)
        elif action == "pass":
            self.advance(self.random.choice([1, 11, 11, 11, 2_000, 6_000, 40_000]))
        elif action == "fail":
            self.log.fail_commit()
        else:
            self.close()
            self.open(self.opened_log())
            self.members.clear()
        self.settle()  # after a failed commit its shards load again
        return action


@pytest.mark.parametrize("seed", range(6))
def test_counts_follow_every_change(seed: int) -> None:
    print(f"seed {seed}")
    world = World(seed)
    seen: set[tuple[str, str]] = set()
    for step in range(600):
        action = world.step()
        expected = scanned(world.engine)
        seen |= expected.keys()
        assert counted(world.engine) == expected, f"seed {seed}, step {step}: {action}"
    assert {state for kind, state in seen if kind == "classic"} >= {
        "Empty", "PreparingRebalance", "CompletingRebalance", "Stable",
    }  # fmt: skip
    assert {state for kind, state in seen if kind == "consumer"} >= {"Empty", "Stable"}
    world.engine.close()
