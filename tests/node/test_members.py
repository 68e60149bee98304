"""Members of groups by the client API: joining, events, listeners, commits and fencing."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore import errors
from kcore.client.consumer_coordinator.interface import (
    Assigned,
    Lost,
    Revoked,
)
from kcore.errors import CommitFailedError
from kcore.node.types import OffsetAndMetadata
from kcore.protocol.topic_partition import TopicPartition
from tests.kit import wait_until

PROTOCOLS: list[dict[str, Any]] = [
    {"protocol": "consumer"},
    {"protocol": "classic", "assignors": ["range"], "heartbeat_interval": 0.3, "session_timeout": 10},
    {"protocol": "classic", "assignors": ["cooperative-sticky"], "heartbeat_interval": 0.3, "session_timeout": 10},
]
FAST = {"rebalance_timeout": 30.0}


@pytest.fixture(params=PROTOCOLS, ids=["consumer", "eager", "cooperative"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {**request.param, **FAST}


def partitions(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def test_a_member_owns_its_partitions_until_it_leaves(node: kcore.Node, name: str, options: dict[str, Any]) -> None:
    node.topics.create(name, 3)
    events: list[Any] = []
    group = node.group(name)
    with group.join(name, on_assigned=events.append, on_revoked=events.append, **options) as member:
        wait_until(lambda: member.assignment, "the assignment")  # the first one may be empty, before the group decides
        assert member.assignment == partitions(name, 0, 1, 2)
        assert (member.epoch > 0, bool(member.member_id)) == (True, True)
        member.commit({(name, 0): 5, (name, 1): OffsetAndMetadata(6, "note")})
        (described,) = group.describe().members
        assert (described.member_id, described.assignment) == (member.member_id, partitions(name, 0, 1, 2))
        epoch = member.epoch
    assert [type(event) for event in events if event.partitions] == [Assigned, Revoked]
    assert events[-1].partitions == partitions(name, 0, 1, 2)
    assert events[-1].epoch >= epoch > 0
    assert group.committed() == {
        TopicPartition(name, 0): OffsetAndMetadata(5),
        TopicPartition(name, 1): OffsetAndMetadata(6, "note"),
    }
    assert group.describe().members == ()


async def test_two_members_share_partitions_on_a_loop(
    anode: kcore.AsyncNode, name: str, options: dict[str, Any]
) -> None:
    await anode.topics.create(name, 4)
    group = anode.group(name)
    seen: list[str] = []

    async def assigned(event: Assigned) -> None:
        seen.extend(map(str, event))

    async with group.join([name], on_assigned=assigned, **options) as one:
        await until(lambda: len(one.assignment) == 4)
        async with group.join([name], **options) as two:
            await until(lambda: len(one.assignment) == len(two.assignment) == 2)
            assert not set(one.assignment) & set(two.assignment)
        await until(lambda: len(one.assignment) == 4)
    assert set(seen) == {f"{name}-{number}" for number in range(4)}


async def until(condition: Any, limit_s: float = 60.0) -> None:
    import asyncio

    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_loop_of_events_gives_partitions_up_when_it_continues(
    anode: kcore.AsyncNode, name: str, options: dict[str, Any]
) -> None:
    await anode.topics.create(name, 2)
    group = anode.group(name)
    async with group.join([name], **options) as one:
        events = one.events()
        first = await anext(events)
        while not first.partitions:
            first = await anext(events)
        assert (type(first), first.partitions) == (Assigned, partitions(name, 0, 1))
        two = group.join([name], **options)
        await two.start(timeout=0)
        event = await anext(events)
        while not event.partitions:
            event = await anext(events)
        assert isinstance(event, Revoked)
        await one.commit({event.partitions[0]: 7})
        assert two.assignment == (), "the partitions are not given up yet"
        follower = await anext(events)
        await until(lambda: len(two.assignment) == 1)
        assert isinstance(follower, Assigned)
        await two.close()
        await events.aclose()
    assert (await group.committed())[event.partitions[0]] == OffsetAndMetadata(7)


def test_an_event_without_partitions_is_true() -> None:
    """Otherwise a loop `while event := member.poll(1.0)` would end at it."""
    event = Assigned((), 2)
    assert (bool(event), len(event), list(event)) == (True, 0, [])


def test_a_listener_may_commit_the_partitions_that_it_gives_up(
    node: kcore.Node, name: str, options: dict[str, Any]
) -> None:
    node.topics.create(name, 2)
    group = node.group(name)

    def revoked(event: Revoked) -> None:
        if event.partitions:
            member.commit(dict.fromkeys(event.partitions, 9))

    member = group.join(name, on_revoked=revoked, **options)
    with member:
        wait_until(lambda: len(member.assignment) == 2, "the assignment")
    assert group.committed() == dict.fromkeys(partitions(name, 0, 1), OffsetAndMetadata(9))


def test_a_removed_member_loses_its_partitions_and_joins_again(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    group = node.group(name)
    events: list[Any] = []
    options = {**PROTOCOLS[1], **FAST}
    with group.join(name, on_assigned=events.append, on_lost=events.append, **options) as member:
        removed = member.member_id
        group.remove_members(member_ids=[removed])
        wait_until(lambda: any(isinstance(event, Lost) for event in events), "the loss")
        wait_until(lambda: member.assignment and member.member_id != removed, "the new membership")
    assert [type(event) for event in events][:3] == [Assigned, Lost, Assigned]


def test_an_error_of_a_listener_is_raised_to_the_user(node: kcore.Node, name: str, options: dict[str, Any]) -> None:
    node.topics.create(name, 1)

    def assigned(event: Assigned) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), node.group(name).join(name, on_assigned=assigned, **options):
        raise AssertionError("the block must not run")


@pytest.mark.filterwarnings("ignore::kcore.errors.ImplausibleTimeWarning")
def test_a_refused_member_raises_the_error_of_the_coordinator(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    with pytest.raises(errors.UnsupportedAssignorError):
        node.group(name).join(name, server_assignor="no-such-assignor").start()
    with pytest.raises(errors.InvalidSessionTimeoutError):
        node.group(name).join(name, protocol="classic", session_timeout=100_000).start()


def test_arguments_are_checked_before_a_request_is_sent(node: kcore.Node) -> None:
    group = node.group("g")
    for arguments in ({}, {"topics": "t", "pattern": "t.*"}, {"topics": "t", "protocol": "no"}):
        with pytest.raises(errors.ConfigError):
            group.join(**arguments)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="no-such"):
        group.join("t", protocol="classic", assignors=["no-such"])
    with pytest.raises(errors.ConfigError, match="server_assignor"):
        group.join("t", assignors=["range"])
    with pytest.raises(errors.ConfigError, match="use assignors"):
        group.consume("t", protocol="classic", server_assignor="uniform")


def test_a_commit_after_the_end_fails(node: kcore.Node, name: str, options: dict[str, Any]) -> None:
    node.topics.create(name, 1)
    with node.group(name).join(name, **options) as member:
        done: list[Any] = []
        member.commit({(name, 0): 1}, wait=False, on_done=done.append)
        wait_until(lambda: done, "the commit")
        assert done == [None]
    with pytest.raises((CommitFailedError, errors.KcoreError)):
        member.commit({(name, 0): 2})
    assert node.group(name).committed() == {TopicPartition(name, 0): OffsetAndMetadata(1)}


def test_a_transaction_commits_offsets_of_a_member(node: kcore.Node, name: str, options: dict[str, Any]) -> None:
    node.topics.create(name, 1)
    with node.group(name).join(name, **options) as member, node.transaction(name) as txn:
        txn.commit_offsets(member, {(name, 0): 3})
    committed = node.group(name).committed([(name, 0)], stable=True)
    assert committed == {TopicPartition(name, 0): OffsetAndMetadata(3)}


def test_closing_a_node_closes_its_members(bootstrap: str, name: str) -> None:
    with kcore.connect(bootstrap) as other:
        other.topics.create(name, 1)
        with kcore.connect(bootstrap) as node:
            member = node.group(name).join(name)
            member.start()
            wait_until(lambda: member.assignment, "the assignment")
        assert other.group(name).describe().members == ()
    wait_until(lambda: not [each for each in threading.enumerate() if each.name == "kcore-drive"], "the threads' end")


def test_many_members_on_threads_share_the_partitions(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 8)
    group = node.group(name)
    members = [group.join(name) for _ in range(4)]
    for member in members:
        member.start()
    wait_until(lambda: [len(member.assignment) for member in members] == [2, 2, 2, 2], "two partitions each", 60)
    for member in members:
        member.close()
    assert group.describe().members == ()


@pytest.mark.long
def test_the_sharded_service_runs_on_servers_as_well(bootstrap: str) -> None:
    example = Path(__file__).parents[2] / "examples" / "sharded_service.py"
    done = subprocess.run(
        [sys.executable, str(example), bootstrap], capture_output=True, text=True, timeout=170, check=False
    )
    ends = ["every shard was written", "the empty group keeps its epochs"]
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (0, ends), done.stderr
