"""The steps of a member's state machine on an event loop: when they run, and that all waits end after a step fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kcore
from kcore.errors import MemberClosedError
from kcore.node._async import backend
from kcore.node._async.backend import Stepper
from kcore.node._sync import backend as threads
from kcore.node.types import OffsetAndMetadata
from kcore.protocol.messages.heartbeat import HeartbeatResponse

ADVICE = "close the client object that ran it, and create another one; please report the error"


class Steps:
    """A state machine whose steps return the results that the test sets."""

    def __init__(self, *results: float | BaseException | None) -> None:
        self.results = list(results)
        self.made = 0
        self.ends = 0
        self.stepper = Stepper(self.step, self.end)

    def step(self) -> float | None:
        self.made += 1
        result = self.results.pop(0) if self.results else None
        if isinstance(result, BaseException):
            raise result
        return result

    def end(self) -> None:
        self.ends += 1


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_several_inputs_of_one_turn_make_one_step() -> None:
    steps = Steps()
    steps.stepper.start()
    steps.stepper.wake()
    await turn()
    assert steps.made == 1
    steps.stepper.wake()
    await turn()
    assert (steps.made, steps.ends) == (2, 0)


async def test_a_later_step_keeps_the_timer_and_an_earlier_one_replaces_it() -> None:
    steps = Steps(60.0, 90.0, 30.0, None)
    steps.stepper.run()
    first = steps.stepper._timer
    steps.stepper.run()
    assert steps.stepper._timer is first
    steps.stepper.run()
    second = steps.stepper._timer
    assert first is not None
    assert first.cancelled()
    assert second is not None
    assert second.when() < first.when()
    steps.stepper.run()
    assert second.cancelled()
    assert steps.stepper._timer is None


async def test_a_due_timer_makes_a_step() -> None:
    steps = Steps(0.001, None)
    steps.stepper.run()
    while steps.made < 2:
        await asyncio.sleep(0.001)
    assert steps.stepper._timer is None


@pytest.mark.parametrize("last", [Stepper.END, MemoryError("injected")], ids=["last", "failed"])
async def test_no_step_follows_the_last_step_or_a_failed_one(last: Any, caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(60.0, last)
    steps.stepper.run()
    steps.stepper.run()
    steps.stepper.run()
    steps.stepper.wake()
    await turn()
    assert (steps.made, steps.ends) == (2, 1)
    assert steps.stepper._timer is None
    messages = [record.message for record in caplog.records]
    assert messages == (
        [f"client: the background task Steps.step failed and has ended; {ADVICE}"]
        if isinstance(last, MemoryError)
        else []
    )


async def test_an_interrupted_step_ends_the_waits_before_it_is_raised() -> None:
    steps = Steps(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        steps.stepper.run()
    assert steps.ends == 1


# ---- members


@asynccontextmanager
async def joined(bootstrap: str, name: str, **options: Any) -> AsyncIterator[kcore.AsyncMember]:
    async with kcore.connect_async(bootstrap) as node:
        await node.topics.create(name, 1)
        async with node.group(name).join([name], **options) as member:
            yield member


class Created:
    """A counter of the tasks that the running loop creates."""

    def __init__(self) -> None:
        self.count = 0
        asyncio.get_running_loop().set_task_factory(self._make)

    def _make(self, loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        self.count += 1
        return asyncio.Task(coroutine, loop=loop, **options)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_commits_and_heartbeats_need_no_tasks(bootstrap: str, name: str, protocol: str) -> None:
    interval = {"heartbeat_interval": 0.02} if protocol == "classic" else {}
    async with joined(bootstrap, name, protocol=protocol, **interval) as member:
        await member.commit({(name, 0): 1})
        beats = 0
        machine = member._machine
        receive = machine.received

        def received(outgoing: Any, response: Any, now_ms: int) -> bool:
            nonlocal beats
            beats += "Heartbeat" in type(outgoing.request).__name__
            return receive(outgoing, response, now_ms)

        machine.received = received  # type: ignore[method-assign]
        created = Created()
        for offset in range(2, 12):
            await member.commit({(name, 0): offset})
        while beats < 3:
            await asyncio.sleep(0.01)
        assert created.count == 0
        asyncio.get_running_loop().set_task_factory(None)


async def test_a_cancelled_commit_is_decided_before_the_next_one(bootstrap: str, name: str) -> None:
    async with joined(bootstrap, name) as member:
        outcomes: list[Exception | None] = []
        first = asyncio.ensure_future(member.commit({(name, 0): 1}, on_done=outcomes.append))
        await turn()
        first.cancel()
        await member.commit({(name, 0): 2}, on_done=outcomes.append)
        assert outcomes == [None, None]
        assert first.cancelled()


async def test_a_callback_that_fails_is_logged_and_later_commits_succeed(
    bootstrap: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: Exception | None) -> None:
        raise ValueError("injected")

    async with joined(bootstrap, name) as member:
        with caplog.at_level(logging.ERROR):
            await member.commit({(name, 0): 1}, on_done=fail)
            await member.commit({(name, 0): 2})
        assert [record.message for record in caplog.records] == [
            f"client: the callback {fail.__qualname__} of an offset commit raised an error; the member continues; "
            "correct the callback"
        ]


@pytest.mark.parametrize("method", ["advance", "take_requests", "wake_ms"])
async def test_a_failed_step_ends_the_member_and_every_wait(
    bootstrap: str, name: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(bootstrap, name) as member:
        machine = member._machine

        def fail(*_: Any) -> Any:
            raise MemoryError("injected")

        machine._broker = None  # makes the commit wait for a step
        setattr(machine, method, fail)
        with pytest.raises(MemberClosedError):
            await member.commit({(name, 0): OffsetAndMetadata(1)})
        assert await member.wait(60.0) is True
    assert [record.message for record in caplog.records] == [
        f"client: the background task AsyncMember._step of a member of group {name!r} failed and has ended; {ADVICE}"
    ]


ERRORS = pytest.mark.parametrize("error", [MemoryError("injected"), KeyboardInterrupt()], ids=["memory", "interrupt"])


@ERRORS
@pytest.mark.parametrize("method", ["_send_commit", "_send"])
async def test_an_exception_in_the_decision_of_a_commit_ends_the_member_and_every_wait(
    bootstrap: str, name: str, method: str, error: BaseException
) -> None:
    async with joined(bootstrap, name) as member:

        def fail(*_: Any, **__: Any) -> Any:
            raise error

        machine: Any = member._machine
        setattr(machine, method, fail)
        with pytest.raises(type(error)):
            member.commit({(name, 0): 1}).send(None)
        delattr(machine, method)
        assert await member.wait(60.0) is True
        with pytest.raises(MemberClosedError):
            await member.commit({(name, 0): 2})


@ERRORS
@pytest.mark.parametrize("sent", [False, True], ids=["before it is sent", "after it was sent"])
async def test_a_member_whose_commit_was_interrupted_stays_and_leaves_its_group(
    bootstrap: str, name: str, sent: bool, error: BaseException
) -> None:
    """An exception interrupts the sending of a commit, so this commit fails. If the broker still responds to it, this
    response does not complete the next commit.
    """
    ends: list[Exception | None] = []
    async with joined(bootstrap, name) as member:
        transport: Any = member._calls.transport
        start = transport.start

        def fail(*args: Any, **options: Any) -> None:
            if sent:
                start(*args, **options)
            raise error

        transport.start = fail
        with pytest.raises(type(error)):
            member.commit({(name, 0): 1}, on_done=ends.append).send(None)
        del transport.start
        await member.commit({(name, 0): 2})
        assert [str(end) for end in ends] == ["an exception interrupted the sending of the commit"]
    async with kcore.connect_async(bootstrap) as node:
        group = await node.group(name).describe()
        assert (group.state, group.members) == ("Empty", ())
        committed = await node.group(name).committed([(name, 0)])
        assert {partition: row.offset for partition, row in committed.items()} == {(name, 0): 2}


async def test_a_commit_whose_response_cannot_be_handled_fails_and_the_next_one_succeeds(
    bootstrap: str, name: str
) -> None:
    async with joined(bootstrap, name) as member:
        machine: Any = member._machine

        def fail(*_: Any) -> Any:
            raise MemoryError("injected")

        machine._committed = fail
        with pytest.raises(MemoryError, match="injected"):
            await member.commit({(name, 0): 1})
        del machine._committed
        await member.commit({(name, 0): 2})


async def test_a_heartbeat_without_an_error_needs_no_further_step(bootstrap: str, name: str) -> None:
    async with joined(bootstrap, name, protocol="classic", heartbeat_interval=0.05, assignors=["range"]) as member:
        machine: Any = member._machine
        handled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        receive = machine.received

        def received(outgoing: Any, response: Any, now_ms: int) -> bool:
            changed = bool(receive(outgoing, response, now_ms))
            if isinstance(response, HeartbeatResponse) and not handled.done():
                handled.set_result(changed)
            return changed

        machine.received = received
        assert await handled is False
        assert machine._heartbeat_received(machine.generation, HeartbeatResponse(error_code=27), 0) is False
        assert machine._rejoin
        machine._rejoin = False


class Worker:
    """An object with a background task that fails."""

    _described = "a worker of queue 'q'"

    async def work(self) -> None:
        raise MemoryError("injected")

    def work_on_thread(self) -> None:
        raise MemoryError("injected")


async def test_the_log_line_of_a_failed_task_names_its_owner(caplog: pytest.LogCaptureFixture) -> None:
    await backend.spawn(backend.SingleTask(Worker().work)).join()
    threads.spawn(threads.SingleTask(Worker().work_on_thread)).join()
    owner = "of a worker of queue 'q'"
    assert [record.message for record in caplog.records] == [
        f"client: the background task Worker.work {owner} failed and has ended; {ADVICE}",
        f"client: the background task Worker.work_on_thread {owner} failed, and its thread has ended; {ADVICE}",
    ]
