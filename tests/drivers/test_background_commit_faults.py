"""Background commits during other failures, and requests about state whose commit is under way."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kcore.drivers.log_threads import Writer
from kcore.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kcore.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kcore.runtime.commit import BackgroundCommit, CommitPipeline
from tests.drivers.test_background_commits import LONG_S, Node, offsets
from tests.kit import batch, commit, produce


async def test_the_earliest_offset_keeps_its_epoch_during_a_background_deletion() -> None:
    node = Node()
    await node.begin()
    await node.send(produce("t", batch([b"a", b"b"])), 9)
    await node.send(produce("t", batch([b"c"])), 9)
    partition = ListOffsetsPartition(partition_index=0, timestamp=-2, current_leader_epoch=-1)
    earliest = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    before = await node.send(earliest, 7)
    gone = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    deleting = await node.write_in_background(DeleteRecordsRequest(topics=[gone], timeout_ms=1_000), 2)
    meanwhile = await asyncio.wait_for(node.send(earliest, 7), LONG_S)
    node.let_through()
    await deleting
    node.close()
    assert meanwhile == before


async def test_a_round_that_cannot_be_closed_is_refused_and_the_driver_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    await node.begin()
    await node.serve()
    seal, left = node.log.seal, [MemoryError("once")]

    def fails_once() -> Any:
        if left:
            raise left.pop()
        return seal()

    monkeypatch.setattr(node.log, "seal", fails_once, raising=False)
    first = await asyncio.wait_for(node.send(commit("g", {("t", 0): 5}), 9), LONG_S)
    second = await asyncio.wait_for(node.send(commit("h", {("t", 0): 5}), 9), LONG_S)
    assert [response.topics[0].partitions[0].error_code for response in (first, second)] == [16, 0]
    node.close()


async def test_without_a_thread_rounds_are_committed_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    await node.begin()
    await node.serve()

    def refuses(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuses)
        first = node.send(commit("g", {("t", 0): 5}), 9)
        response = await asyncio.wait_for(first, LONG_S)  # closing this node would hang forever now
    assert response.topics[0].partitions[0].error_code == 0
    node.close()


async def test_a_failing_finish_completes_all_responses_and_reloads_the_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(shards=1)
    await node.begin()
    first = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    finish, left = node.log.finish, [MemoryError("once")]

    def fails_once(write_set: Any) -> None:
        if left:
            raise left.pop()
        finish(write_set)

    monkeypatch.setattr(node.log, "finish", fails_once, raising=False)
    node.let_through()
    await asyncio.wait_for(first, LONG_S)
    for _ in range(20):
        await node.serve()
    beat = await asyncio.wait_for(node.send(node.beat, 4), LONG_S)
    node.close()
    assert beat.error_code == 0


async def test_a_finish_that_could_not_begin_is_repeated_with_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(shards=1)
    await node.begin()
    first = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    finish, left = CommitPipeline.finish_background, [MemoryError("once")]

    def fails_once(pipeline: CommitPipeline, background_commit: BackgroundCommit) -> bool:
        if left:
            raise left.pop()
        return finish(pipeline, background_commit)

    monkeypatch.setattr(CommitPipeline, "finish_background", fails_once)
    node.driver.loop.set_exception_handler(lambda loop, context: None)  # the error of the callback
    node.let_through()
    response = await asyncio.wait_for(first, LONG_S)
    beat = await asyncio.wait_for(node.send(node.beat, 4), LONG_S)
    node.close()
    assert left == []
    assert response.topics[0].partitions[0].error_code == 0
    assert beat.error_code == 0


@pytest.mark.parametrize("thread", ["writing", "refusing"])
async def test_a_write_without_memory_for_its_call_is_repeated(monkeypatch: pytest.MonkeyPatch, thread: str) -> None:
    """The writing thread repeats a call that raises MemoryError. If the loop cannot pass the round to that thread, the
    loop itself makes the call and repeats it.
    """
    node = Node(shards=1)
    await node.begin()
    await node.serve()
    write, left = BackgroundCommit.write, [MemoryError("once"), MemoryError("twice")]

    def fails_twice(background_commit: BackgroundCommit) -> None:
        if left:
            raise left.pop()
        write(background_commit)

    def refuses(writer: Writer, work: object) -> None:
        raise MemoryError("no entry for the queue")

    with monkeypatch.context() as patch:
        patch.setattr(BackgroundCommit, "write", fails_twice)
        if thread == "refusing":
            patch.setattr(Writer, "do", refuses)
        response = await asyncio.wait_for(node.send(commit("g", {("t", 0): 5}), 9), LONG_S)
    found = await asyncio.wait_for(node.send(offsets("g"), 9), LONG_S)
    node.close()
    assert left == []
    assert response.topics[0].partitions[0].error_code == 0
    assert found.groups[0].topics[0].partitions[0].committed_offset == 5


async def test_a_shard_is_not_reloaded_before_its_records_are_committed() -> None:
    node = Node(shards=1)
    await node.begin()
    (shard,) = node.engine.groups
    first = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    shard._mark_for_reload(RuntimeError("memory and log disagree"))
    shard.load_again()  # the timer of `LoadRetry` does this
    node.engine.slices.finish()
    node.let_through()
    assert (await asyncio.wait_for(first, LONG_S)).topics[0].partitions[0].error_code == 0
    for _ in range(5):
        await node.serve()
    found = (await node.send(offsets("g"), 9)).groups[0].topics
    node.close()
    assert [part.committed_offset for topic in found for part in topic.partitions] == [5]
