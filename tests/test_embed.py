"""The embedded engine: both APIs, virtual time, threads, several engines, folders that cannot be opened."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.errors import ConfigError, DataFolderError, EngineClosedError, KcoreError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kcore.protocol.messages.create_topics import CreatableTopic
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.protocol.messages.metadata import MetadataRequestTopic as Asked
from kcore.protocol.messages.offset_commit import OffsetCommitResponse
from kcore.runtime import Pending
from tests.kit import (
    QUICK,
    batch,
    commit,
    committed,
    create,
    fetch,
    heartbeat,
    join,
    leave,
    make_topic,
    new_member,
    produce,
    read_all,
    stable_alone,
    sync,
    wait_until,
)
from tests.log.raw_rows import put_version

SMALL = {**QUICK, "offsets.topic.num.partitions": "3"}


def state_of(engine: kcore.EmbeddedNode) -> dict[str, Any]:
    """Returns all client-visible state of the groups, offsets and records."""
    groups = sorted(group.group_id for group in engine.send(ListGroupsRequest()).groups)
    return {
        "groups": engine.send(DescribeGroupsRequest(groups=groups), 5).groups if groups else [],
        "offsets": {group: committed(engine, group) for group in groups},
        "topics": {info.name: (info.topic_id, info.partitions) for info in engine.engine.topics.all()},
        "records": read_all(engine, "t"),
        "cluster": engine.send(MetadataRequest(topics=[])).cluster_id,
    }


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the logged warnings and errors. Other tests may have enabled lower levels."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def populate(engine: kcore.EmbeddedNode) -> None:
    make_topic(engine, "t", 2)
    engine.send(produce("t", batch([b"one", b"two"])), 9)
    engine.send(commit("simple", {("t", 0): 2, ("t", 1): 7}, metadata="note"), 9)
    stable_alone(engine, "crew", session_ms=30_000)


# ---- opening and closing


def test_a_reopened_engine_has_the_same_state(tmp_path: Path) -> None:
    with kcore.open(tmp_path / "data", config=SMALL) as engine:
        populate(engine)
        before = state_of(engine)
    assert before["offsets"]["simple"] == {("t", 0): 2, ("t", 1): 7}
    assert [group.group_state for group in before["groups"]] == ["Stable", "Empty"]
    with kcore.open(tmp_path / "data", config=SMALL, create=False) as engine:
        assert state_of(engine) == before
        recovery = engine.engine.recovery
        assert (recovery.shards, recovery.groups, recovery.topics) == (3, 2, 2)
        assert recovery.records >= 3


def test_without_a_path_no_state_survives() -> None:
    with kcore.open(config=SMALL) as engine:
        populate(engine)
    with kcore.open(config=SMALL) as engine:
        assert engine.send(ListGroupsRequest()).groups == []


async def test_an_engine_on_a_loop_keeps_its_state(tmp_path: Path) -> None:
    async with kcore.open_async(tmp_path / "data", config=SMALL) as engine:
        assert (await engine.send(create("t"))).topics[0].error_code == 0
        responses = await asyncio.gather(*(engine.send(commit(f"g{n}", {("t", 0): n}), 9) for n in range(50)))
        assert all(response.topics[0].partitions[0].error_code == 0 for response in responses)
        assert engine.engine.pipeline.rounds < 20, "the calls of one turn of the loop share a commit"
    with kcore.open(tmp_path / "data", config=SMALL) as again:
        assert [committed(again, f"g{n}") for n in range(50)] == [{("t", 0): n} for n in range(50)]


async def test_a_cancelled_await_does_not_cancel_the_request() -> None:
    async with kcore.open_async(config=SMALL) as engine:
        await engine.send(create("t"))
        task = asyncio.ensure_future(engine.send(commit("g", {("t", 0): 5}), 9))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        groups = await engine.send(ListGroupsRequest())
        assert [group.group_id for group in groups.groups] == ["g"]


async def test_a_produce_completes_a_poll_on_a_loop() -> None:
    async with kcore.open_async(config=SMALL) as engine:
        await engine.send(create("t"))
        poll = asyncio.ensure_future(engine.send(fetch("t", wait_ms=600_000), 12))
        await asyncio.sleep(0)
        assert not poll.done()
        await engine.send(produce("t", batch([b"v"])), 9)
        assert (await asyncio.wait_for(poll, 10)).responses[0].partitions[0].high_watermark == 1


def test_several_engines_run_in_one_process(tmp_path: Path) -> None:
    """Engines that are opened with the same Config have separate folders and settings."""
    config = kcore.Config.of(SMALL)
    first, second = kcore.open(tmp_path / "a", config=config), kcore.open(tmp_path / "b", config=config)
    with first as a, second as b, kcore.open(config=config) as c:
        for engine in (a, b, c):
            make_topic(engine, "t")
        a.send(commit("g", {("t", 0): 1}), 9)
        b.send(commit("g", {("t", 0): 2}), 9)
        assert (committed(a, "g"), committed(b, "g"), committed(c, "g")) == ({("t", 0): 1}, {("t", 0): 2}, {})
        assert len({engine.send(MetadataRequest(topics=[])).cluster_id for engine in (a, b, c)}) == 3
        a.config.set("group.max.size", "7", "test")
        assert b.config.group_max_size == config.group_max_size != 7
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert config.kcore_data_dir == ""


def test_the_error_for_an_unserved_api_names_it() -> None:
    with kcore.open(config=SMALL) as engine:
        if AddPartitionsToTxnRequest.API_KEY not in engine.engine.apis:
            with pytest.raises(KcoreError, match="this engine does not support AddPartitionsToTxnRequest"):
                engine.send(AddPartitionsToTxnRequest())


@pytest.mark.parametrize("version", [1, 11, 99, -1])
def test_an_unserved_version_is_refused(version: int) -> None:
    with kcore.open(config=SMALL) as engine:
        for _ in range(2):
            with pytest.raises(
                KcoreError, match=f"^OffsetCommitRequest is supported in versions 2 to 10, not in version {version}$"
            ):
                engine.send(commit("g", {("t", 0): 1}), version)


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ("x", "str"),
        (None, "NoneType"),
        (CreatableTopic(name="t"), "CreatableTopic"),
        (OffsetCommitResponse(), "OffsetCommitResponse"),
        (MetadataRequest, "the class MetadataRequest"),
    ],
)
async def test_objects_other_than_requests_are_refused(sent: Any, found: str) -> None:
    with kcore.open(config=SMALL) as engine:
        for _ in range(2):
            with pytest.raises(TypeError, match=f"^expected a request message, got {found}$"):
                engine.send(sent)
    async with kcore.open_async(config=SMALL) as engine:
        with pytest.raises(TypeError, match=f"^expected a request message, got {found}$"):
            await engine.send(sent, 0)


async def test_a_node_is_usable_at_once_and_without_a_with_block() -> None:
    node = kcore.open(config=SMALL)
    assert node.send(create("t")).topics[0].error_code == 0
    node.close()
    with pytest.raises(EngineClosedError):
        node.send(create("u"))
    other = await kcore.open_async(config=SMALL)
    assert (await other.send(create("t"))).topics[0].error_code == 0
    await other.close()


def test_metadata_requests_of_embedded_clients_create_no_topics_unless_allowed() -> None:
    with kcore.open(config={**SMALL, "auto.create.topics.enable": "false"}) as engine:
        response = engine.send(MetadataRequest(topics=[Asked(name="t")]))
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- folders that cannot be opened


def test_a_folder_that_is_open_is_refused(tmp_path: Path) -> None:
    opened = kcore.open(tmp_path / "data", config=SMALL)
    with opened, pytest.raises(DataFolderError, match="in use by this process"), kcore.open(tmp_path / "data"):
        pass
    with kcore.open(tmp_path / "data", config=SMALL) as engine:
        assert engine.engine.recovery.topics == 1


def test_a_missing_folder_is_not_created_if_the_caller_forbids_it(tmp_path: Path) -> None:
    with pytest.raises(DataFolderError, match="no kcore data folder"), kcore.open(tmp_path / "no", create=False):
        pass
    assert not (tmp_path / "no").exists()


def test_a_folder_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DataFolderError, match="not a kcore data folder, and not empty"), kcore.open(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_damaged_folder_is_refused_and_stays_unchanged(tmp_path: Path) -> None:
    with kcore.open(tmp_path / "data", config=SMALL) as engine:
        populate(engine)
    file = tmp_path / "data" / "data.mdb"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2 // 4096 * 4096])
    cut = file.read_bytes()
    with pytest.raises(DataFolderError, match=re.escape(str(tmp_path / "data"))), kcore.open(tmp_path / "data"):
        pass
    assert file.read_bytes() == cut
    file.write_bytes(whole)
    with kcore.open(tmp_path / "data", config=SMALL) as engine:
        assert committed(engine, "simple") == {("t", 0): 2, ("t", 1): 7}


def test_a_folder_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with kcore.open(tmp_path / "data", config=SMALL):
        pass
    put_version(tmp_path / "data", 99)
    with pytest.raises(DataFolderError, match="format version 99 is newer"), kcore.open(tmp_path / "data"):
        pass


def test_a_failing_open_closes_the_folder(tmp_path: Path) -> None:
    with kcore.open(tmp_path / "data", config=SMALL):
        pass
    with pytest.raises(ConfigError, match="belongs to cluster"):
        kcore.open(tmp_path / "data", config={**SMALL, "cluster.id": "another"})
    with kcore.open(tmp_path / "data", config=SMALL):
        pass


def test_settings_are_checked_at_the_open() -> None:
    with pytest.raises(ConfigError, match=r"group\.max\.size='0' is out of range; valid: a whole number in 1\.\."):
        kcore.open(config={"group.max.size": "0"})
    with pytest.raises(ConfigError, match=r"did you mean 'group\.max\.size'"):
        kcore.open(config={"group.maxsize": "1"})
    with pytest.raises(ConfigError, match="needs a data folder"), kcore.open(config={"kcore.durability": "fsync"}):
        pass


@pytest.mark.parametrize(
    "name", ["offsets.retention.check.interval.ms", "log.retention.check.interval.ms", "log.cleaner.backoff.ms"]
)
def test_an_interval_may_be_as_long_as_its_setting_allows(name: str) -> None:
    """The setting has its maximum, 2^63 - 1 ms, so the present time plus the interval exceeds 64 bits."""
    with kcore.open(config={**SMALL, name: str(2**63 - 1)}, clock=kcore.ManualClock()) as engine:
        make_topic(engine, "t")
        engine.send(commit("g", {("t", 0): 5}), 9)
        engine.advance(86_400_000)
        assert committed(engine, "g") == {("t", 0): 5}


# ---- virtual time


def pending(response: Any) -> Pending:
    assert isinstance(response, Pending)
    return response


def test_two_members_join_send_heartbeats_and_expire_in_virtual_time() -> None:
    clock = kcore.ManualClock()
    settings = {"group.initial.rebalance.delay.ms": "3000", "offsets.topic.num.partitions": "1"}
    with kcore.open(config=settings, clock=clock) as engine:
        ids = [new_member(engine, "g") for _ in range(2)]
        joins = [pending(engine.start(join("g", member))) for member in ids]
        engine.advance(5_999)
        assert [waiting.done for waiting in joins] == [False, False]
        engine.advance(1)
        first, second = (waiting.response for waiting in joins)
        assert (first.generation_id, second.generation_id, first.leader) == (1, 1, ids[0])
        assert [member.member_id for member in first.members] == ids
        waits = pending(engine.start(sync("g", ids[1], 1)))
        assert engine.send(sync("g", ids[0], 1, {ids[0]: b"a", ids[1]: b"b"})).assignment == b"a"
        assert waits.response.assignment == b"b"
        engine.advance(4_000)
        assert engine.send(heartbeat("g", ids[1], 1)).error_code == ErrorCode.NONE
        for _ in range(2):
            assert engine.send(heartbeat("g", ids[0], 1)).error_code == ErrorCode.NONE
            engine.advance(4_000)
        assert engine.send(heartbeat("g", ids[0], 1)).error_code == ErrorCode.NONE
        engine.advance(2_000)  # ten seconds after the second one's last heartbeat, and two after the first one's
        assert engine.send(heartbeat("g", ids[0], 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert engine.send(heartbeat("g", ids[1], 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        alone = engine.send(join("g", ids[0]))
        assert (alone.error_code, alone.generation_id, len(alone.members)) == (0, 2, 1)
        engine.advance(10_000)
        (group,) = engine.send(DescribeGroupsRequest(groups=["g"]), 5).groups
        assert group.group_state == "Empty"
        assert clock.monotonic_ms() == 6_000 + 12_000 + 2_000 + 10_000


async def test_virtual_time_works_on_a_loop() -> None:
    clock = kcore.ManualClock()
    async with kcore.open_async(config={"offsets.topic.num.partitions": "1"}, clock=clock) as engine:
        member = (await engine.send(join("g"))).member_id
        joined = asyncio.ensure_future(engine.send(join("g", member)))
        await asyncio.sleep(0)
        engine.advance(3_000)
        assert (await joined).generation_id == 1


def test_a_jump_of_a_week_expires_offsets_at_once() -> None:
    clock = kcore.ManualClock()
    with kcore.open(config=SMALL, clock=clock) as engine:
        make_topic(engine, "t")
        engine.send(commit("g", {("t", 0): 5}), 9)
        engine.advance(7 * 86_400_000 - 1)
        assert committed(engine, "g") == {("t", 0): 5}
        engine.advance(600_001)
        assert committed(engine, "g") == {}


@pytest.mark.parametrize(
    ("ms", "error"),
    [(-1, ValueError), (float("nan"), ValueError), (float("inf"), ValueError), ("x", TypeError), (None, TypeError)],
)
def test_a_wrong_distance_leaves_the_engine_usable(ms: Any, error: type[Exception]) -> None:
    """`advance` refuses an invalid number of milliseconds before it moves the clock. An exception during the move would
    make the engine refuse all later calls.
    """
    with kcore.open(clock=kcore.ManualClock()) as engine:
        with pytest.raises(error):
            engine.advance(ms)
        assert engine.send(create("t")).topics[0].error_code == 0


def test_only_a_manual_clock_can_be_advanced() -> None:
    with kcore.open(config=SMALL) as engine, pytest.raises(TypeError, match="ManualClock"):
        engine.advance(1)
    with pytest.raises(ValueError, match="cannot go back"):
        kcore.ManualClock().advance(-1)


# ---- threads


def test_requests_of_threads_complete_each_other() -> None:
    """Eight threads join a group. Each join is parked until the last member joins, and each SyncGroup until the leader
    sends its own.
    """
    count, failures, assigned = 8, [], {}
    with kcore.open(config={**SMALL, "group.initial.rebalance.delay.ms": "100"}) as engine:

        def take_part() -> None:
            try:
                member = new_member(engine, "g")
                joined = engine.send(join("g", member), timeout_s=30)
                caches_responses = {one.member_id: one.member_id.encode() for one in joined.members}
                response = engine.send(sync("g", member, joined.generation_id, caches_responses), timeout_s=30)
                assigned[member] = (response.error_code, response.assignment)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=take_part) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert len(assigned) == count
        # A member that is too late for the first generation must rebalance; no member gets another one's share.
        for member, (code, share) in assigned.items():
            assert (code, share) == (0, member.encode()) or code in (22, 27), (code, share)
        assert any(code == 0 for code, _ in assigned.values())


def test_writing_threads_do_not_affect_each_other() -> None:
    with kcore.open(config=SMALL) as engine:
        make_topic(engine, "t")

        def write(group: str) -> None:
            for n in range(100):
                engine.send(commit(group, {("t", 0): n}), 9)

        threads = [threading.Thread(target=write, args=(f"g{n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [committed(engine, f"g{n}") for n in range(6)] == [{("t", 0): 99}] * 6


def test_a_timeout_of_the_caller_does_not_end_the_operation() -> None:
    """The join continues: its member is in the group when the rebalance ends."""
    with kcore.open(config=SMALL) as engine:
        first, _ = stable_alone(engine, "g", rebalance_ms=60_000, session_ms=60_000)
        second = new_member(engine, "g", session_ms=60_000)
        with pytest.raises(TimeoutError, match=r"the request got no response within 0\.05 s"):
            engine.send(join("g", second, session_ms=60_000), timeout_s=0.05)
        assert engine.send(heartbeat("g", first, 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        joined = engine.send(join("g", first, session_ms=60_000), timeout_s=30)
        assert sorted(member.member_id for member in joined.members) == sorted([first, second])


def test_a_leaving_member_completes_a_parked_join() -> None:
    with kcore.open(config=SMALL) as engine:
        first, _ = stable_alone(engine, "g", session_ms=60_000)
        second = new_member(engine, "g", session_ms=60_000)
        responses: list[Any] = []
        thread = threading.Thread(
            target=lambda: responses.append(engine.send(join("g", second, session_ms=60_000), timeout_s=30))
        )
        thread.start()
        wait_until(
            lambda: engine.send(heartbeat("g", first, 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS,
            "the second member asks to join",
        )
        engine.send(leave("g", first))
        thread.join(30)
        assert [(joined.error_code, joined.generation_id, joined.leader) for joined in responses] == [(0, 2, second)]


def test_a_deleted_folder_fails_later_writes_and_keeps_reads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with kcore.open(tmp_path / "data", config=SMALL) as engine:
        make_topic(engine, "t")
        engine.send(commit("g", {("t", 0): 5}), 9)
        shutil.rmtree(tmp_path / "data")
        for _ in range(2):
            response = engine.send(commit("g", {("t", 0): 6}), 9)
            assert [part.error_code for topic in response.topics for part in topic.partitions] == [
                ErrorCode.NOT_COORDINATOR
            ]
            assert engine.send(produce("t", batch([b"v"])), 11).responses[0].partition_responses[0].error_code == (
                ErrorCode.KAFKA_STORAGE_ERROR
            )
        assert committed(engine, "g") == {("t", 0): 5}
        assert read_all(engine, "t") == []
    assert warnings_in(caplog) == [
        f"commit: the log {tmp_path / 'data'} refused a write: `data.mdb` of the data folder "
        f"{tmp_path / 'data'} was deleted while this process uses it; the requests of this commit fail; kcore refuses "
        "all writes until it is restarted. The end of the process removes the data: first copy the deleted files from "
        "/proc/PID/fd"
    ]


def test_a_partition_count_that_differs_from_an_existing_internal_topic_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kcore.open(tmp_path / "data", config=SMALL).close()
    kcore.open(tmp_path / "data", config=SMALL).close()
    kcore.open(tmp_path / "data").close()  # the default of 50 was not configured
    assert warnings_in(caplog) == []
    with kcore.open(tmp_path / "data", config={"offsets.topic.num.partitions": "5"}) as engine:
        assert engine.engine.groups.partitions == 3
    assert warnings_in(caplog) == [
        "broker: offsets.topic.num.partitions=5 has no effect, because the internal topic __consumer_offsets already "
        "exists with 3 partitions, and this number cannot change; set the setting to the number of partitions, or "
        "remove the setting"
    ]
