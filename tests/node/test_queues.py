"""Work queues of share groups: jobs, acknowledgements, locks, and workers that work together or fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kcore
from kcore import errors
from kcore.node._sync import queue as queue_module
from kcore.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.kit import wait_until

EARLIEST = {"share.auto.offset.reset": "earliest"}
LIMIT_S = 30.0


def queue_with(node: kcore.Node, name: str, *values: str, partitions: int = 1, **config: Any) -> None:
    """Creates a topic, sets the group's configuration, and appends jobs to partition 0."""
    node.topics.create(name, partitions)
    node.group(name).set_config({**EARLIEST, **config})
    if values:
        node.topics[name].append_many(list(values), partition=0)


def unfinished(node: kcore.Node, name: str) -> int:
    """Returns the number of jobs that are neither accepted nor archived."""
    group = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
    (described,) = node.send(DescribeShareGroupOffsetsRequest(groups=[group])).groups
    return sum(row.lag for topic in described.topics for row in topic.partitions)


def delivered_again(node: kcore.Node, name: str, count: int) -> list[tuple[str | None, int]]:
    """Takes jobs with a new worker. Returns their values and delivery counts, sorted by value."""
    taken = []
    with node.queue(name, group=name) as queue:
        while len(taken) < count:
            job = next_job(queue)
            taken.append((text(job), job.delivery_count))
    return sorted(taken, key=str)


def text(job: Any) -> str | None:
    return None if job.value is None else job.value.decode()


def test_a_worker_gets_jobs_in_order_and_accepts_them(node: kcore.Node, name: str) -> None:
    queue_with(node, name)
    topic = node.topics[name]
    topic.append("a", key="k", headers=[("h", b"1")])
    topic.append_many(["b", "c"])
    jobs = []
    with node.queue(name, group=name) as queue:
        for job in queue:
            jobs.append(job)
            if len(jobs) == 3:
                break
    seen = [(job.value, job.key, job.headers, job.topic, job.partition, job.offset) for job in jobs]
    assert seen == [
        (b"a", b"k", (("h", b"1"),), name, 0, 0),
        (b"b", None, (), name, 0, 1),
        (b"c", None, (), name, 0, 2),
    ]
    assert [job.delivery_count for job in jobs] == [1, 1, 1]
    assert all(job.lock_timeout >= 1 for job in jobs)
    assert unfinished(node, name) == 0, "the third job is accepted at the end of the block"
    assert node.group(name).describe().type == "share"
    assert node.group(name).describe().members == ()


async def test_a_worker_on_an_event_loop_gets_and_accepts_jobs(anode: kcore.AsyncNode, name: str) -> None:
    await anode.topics.create(name)
    await anode.group(name).set_config(EARLIEST)
    await anode.topics[name].append_many(["a", "b", "c"])
    seen: list[tuple[bytes | None, int]] = []
    async with anode.queue(name, group=name) as queue:
        async for job in queue:
            seen.append((job.value, job.delivery_count))
            if job.value == b"a":
                await job.accept()
            elif job.value == b"b" and job.delivery_count == 1:
                await job.release()
            elif job.value == b"c":
                await job.reject()
            if len(seen) == 4:
                break
    assert sorted(seen) == [(b"a", 1), (b"b", 1), (b"b", 2), (b"c", 1)]
    group = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
    (described,) = (await anode.send(DescribeShareGroupOffsetsRequest(groups=[group]))).groups
    assert [row.lag for topic in described.topics for row in topic.partitions] == [0]


def test_acknowledgements_decide_about_each_job(node: kcore.Node, name: str) -> None:
    queue_with(node, name, "accepted", "released", "rejected", "unfinished")
    with node.queue(name, group=name, auto_accept=False, max_jobs=4) as queue:
        jobs = {text(job): job for job in (next_job(queue), next_job(queue), next_job(queue), next_job(queue))}
        jobs["accepted"].accept()
        jobs["released"].release()
        jobs["rejected"].reject()
        states = {value: job.acknowledged for value, job in jobs.items()}
        assert states == {"accepted": True, "released": True, "rejected": True, "unfinished": False}
        with pytest.raises(errors.KcoreError, match="already acknowledged"):
            jobs["accepted"].release()
    assert unfinished(node, name) == 2
    assert delivered_again(node, name, 2) == [("released", 2), ("unfinished", 2)]
    assert unfinished(node, name) == 0
    with pytest.raises(errors.InvalidRecordStateError):
        jobs["unfinished"].accept()  # leaving has released it


def next_job(queue: kcore.Queue) -> kcore.Job:
    job = queue.get(timeout=LIMIT_S)
    assert job is not None
    return job


def test_a_failed_block_releases_its_job(node: kcore.Node, name: str) -> None:
    queue_with(node, name, "a", "b")

    def work() -> None:
        with node.queue(name, group=name) as queue:
            for job in queue:
                if job.value == b"b":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert unfinished(node, name) == 1
    assert delivered_again(node, name, 1) == [("b", 2)]


def test_a_job_that_always_fails_is_archived(node: kcore.Node, name: str) -> None:
    queue_with(node, name, "poison", **{"share.delivery.count.limit": 2})
    counts = []
    with node.queue(name, group=name) as queue:
        for _ in range(2):
            job = next_job(queue)
            counts.append(job.delivery_count)
            job.release()
        assert counts == [1, 2]
        assert unfinished(node, name) == 0


def test_a_released_job_is_not_accepted_by_the_next_request(node: kcore.Node, name: str) -> None:
    queue_with(node, name, "a")
    with node.queue(name, group=name) as queue:
        next_job(queue).release()
        again = next_job(queue)
        assert (again.value, again.delivery_count) == (b"a", 2)


def test_a_renewed_job_stays_with_its_worker(node: kcore.Node, name: str) -> None:
    queue_with(node, name, "slow")
    with node.queue(name, group=name) as queue:
        job = next_job(queue)
        job.renew()
        assert not job.acknowledged
        job.accept()
    assert unfinished(node, name) == 0


def test_renewals_can_be_forbidden(node: kcore.Node, name: str) -> None:
    queue_with(node, name, "slow", **{"share.renew.acknowledge.enable": False})
    with node.queue(name, group=name) as queue:
        job = next_job(queue)
        with pytest.raises(errors.InvalidRecordStateError):
            job.renew()
        job.accept()
    assert unfinished(node, name) == 0


def test_workers_share_the_jobs(node: kcore.Node, name: str) -> None:
    values = {f"job-{number}" for number in range(30)}
    queue_with(node, name, *sorted(values))
    seen: list[str | None] = []
    done = threading.Event()

    def work() -> None:
        with node.queue(name, group=name) as queue:
            while not done.is_set():
                job = queue.get(timeout=0.2)
                if job is not None:
                    seen.append(text(job))
                    if len(seen) == len(values):
                        done.set()

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(LIMIT_S)
    assert done.is_set()
    assert sorted(map(str, seen)) == sorted(values), "each job is done once"
    assert unfinished(node, name) == 0


def test_the_offsets_of_transaction_markers_are_no_jobs(node: kcore.Node, name: str) -> None:
    queue_with(node, name)
    for value in ("a", "b"):
        with node.transaction(name) as txn:
            txn.append(name, value, partition=0)
    with node.queue(name, group=name) as queue:
        first, second = next_job(queue), next_job(queue)
        assert (text(first), first.offset, text(second), second.offset) == ("a", 0, "b", 2)
        wait_until(lambda: queue.get(timeout=0.1) is None and unfinished(node, name) == 0, "gaps to be acknowledged")


def test_a_queue_has_jobs_of_several_topics_and_partitions(node: kcore.Node, name: str) -> None:
    node.group(name).set_config(EARLIEST)
    topics = [f"{name}-{number}" for number in range(2)]
    for topic in topics:
        node.topics.create(topic, 3)
        for partition in range(3):
            node.topics[topic].append(f"{topic}-{partition}", partition=partition)
    seen = set()
    with node.queue(topics, group=name, max_jobs=10) as queue:
        while len(seen) < 6:
            job = next_job(queue)
            assert text(job) == f"{job.topic}-{job.partition}"
            seen.add(text(job))
    assert seen == {f"{topic}-{partition}" for topic in topics for partition in range(3)}


def test_closing_ends_the_loop_of_another_thread(node: kcore.Node, name: str) -> None:
    queue_with(node, name, "a")
    queue = node.queue(name, group=name)
    began = threading.Event()
    seen = []

    def work() -> None:
        for job in queue:
            seen.append(text(job))
            began.set()

    worker = threading.Thread(target=work)
    worker.start()
    assert began.wait(LIMIT_S)
    queue.close()
    worker.join(LIMIT_S)
    assert not worker.is_alive()
    assert seen == ["a"]
    assert queue.get() is None


def test_a_removed_worker_joins_again(node: kcore.Node, name: str) -> None:
    queue_with(node, name, "a")
    with node.queue(name, group=name) as queue:
        next_job(queue).accept()
        before = queue._membership.epoch
        leave = ShareGroupHeartbeatRequest(group_id=name, member_id=queue.member_id, member_epoch=-1)
        assert node.send(leave).error_code == 0
        wait_until(lambda: queue._membership.epoch > before, "the worker to join again in a later epoch")
        (member,) = node.group(name).describe().members
        assert member.member_id == queue.member_id
        node.topics[name].append("b")
        assert text(next_job(queue)) == "b"
    assert unfinished(node, name) == 0


def test_a_lost_connection_releases_the_jobs(bootstrap: str, name: str) -> None:
    with kcore.connect(bootstrap) as node:
        queue_with(node, name, "a")
        with node.queue(name, group=name) as queue:
            job = next_job(queue)
            node._calls.transport.close_channel(queue._channel)
            with pytest.raises((errors.ShareSessionNotFoundError, errors.ConnectionClosedError)):
                job.accept()
            with pytest.raises(errors.InvalidRecordStateError, match="session of the job has ended"):
                job.accept()
            again = next_job(queue)
            assert (again.value, again.delivery_count) == (b"a", 2)
        assert unfinished(node, name) == 0


@pytest.mark.parametrize("ends", [False, True], ids=["next", "end"])
def test_a_lost_acceptance_is_logged(bootstrap: str, name: str, caplog: pytest.LogCaptureFixture, ends: bool) -> None:
    """The connection breaks before the broker has confirmed that a job is finished. The client logs this, because the
    group may deliver the job again and no call raises an error.
    """
    with kcore.connect(bootstrap) as node:
        queue_with(node, name, "a")
        with node.queue(name, group=name) as queue:
            next_job(queue)
            node._calls.transport.close_channel(queue._channel)
            if not ends:
                assert next_job(queue).delivery_count == 2
        text = f"client: no broker acknowledged 1 finished jobs of worker {queue.member_id} of share group '{name}': "
        end = "; the group may deliver these jobs again"
        (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith(text)]
        assert line.endswith(end)
        assert len(line) > len(text + end), "the line has the cause"
        assert unfinished(node, name) == int(ends)


async def test_an_acceptance_whose_request_is_cancelled_is_logged_with_the_reason(
    anode: kcore.AsyncNode, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await anode.topics.create(name)
    await anode.group(name).set_config(EARLIEST)
    await anode.topics[name].append("a")
    async with anode.queue(name, group=name) as queue:
        assert await queue.get(30.0) is not None
        accepting = asyncio.ensure_future(queue.get())
        while not any(link.lock.locked() for link in queue._links.values()):
            await asyncio.sleep(0)
        accepting.cancel()
        await asyncio.wait([accepting])
    assert [line for line in caplog.messages if "no broker acknowledged 1 finished jobs" in line] == [
        f"client: no broker acknowledged 1 finished jobs of worker {queue.member_id} of share group '{name}': "
        "CancelledError(); the group may deliver these jobs again"
    ]


async def test_a_cancelled_request_loses_no_job(anode: kcore.AsyncNode, name: str) -> None:
    await anode.topics.create(name)
    await anode.group(name).set_config(EARLIEST)
    async with anode.queue(name, group=name) as queue:
        waiting = asyncio.ensure_future(queue.get())
        while not queue._links:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await anode.topics[name].append("a")
        job = await queue.get(LIMIT_S)
        assert job is not None
        assert job.value == b"a"


@pytest.mark.parametrize(
    "wrong", [lambda node: node.queue([], group="g"), lambda node: node.queue("t", group="g", max_jobs=0)]
)
def test_a_queue_needs_a_topic_and_jobs(node: kcore.Node, wrong: Callable[[kcore.Node], Any]) -> None:
    with pytest.raises(errors.ConfigError, match=r"a queue needs a topic|max_jobs=0; valid: 1 to "):
        wrong(node)


def test_a_group_of_another_type_is_refused(node: kcore.Node, name: str) -> None:
    node.topics.create(name)
    node.group(name).commit({(name, 0): 1})
    with node.queue(name, group=name) as queue, pytest.raises(errors.GroupIdNotFoundError):
        queue.get(timeout=LIMIT_S)


@pytest.mark.parametrize(("accepts", "expected"), [(False, [5.0, 1.0]), (True, [10.0, 1.0])])
def test_the_requests_of_a_close_share_one_time_limit(
    monkeypatch: pytest.MonkeyPatch, accepts: bool, expected: list[float]
) -> None:
    """The broker is silent. Before, each request had the time limit of 10 s, so that the close took 40 s. A close
    without acceptances, which can lose nothing, took 11 s.
    """
    with kcore.open() as node:
        topic = node.topics.create("t", 1)
        node.group("g").set_config({"share.auto.offset.reset": "earliest"})
        queue = node.queue("t", group="g").__enter__()
        wait_until(
            lambda: queue.get(0) is None and any(each.session.is_open for each in queue._links.values()), "a session"
        )
        if accepts:
            topic.append("a job")
            assert queue.get(LIMIT_S) is not None
            queue._accept_held()
        at_ms = [queue_module.now_ms()]
        limits: list[float] = []
        send = node._calls.transport.send

        def silent(request: Any, *arguments: Any, timeout_s: float | None = None, **named: Any) -> Any:
            if timeout_s is None:  # a heartbeat
                return send(request, *arguments, **named)
            limits.append(timeout_s)
            at_ms[0] += round(timeout_s * 1000)
            raise TimeoutError

        monkeypatch.setattr(queue_module, "now_ms", lambda: at_ms[0])
        monkeypatch.setattr(node._calls.transport, "send", silent)
        queue.close()
        assert limits == expected
