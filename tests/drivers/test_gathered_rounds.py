"""Rounds of a server's loop: with many waiting requests, a round includes those that arrive in the next turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kcore
from kcore.drivers.offload import POLL_AGAIN
from kcore.protocol.error_codes import ErrorCode
from tests.drivers.test_background_commits import LONG_S, Node
from tests.kit import QUICK, commit, create


@pytest.mark.parametrize("requests", [POLL_AGAIN.start, POLL_AGAIN.stop - 1])
async def test_a_round_of_many_requests_includes_the_requests_of_the_next_turn(requests: int) -> None:
    """Commits arrive in three turns in a row. The first two turns share a round; the third turn begins the next one."""
    node = Node()
    await node.begin()
    rounds = node.engine.pipeline.rounds
    first = [node.send(commit(f"g{n}", {("t", 0): n}), 9) for n in range(requests)]
    await asyncio.sleep(0)
    assert node.engine.pipeline.rounds == rounds
    second = node.send(commit("second", {("t", 0): 1}), 9)
    await asyncio.sleep(0)
    assert node.engine.pipeline.rounds == rounds + 1
    third = node.send(commit("third", {("t", 0): 1}), 9)
    responses = await asyncio.wait_for(asyncio.gather(*first, second, third), LONG_S)
    assert {p.error_code for r in responses for t in r.topics for p in t.partitions} == {int(ErrorCode.NONE)}
    assert node.engine.pipeline.rounds == rounds + 2
    node.close()


async def test_a_turn_that_leaves_its_round_open_is_measured_but_no_commit() -> None:
    node = Node()
    await node.begin()
    times = node.driver.measure()
    first = [node.send(commit(f"g{n}", {("t", 0): n}), 9) for n in range(POLL_AGAIN.start)]
    await asyncio.sleep(0)
    assert (times.processing.count, times.flush.count, times.purgatory.count) == (1, 0, 0)
    second = node.send(commit("second", {("t", 0): 1}), 9)
    await asyncio.sleep(0)
    assert (times.processing.count, times.flush.count, times.purgatory.count) == (2, 1, POLL_AGAIN.start + 1)
    await asyncio.wait_for(asyncio.gather(*first, second), LONG_S)
    node.close()


@pytest.mark.parametrize("requests", [1, POLL_AGAIN.start - 1, POLL_AGAIN.stop])
async def test_a_round_of_few_or_very_many_requests_is_committed_in_its_own_turn(requests: int) -> None:
    node = Node()
    await node.begin()
    rounds = node.engine.pipeline.rounds
    futures = [node.send(commit(f"g{n}", {("t", 0): n}), 9) for n in range(requests)]
    await asyncio.sleep(0)
    assert node.engine.pipeline.rounds == rounds + 1
    await asyncio.wait_for(asyncio.gather(*futures), LONG_S)
    assert node.engine.pipeline.rounds == rounds + 1
    node.close()


async def test_a_driver_that_closes_commits_a_round_that_waits_for_the_next_turn() -> None:
    node = Node()
    await node.begin()
    futures = [node.send(commit(f"g{n}", {("t", 0): n}), 9) for n in range(POLL_AGAIN.start)]
    await asyncio.sleep(0)
    assert node.engine.pipeline.dirty
    node.close()
    assert not node.engine.pipeline.has_uncommitted
    assert all(future.done() and future.exception() is None for future in futures)


async def test_all_requests_of_a_round_fail_with_the_write() -> None:
    """The write of a round fails that has waited for the next turn. The requests of both turns get the error."""
    node = Node()
    await node.begin()
    node.log.fails = True
    first = [node.send(commit(f"g{n}", {("t", 0): n}), 9) for n in range(POLL_AGAIN.start)]
    await asyncio.sleep(0)
    responses = await asyncio.wait_for(asyncio.gather(*first, node.send(commit("later", {("t", 0): 1}), 9)), LONG_S)
    codes = {p.error_code for r in responses for t in r.topics for p in t.partitions}
    assert codes == {int(ErrorCode.NOT_COORDINATOR)}
    node.log.fails = False
    node.close()


async def test_a_round_that_has_waited_for_a_background_commit_waits_for_no_further_turn() -> None:
    """Commits arrive while a thread writes a round. The first turn after that commit writes the next round."""
    node = Node()
    await node.begin()
    first = await node.write_in_background(commit("g", {("t", 0): 1}), 9)
    others = [node.send(commit(f"g{n}", {("t", 0): n}), 9) for n in range(POLL_AGAIN.start)]
    await asyncio.sleep(0)
    assert node.engine.pipeline.committing
    pipeline, write_round = node.engine.pipeline, node.driver._write_round
    turns: list[int] = []

    def counted() -> None:
        if not pipeline.committing:
            turns.append(pipeline.waiting)
        write_round()

    node.driver._write_round = counted  # type: ignore[method-assign]
    node.let_through()
    responses = await asyncio.wait_for(asyncio.gather(first, *others), LONG_S)
    assert {p.error_code for r in responses for t in r.topics for p in t.partitions} == {int(ErrorCode.NONE)}
    assert turns == [POLL_AGAIN.start]
    node.close()


async def test_a_round_with_a_record_that_requests_can_already_see_is_committed_in_its_own_turn() -> None:
    """One turn has commits and a CreateTopics request. Requests of the next turn may see the topic."""
    node = Node()
    await node.begin()
    rounds = node.engine.pipeline.rounds
    futures = [node.send(commit(f"g{n}", {("t", 0): n}), 9) for n in range(POLL_AGAIN.start)]
    created = node.send(create("new"))
    await asyncio.sleep(0)
    assert node.engine.pipeline.rounds == rounds + 1
    await asyncio.wait_for(asyncio.gather(*futures, created), LONG_S)
    node.close()


async def test_a_round_that_others_can_see_is_committed_in_its_own_turn_during_a_background_commit() -> None:
    """A thread writes a round when commits and a CreateTopics request arrive. Their turn waits for the thread, and then
    writes their round."""
    node = Node()
    await node.begin()
    first = await node.write_in_background(commit("g", {("t", 0): 1}), 9)
    rounds = node.engine.pipeline.rounds
    futures = [node.send(commit(f"g{n}", {("t", 0): n}), 9) for n in range(POLL_AGAIN.start)]
    created = node.send(create("new"))
    node.let_through()
    await asyncio.sleep(0)
    assert (node.engine.pipeline.rounds, node.engine.pipeline.committing) == (rounds + 2, False)
    await asyncio.wait_for(asyncio.gather(first, *futures, created), LONG_S)
    node.close()


async def test_a_round_is_committed_in_its_own_turn_if_no_memory_is_left_to_schedule_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    await node.begin()
    rounds = node.engine.pipeline.rounds
    futures = [node.send(commit(f"g{n}", {("t", 0): n}), 9) for n in range(POLL_AGAIN.start)]
    loop = asyncio.get_running_loop()
    call_soon = loop.call_soon

    def fail(callback: Any, *arguments: Any, **named: Any) -> Any:
        if callback == node.driver._end_round:
            raise MemoryError
        return call_soon(callback, *arguments, **named)

    monkeypatch.setattr(loop, "call_soon", fail)
    await asyncio.sleep(0)
    monkeypatch.undo()
    assert node.engine.pipeline.rounds == rounds + 1
    await asyncio.wait_for(asyncio.gather(*futures), LONG_S)
    node.close()


async def test_a_round_on_a_shared_loop_without_flushes_waits_for_no_callbacks_of_other_code() -> None:
    async with kcore.open_async(config=QUICK) as node:
        await node.send(create("t"))
        rounds = node.engine.pipeline.rounds
        futures = [asyncio.ensure_future(node.send(commit(f"g{n}", {("t", 0): n}), 9)) for n in range(POLL_AGAIN.start)]
        await asyncio.sleep(0)  # the tasks send
        await asyncio.sleep(0)  # the end of their round
        assert node.engine.pipeline.rounds == rounds + 1
        await asyncio.wait_for(asyncio.gather(*futures), LONG_S)
