"""Consumers whose partitions, members or listeners fail: the other partitions are still read, and every wait ends."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

import kcore
from kcore.client.fetching import FetchSession
from kcore.errors import ClusterAuthorizationFailedError, KcoreError, MemberClosedError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.metadata import MetadataResponseBroker
from tests.kit import wait_until
from tests.recording_proxy import RecordingProxy

LIMIT_S = 60.0


@contextmanager
def node_behind_proxy(bootstrap: str, name: str, change: Any, timeout: float = 30.0) -> Iterator[kcore.Node]:
    """Creates a topic of two partitions with a record in each. Yields a node behind a proxy, which passes each response
    to `change`.
    """
    with kcore.connect(bootstrap) as node:
        node.topics.create(name, 2)
        for partition in range(2):
            node.topics[name].append(str(partition), partition=partition)
    with (
        RecordingProxy(bootstrap, on_response=change) as proxy,
        kcore.connect(proxy.bootstrap, timeout=timeout) as node,
    ):
        yield node


def values_of(consumer: Any, *wanted: bytes) -> list[bytes]:
    """Polls until all values have arrived. Ignores the errors of polls."""
    values: list[bytes] = []
    until_s = time.monotonic() + LIMIT_S
    while not set(wanted) <= set(values):
        assert time.monotonic() < until_s, values
        values += [record.value for record in consumer.poll(1)]
    return values


class WithoutLeader:
    """Hides the leader of partition 0 until `elected` is set."""

    def __init__(self) -> None:
        self.elected = False

    def __call__(self, api: ApiKey, response: Any) -> None:
        if api is ApiKey.METADATA and not self.elected:
            for topic in response.topics:
                for row in topic.partitions:
                    if row.partition_index == 0:
                        row.leader_id, row.error_code = -1, ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "reset"])
def test_a_partition_without_a_leader_does_not_delay_the_others(bootstrap: str, name: str, committed: bool) -> None:
    """Neither fetches of the other partitions nor look-ups of their positions wait."""
    leaders = WithoutLeader()
    with node_behind_proxy(bootstrap, name, leaders) as node:
        if committed:
            node.group(name).commit({(name, 0): 0, (name, 1): 0})
        with node.group(name).consume(name, reset="earliest") as consumer:
            assert values_of(consumer, b"1") == [b"1"]
            leaders.elected = True
            assert values_of(consumer, b"0") == [b"0"]


def test_a_lookup_that_a_broker_refuses_does_not_delay_the_other_partitions(bootstrap: str, name: str) -> None:
    refused = True

    def change(api: ApiKey, response: Any) -> None:
        if api is ApiKey.LIST_OFFSETS and refused:
            for topic in response.topics:
                for row in topic.partitions:
                    if row.partition_index == 0:
                        row.error_code, row.offset = ErrorCode.OFFSET_NOT_AVAILABLE, -1

    with (
        node_behind_proxy(bootstrap, name, change) as node,
        node.group(name).consume(name, reset="earliest") as consumer,
    ):
        assert values_of(consumer, b"1") == [b"1"]
        refused = False
        assert values_of(consumer, b"0") == [b"0"]


class SilentLeader:
    """Names a silent broker as the leader of partition 0: the broker accepts connections, but does not respond."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listener.getsockname()[1]

    def close(self) -> None:
        self._listener.close()

    def __call__(self, api: ApiKey, response: Any) -> None:
        if api is ApiKey.METADATA:
            absent = MetadataResponseBroker(node_id=99, host="127.0.0.1", port=self._port)
            response.brokers = [*response.brokers, absent]
            for topic in response.topics:
                for row in topic.partitions:
                    if row.partition_index == 0:
                        row.leader_id = 99


def test_a_broker_that_does_not_respond_does_not_delay_lookups_at_the_others(bootstrap: str, name: str) -> None:
    """One of two brokers does not respond to a look-up of offsets. Meanwhile the consumer looks up offsets at the other
    broker, also for partitions that it gets later.
    """
    with (
        closing(SilentLeader()) as silent,
        node_behind_proxy(bootstrap, name, silent, timeout=10 * LIMIT_S) as node,
        node.group(name).consume(name, reset="earliest") as consumer,
    ):
        assert values_of(consumer, b"1") == [b"1"]
        with consumer._guard:
            partition = next(each for each in consumer.assignment if each.partition == 1)
            consumer._positions.remove([partition])
            consumer._positions.assign([partition])
        consumer._fetcher.wake()
        assert values_of(consumer, b"1") == [b"1"]


def test_pending_offsets_of_new_partitions_do_not_delay_the_others(bootstrap: str, name: str) -> None:
    """The committed offset of one partition waits for a transaction. Meanwhile another partition is read."""
    pending = False

    def change(api: ApiKey, response: Any) -> None:
        if api is ApiKey.OFFSET_FETCH and pending:
            for group in response.groups:
                for topic in group.topics:
                    for row in topic.partitions:
                        row.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT

    with (
        node_behind_proxy(bootstrap, name, change) as node,
        node.group(name).consume(name, reset="earliest") as consumer,
    ):
        values_of(consumer, b"0", b"1")
        pending = True
        with consumer._guard:
            partition = next(each for each in consumer.assignment if each.partition == 0)
            consumer._positions.remove([partition])
            consumer._positions.assign([partition])
        node.topics[name].append("more", partition=1)
        assert values_of(consumer, b"more") == [b"more"]
        pending = False
        assert b"0" in values_of(consumer, b"0")


def test_committed_offsets_that_a_response_leaves_out_are_not_replaced_by_the_reset_policy(
    bootstrap: str, name: str
) -> None:
    def change(api: ApiKey, response: Any) -> None:
        if api is ApiKey.OFFSET_FETCH:
            for group in response.groups:
                group.topics = []

    with (
        node_behind_proxy(bootstrap, name, change) as node,
        node.group(name).consume(name, reset="earliest") as consumer,
    ):
        with pytest.raises(kcore.KafkaError, match="sent an invalid response to OffsetFetch"):
            values_of(consumer, b"0")
        assert consumer.position((name, 0)) is None


def test_a_worker_gets_jobs_although_another_partition_has_no_leader(bootstrap: str, name: str) -> None:
    leaders = WithoutLeader()
    with node_behind_proxy(bootstrap, name, leaders) as node:
        node.group(name).set_config({"share.auto.offset.reset": "earliest"})
        with node.queue(name, group=name) as queue:
            job = queue.get(LIMIT_S)
            assert job is not None
            assert job.value == b"1"
            leaders.elected = True
            job = queue.get(LIMIT_S)
            assert job is not None
            assert job.value == b"0"


@pytest.mark.parametrize("method", ["advance", "received"])
async def test_a_consumer_whose_member_fails_raises_an_error_instead_of_waiting(
    bootstrap: str, name: str, method: str
) -> None:
    async with kcore.connect_async(bootstrap) as node:
        await node.topics.create(name, 1)
        consumer = node.group(name).consume(name)
        async with consumer:
            await consumer.poll(0.0)
            machine: Any = consumer.member._machine

            def fail(*_: Any) -> Any:
                raise MemoryError("injected")

            setattr(machine, method, fail)
            consumer.member._stepper.wake()
            async with asyncio.timeout(LIMIT_S):
                with pytest.raises((MemoryError, MemberClosedError)):
                    await consumer.poll(2 * LIMIT_S)
                with pytest.raises(MemberClosedError):
                    await anext(aiter(consumer))


async def test_a_member_whose_join_cannot_be_handled_does_not_start(bootstrap: str, name: str) -> None:
    async with kcore.connect_async(bootstrap) as node:
        await node.topics.create(name, 1)
        member = node.group(name).join(name)

        def fail(*_: Any) -> Any:
            raise MemoryError("injected")

        member._machine._heartbeat_received = fail  # type: ignore[attr-defined]
        with pytest.raises(MemoryError, match="injected"):
            await member.start(LIMIT_S)


async def test_a_listener_that_awaits_a_cancelled_task_has_failed(bootstrap: str, name: str) -> None:
    async with kcore.connect_async(bootstrap) as node:
        await node.topics.create(name, 1)
        worker = asyncio.ensure_future(asyncio.sleep(LIMIT_S * 10))

        async def revoked(_: Any) -> None:
            worker.cancel()
            await worker

        member = node.group(name).join(name, on_revoked=revoked)
        await member.start(LIMIT_S)
        async with asyncio.timeout(LIMIT_S):
            while not member.assignment:  # the first one may be empty, before the group decides
                await asyncio.sleep(0.01)
        async with asyncio.timeout(20):  # a close that waits for the listener takes 35 s
            with pytest.raises(KcoreError, match="ended with CancelledError"):
                async with member:
                    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_listener_that_ends_its_thread_has_failed(bootstrap: str, name: str) -> None:
    with kcore.connect(bootstrap) as node:
        node.topics.create(name, 1)

        def assigned(_: Any) -> None:
            raise SystemExit(1)

        member = node.group(name).join(name, on_assigned=assigned)
        with pytest.raises(KcoreError, match="ended with SystemExit"):
            member.start(LIMIT_S)


def test_a_fetch_that_cannot_be_built_is_repeated(bootstrap: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = FetchSession.request
    failures = [MemoryError("injected")]

    def request(self: FetchSession, *arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return build(self, *arguments, **options)

    monkeypatch.setattr(FetchSession, "request", request)
    with kcore.connect(bootstrap) as node:
        node.topics.create(name, 1)
        node.topics[name].append("x")
        with node.group(name).consume(name, reset="earliest") as consumer:
            with pytest.raises(MemoryError):
                values_of(consumer, b"x")
            assert values_of(consumer, b"x") == [b"x"]


async def test_a_cancelled_close_ends_the_tasks_of_a_consumer(bootstrap: str, name: str) -> None:
    async with kcore.connect_async(bootstrap) as node:
        await node.topics.create(name, 1)
        consumer = node.group(name).consume(name)
        await consumer.__aenter__()
        closing = asyncio.ensure_future(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert consumer._closed, "the loop of fetches ends"
        async with asyncio.timeout(LIMIT_S):
            await consumer.close()


def test_a_new_worker_does_not_wait_for_its_next_heartbeat(name: str) -> None:
    """A worker joins shortly after another one has left, so the coordinator postpones the assignment. The worker gets
    its partitions after the assignment interval, and not only at its next heartbeat, which follows after 15 s.
    """
    settings = {"group.consumer.assignment.interval.ms": "200", "group.consumer.heartbeat.interval.ms": "15000"}
    with kcore.open(config=settings) as node:
        node.topics.create(name, 1)
        with node.group(name).join(name) as first:
            assert first.assignment
        with node.group(name).join(name) as second:
            wait_until(lambda: second.assignment, "the assignment", 10.0)


class RefusedFetch:
    """Replaces the first response to a Fetch by an error of the whole response."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code
        self.replaced = False

    def __call__(self, api: ApiKey, response: Any) -> None:
        if api is ApiKey.FETCH and not self.replaced:
            self.replaced = True
            response.error_code, response.session_id, response.responses = self._code, 0, []


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_temporary_error_of_a_whole_fetch_is_not_raised(bootstrap: str, name: str, code: ErrorCode) -> None:
    """A node of a cluster whose lease has ended refuses a whole Fetch. Before, the poll raised the error."""
    refusal = RefusedFetch(code)
    with (
        node_behind_proxy(bootstrap, name, refusal) as node,
        node.group(name).consume(name, auto_commit=None) as consumer,
    ):
        assert sorted(values_of(consumer, b"0", b"1")) == [b"0", b"1"]
    assert refusal.replaced


def test_a_permanent_error_of_a_whole_fetch_is_raised(bootstrap: str, name: str) -> None:
    refusal = RefusedFetch(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with (
        node_behind_proxy(bootstrap, name, refusal) as node,
        node.group(name).consume(name, auto_commit=None) as consumer,
    ):
        with pytest.raises(ClusterAuthorizationFailedError):
            values_of(consumer, b"0", b"1")
        assert sorted(values_of(consumer, b"0", b"1")) == [b"0", b"1"]
