"""Commits belong to the membership that the program has seen, even if the member has joined again in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kcore
from kcore.errors import CommitFailedError, KcoreError
from kcore.node.membership import Protocol
from kcore.node.types import GroupMetadata
from kcore.testing import VirtualNode

PROTOCOLS: list[Protocol] = ["consumer", "classic"]
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}
VIRTUAL = pytest.mark.kcore(topics={"in": 2, "out": 1}, settings=SETTINGS)

Commit = Callable[[kcore.AsyncNode, kcore.AsyncConsumer, Any], Awaitable[None]]


async def in_transaction(node: kcore.AsyncNode, group: Any, offsets: Any) -> None:
    async with node.transaction("copier") as txn:
        await txn.append("out", "copy")
        await txn.commit_offsets(group, offsets)


async def commit_by_consumer(node: kcore.AsyncNode, consumer: kcore.AsyncConsumer, offsets: Any) -> None:
    await consumer.commit(offsets)


async def commit_by_member(node: kcore.AsyncNode, consumer: kcore.AsyncConsumer, offsets: Any) -> None:
    await consumer.member.commit(offsets)


async def transact_by_consumer(node: kcore.AsyncNode, consumer: kcore.AsyncConsumer, offsets: Any) -> None:
    await in_transaction(node, consumer, offsets)


async def transact_by_member(node: kcore.AsyncNode, consumer: kcore.AsyncConsumer, offsets: Any) -> None:
    await in_transaction(node, consumer.member, offsets)


async def transact_by_metadata(node: kcore.AsyncNode, consumer: kcore.AsyncConsumer, offsets: Any) -> None:
    await in_transaction(node, consumer.group_metadata, offsets)


async def transact_without_offsets(node: kcore.AsyncNode, consumer: kcore.AsyncConsumer, offsets: Any) -> None:
    """Sends a transaction without offsets, as a program does whose consumer has lost its partitions. The broker must
    refuse it.
    """
    await in_transaction(node, consumer, {})


COMMITS: list[Commit] = [
    commit_by_consumer,
    commit_by_member,
    transact_by_consumer,
    transact_by_member,
    transact_by_metadata,
    transact_without_offsets,
]


async def consumed(node: kcore.AsyncNode, consumer: kcore.AsyncConsumer) -> Any:
    """Consumes ten records of each partition. Returns the positions."""
    for partition in (0, 1):
        await node.topics["in"].append_many([str(number) for number in range(10)], partition=partition)
    while sum(each.offset for each in consumer.positions().values()) < 20:
        await consumer.poll(1.0)
    return consumer.positions()


@VIRTUAL
@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_joined_again_since_its_poll_commits_nothing(
    kcore_node: VirtualNode, protocol: Protocol, commit: Commit
) -> None:
    """Another member may have committed later offsets. The next poll returns the records after the
    committed offsets.
    """

    async def scenario(node: kcore.AsyncNode) -> tuple[Any, ...]:
        group = node.group("g")
        async with group.consume(["in"], auto_commit=None, protocol=protocol) as consumer:
            positions = await consumed(node, consumer)
            kcore_node.groups["g"].expire(consumer.member.member_id)
            await asyncio.sleep(20)  # a consumer group's member joins again, a classic one at the next poll
            joined = consumer.member.epoch > 0
            with pytest.raises(CommitFailedError, match="the member was removed from the group"):
                await commit(node, consumer, positions)
            refused = await group.committed(), await node.topics["out"].read(0, 0)
            again: list[kcore.Record] = []
            while len(again) < 20:
                again += await consumer.poll(1.0)
            await transact_by_consumer(node, consumer, consumer.positions())
            offsets = {key.partition: value.offset for key, value in (await group.committed()).items()}
            return joined, refused, len(again), offsets, len(await node.topics["out"].read(0, 0))

    assert kcore_node.run(scenario) == (protocol == "consumer", ({}, []), 20, {0: 10, 1: 10}, 1)


@VIRTUAL
@pytest.mark.parametrize("commit", COMMITS[:-1])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_coordinator_refuses_a_member_that_has_not_detected_its_removal(
    kcore_node: VirtualNode, protocol: Protocol, commit: Commit
) -> None:
    async def scenario(node: kcore.AsyncNode) -> tuple[Any, ...]:
        group = node.group("g")
        async with group.consume(["in"], auto_commit=None, protocol=protocol) as consumer:
            positions = await consumed(node, consumer)
            kcore_node.groups["g"].expire(consumer.member.member_id)
            with pytest.raises(CommitFailedError):
                await commit(node, consumer, positions)
            return await group.committed(), await node.topics["out"].read(0, 0)

    assert kcore_node.run(scenario) == ({}, [])


@VIRTUAL
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_metadata_that_was_read_with_the_positions_is_refused_after_a_new_join(
    kcore_node: VirtualNode, protocol: Protocol
) -> None:
    """A program reads records and the consumer's group metadata. The member then joins again and polls. A transaction
    with the earlier metadata must fail, although the consumer itself may commit again.
    """

    async def scenario(node: kcore.AsyncNode) -> Any:
        group = node.group("g")
        async with group.consume(["in"], auto_commit=None, protocol=protocol) as consumer:
            positions = await consumed(node, consumer)
            metadata = consumer.group_metadata
            await in_transaction(node, metadata, {("in", 0): 1})
            kcore_node.groups["g"].expire(consumer.member.member_id)
            await asyncio.sleep(20)
            while not await consumer.poll(1.0):
                pass
            assert consumer.group_metadata != metadata
            with pytest.raises(CommitFailedError):
                await in_transaction(node, metadata, positions)
            return metadata, {key.partition: value.offset for key, value in (await group.committed()).items()}

    metadata, committed = kcore_node.run(scenario)
    assert (type(metadata), committed) == (GroupMetadata, {0: 1})


@VIRTUAL
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_does_not_commit_a_partition_that_a_rebalance_has_revoked(
    kcore_node: VirtualNode, protocol: Protocol
) -> None:
    """The worker of a member with listeners is slow. The member is still in the group, but the partition has a new
    owner.
    """

    async def scenario(node: kcore.AsyncNode) -> tuple[Any, ...]:
        group = node.group("g")
        revoked: list[Any] = []
        options: Any = {"protocol": protocol, "on_revoked": lambda event: revoked.extend(event.partitions)}
        if protocol == "classic":
            options["assignors"] = ["cooperative-sticky"]
        async with group.join(["in"], **options) as member:
            while len(member.assignment) < 2:
                await asyncio.sleep(0.1)
            async with group.join(["in"], **options) as successor:
                while not (revoked and successor.assignment):
                    await asyncio.sleep(0.1)
                (moved,), (kept,) = successor.assignment, member.assignment
                await successor.commit({moved: 7})
                refusals = []
                for commit in (member.commit({moved: 1}), in_transaction(node, member, {moved: 1})):
                    with pytest.raises(CommitFailedError) as raised:
                        await commit
                    refusals.append(str(raised.value))
                await member.commit({kept: 3})
                await in_transaction(node, member, {kept: 4})
                committed = {key: value.offset for key, value in (await group.committed()).items()}
                return refusals, committed == {moved: 7, kept: 4}, f"in-{moved.partition}"

    refusals, committed, moved = kcore_node.run(scenario)
    text = f"partition {moved} does not belong to the member any more: its new owner begins at the committed offset"
    assert (refusals, committed) == ([text, text], True)


@VIRTUAL
@pytest.mark.parametrize("listens", [False, True], ids=["reads", "listens"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_commits_again_once_its_program_has_seen_the_new_membership(
    kcore_node: VirtualNode, protocol: Protocol, listens: bool
) -> None:
    async def scenario(node: kcore.AsyncNode) -> tuple[Any, ...]:
        group = node.group("g")
        lost: list[Any] = []
        options: Any = {"on_lost": lost.append} if listens else {}
        async with group.join(["in"], protocol=protocol, **options) as member:
            while len(member.assignment) < 2:
                await asyncio.sleep(0.1)
            kcore_node.groups["g"].expire(member.member_id)
            await asyncio.sleep(60)  # the member has joined again
            refused = []
            if not listens:
                with pytest.raises(CommitFailedError, match="since the last poll or event"):
                    await member.commit({("in", 0): 1})
                refused.append(1)
                assert len(member.assignment) == 2
            await member.commit({("in", 0): 2})
            return refused, len(lost), (await group.committed())[("in", 0)].offset

    assert kcore_node.run(scenario) == (([], 1, 2) if listens else ([1], 0, 2))


@VIRTUAL
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_loop_commits_with_the_membership_of_its_last_event(kcore_node: VirtualNode, protocol: Protocol) -> None:
    async def scenario(node: kcore.AsyncNode) -> tuple[Any, ...]:
        group = node.group("g")
        kinds = []
        async with group.join(["in"], protocol=protocol) as member:
            async for event in member.events():
                kinds.append(type(event).__name__)
                if isinstance(event, kcore.Assigned) and len(event) == 2 and "Lost" not in kinds:
                    kcore_node.groups["g"].expire(member.member_id)
                    await asyncio.sleep(60)
                    with pytest.raises(CommitFailedError):
                        await member.commit({("in", 0): 1})
                elif isinstance(event, kcore.Assigned) and len(event) == 2:
                    await member.commit({("in", 0): 2})
                    break
        return kinds[-2:], (await group.committed())[("in", 0)].offset

    kinds, offset = kcore_node.run(scenario)
    assert (kinds[-1], offset) == ("Assigned", 2)


@VIRTUAL
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_has_not_joined_commits_nothing_in_a_transaction(
    kcore_node: VirtualNode, protocol: Protocol
) -> None:
    async def scenario(node: kcore.AsyncNode) -> Any:
        group = node.group("g")
        async with group.consume(["in"], protocol=protocol) as consumer:
            for committer in (consumer, consumer.member):
                with pytest.raises(CommitFailedError, match="has not joined yet"):
                    await in_transaction(node, committer, {("in", 0): 1})
            with pytest.raises(CommitFailedError, match="has not joined yet"):
                await in_transaction(node, consumer.group_metadata, {("in", 0): 1})
        with pytest.raises(CommitFailedError):
            await in_transaction(node, GroupMetadata("g", "member", -1, None), {("in", 0): 1})
        with pytest.raises(KcoreError, match="was not started"):
            await in_transaction(node, group.join(["in"], protocol=protocol), {("in", 0): 1})
        return await group.committed()

    assert kcore_node.run(scenario) == {}
