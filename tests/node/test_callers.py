"""Refused calls: concurrent calls of one operation, and calls that would wait for their own caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kcore
from kcore.errors import ConcurrentCallError, KcoreError, MemberClosedError, ReentrantCallError
from kcore.node.interceptors import ConsumerInterceptor
from tests.kit import wait_until

LIMIT_S = 60.0


class Thread(threading.Thread):
    """A thread that stores the result or the error of a function."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self.result: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._function()
        except KcoreError as error:
            self.result = error

    def end(self) -> Any:
        self.join(LIMIT_S)
        assert not self.is_alive()
        return self.result


def test_a_node_on_an_event_loop_refuses_calls_of_other_loops() -> None:
    """A call from another event loop is refused, because two threads that run the engine at the same time would corrupt
    it. Another thread may schedule a call on the node's own loop.
    """

    async def scenario() -> tuple[Any, Any, list[str]]:
        async with kcore.open_async() as node:
            foreign = await asyncio.to_thread(lambda: Thread(lambda: asyncio.run(node.topics.create("u"))).end())
            loop = asyncio.get_running_loop()
            passed = await asyncio.to_thread(
                lambda: asyncio.run_coroutine_threadsafe(node.topics.create("t"), loop).result(LIMIT_S)
            )
            return foreign, passed, [topic.name for topic in await node.topics.list()]

    foreign, passed, names = asyncio.run(scenario())
    assert isinstance(foreign, ConcurrentCallError)
    assert "belongs to another event loop" in str(foreign)
    assert passed is not None
    assert names == ["t"]


def test_a_node_on_an_event_loop_is_not_closed_from_another_loop() -> None:
    """The node stays open with its consumers. After the end of its loop, another loop may close the node."""

    async def scenario() -> tuple[kcore.AsyncNode, Any, int]:
        node = await kcore.open_async()
        topic = await node.topics.create("t", 1)
        await topic.append("a")
        async with node.group("g").consume("t", auto_commit=None) as consumer:
            foreign = await asyncio.to_thread(lambda: Thread(lambda: asyncio.run(node.close())).end())
            return node, foreign, len(await consumer.poll(LIMIT_S))

    node, foreign, records = asyncio.run(scenario())
    assert isinstance(foreign, ConcurrentCallError)
    assert records == 1
    asyncio.run(node.close())


def test_a_second_poll_of_a_consumer_is_refused(node: kcore.Node, name: str) -> None:
    """The second poll would count the records of the first poll as processed, and commit them."""
    node.topics.create(name, 1)
    with node.group(name).consume(name, reset="earliest") as consumer:
        first = Thread(lambda: consumer.poll(LIMIT_S))
        wait_until(lambda: consumer._polling._caller is not None, "the first poll waits")
        with pytest.raises(ConcurrentCallError, match=f"consumer of group '{name}' is polled in another"):
            consumer.poll()
        with pytest.raises(ConcurrentCallError):
            next(iter(consumer))
        node.topics[name].append("a")
        assert [record.value for record in first.end()] == [b"a"]
        assert consumer.poll() == []


def test_a_waiting_poll_ends_when_another_thread_closes_the_consumer(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    with node.group(name).consume(name) as consumer:
        first = Thread(lambda: consumer.poll(LIMIT_S))
        wait_until(lambda: consumer._polling._caller is not None, "the poll waits")
        consumer.commit()
        consumer.close()
        assert isinstance(first.end(), MemberClosedError)


async def test_a_second_poll_of_a_consumer_on_a_loop_is_refused(anode: kcore.AsyncNode, name: str) -> None:
    await anode.topics.create(name, 1)
    async with anode.group(name).consume(name, reset="earliest") as consumer:
        first = asyncio.ensure_future(consumer.poll(LIMIT_S))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentCallError):
            await consumer.poll()
        await anode.topics[name].append("a")
        assert [record.value for record in await first] == [b"a"]
        cancelled = asyncio.ensure_future(consumer.poll(LIMIT_S))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert await consumer.poll() == []
        last = asyncio.ensure_future(consumer.poll(LIMIT_S))
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(MemberClosedError):
            await last


def test_a_second_wait_for_the_events_of_a_member_is_refused(node: kcore.Node, name: str) -> None:
    """The second call would count the event that the first call has returned as processed."""
    node.topics.create(name, 1)
    with node.group(name).join(name) as member:
        assert member.poll(LIMIT_S) is not None
        first = Thread(lambda: member.poll(LIMIT_S))
        wait_until(lambda: member._awaiting._caller is not None, "the first call waits")
        with pytest.raises(ConcurrentCallError, match="waits for events in another"):
            member.poll()
        with pytest.raises(ConcurrentCallError):
            next(iter(member.events()))
        member.close()
        assert isinstance(first.end(), kcore.Revoked | MemberClosedError)


def error_of(function: Callable[[], Any]) -> Exception | None:
    """Returns the error that a function raises."""
    try:
        function()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("kind", ["member", "consumer"])
def test_a_listener_cannot_close_its_own_member(node: kcore.Node, name: str, kind: str) -> None:
    """The close would wait for the listener, and the listener for the close. A listener may close other members."""
    node.topics.create(name, 1)
    errors: list[Exception | None] = []
    other = node.group(f"{name}-other").join(name)

    def listen(_: object) -> None:
        errors.extend(error_of(close) for close in (user.close, lambda: user.__exit__(None, None, None), node.close))
        errors.append(error_of(other.close))

    group = node.group(name)
    user: Any = group.join(name, on_assigned=listen) if kind == "member" else group.consume(name, on_assigned=listen)
    with other, user:
        wait_until(lambda: (kind == "consumer" and user.poll(0.1)) or len(errors) == 4, "the listener has returned")
    assert [type(error) for error in errors] == 3 * [ReentrantCallError] + [type(None)]
    assert f"cannot close its member of group '{name}'" in str(errors[0])
    assert "cannot close the node" in str(errors[2])


def test_a_listener_may_close_a_member_that_other_code_closes(node: kcore.Node, name: str) -> None:
    """The close by the listener neither waits nor fails, because the other close ends the member."""
    node.topics.create(name, 1)
    errors: list[Exception | None] = []
    user = node.group(name).join(name, on_revoked=lambda _: errors.append(error_of(user.close)))
    with user:
        wait_until(lambda: user.assignment != (), "the assignment")
    assert errors == [None]


def test_a_callback_of_a_commit_cannot_close_its_member(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    errors: list[Exception | None] = []
    with node.group(name).join(name) as member:
        wait_until(lambda: member.assignment != (), "the assignment")
        member.commit({(name, 0): 0}, on_done=lambda _: errors.append(error_of(member.close)))
    assert [type(error) for error in errors] == [ReentrantCallError]


def test_an_interceptor_cannot_close_its_consumer_in_on_commit(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    node.topics[name].append("a")
    errors: list[Exception | None] = []

    class Closing(ConsumerInterceptor):
        def on_commit(self, offsets: object) -> None:
            errors.append(error_of(consumer.close))

    with node.group(name).consume(name, interceptors=[Closing()], auto_commit=None) as consumer:
        wait_until(lambda: consumer.poll(1), "the record")
        consumer.commit()
    assert [type(error) for error in errors] == [ReentrantCallError]


async def test_a_listener_on_a_loop_cannot_close_its_own_member(anode: kcore.AsyncNode, name: str) -> None:
    """A task that the listener starts may close the member."""
    await anode.topics.create(name, 1)
    errors: list[Exception] = []
    tasks: list[asyncio.Task[None]] = []

    async def listen(_: object) -> None:
        for close in (consumer.close, anode.close):
            with pytest.raises(ReentrantCallError) as refused:
                await close()
            errors.append(refused.value)
        tasks.append(asyncio.create_task(consumer.close()))

    async with anode.group(name).consume(name, on_assigned=listen) as consumer:

        async def poll_until_closed() -> None:
            while True:
                await consumer.poll(0.1)

        with pytest.raises(MemberClosedError):
            await poll_until_closed()
        await asyncio.wait_for(tasks[0], LIMIT_S)
    assert len(errors) == 2
