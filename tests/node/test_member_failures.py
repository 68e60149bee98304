"""Members that fail in the background: each later operation raises the error, and the error is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

import kcore
from kcore import errors
from kcore.assignors.range import RangeAssignor
from kcore.client.consumer_coordinator.interface import Assigned, Lost
from kcore.client.consumer_coordinator.states import ClassicState, ConsumerState
from kcore.node.membership import MemberState
from kcore.protocol import EncodeError
from kcore.protocol.topic_partition import TopicPartition
from tests.kit import wait_until
from tests.node.test_members import PROTOCOLS

CLASSIC = {"protocol": "classic", "assignors": ["range"], "heartbeat_interval": 0.1, "session_timeout": 10}
UNKNOWN_ASSIGNOR = "no-such-assignor"


@pytest.fixture(params=PROTOCOLS, ids=["consumer", "eager", "cooperative"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


def fatal_member(node: kcore.Node, name: str) -> kcore.Member:
    """Returns a member that the coordinator has refused permanently."""
    node.topics.create(name, 1)
    member = node.group(name).join(name, server_assignor=UNKNOWN_ASSIGNOR)
    member.start(timeout=0)
    wait_until(lambda: member.state == "Fatal", "the refusal")
    return member


def test_every_operation_of_a_fatal_member_raises_its_error(node: kcore.Node, name: str) -> None:
    member = fatal_member(node, name)
    operations: list[Callable[[], Any]] = [
        lambda: member.commit({(name, 0): 1}),
        lambda: member.commit({(name, 0): 1}, wait=False),
        lambda: list(member.events()),
        lambda: member.poll(60.0),
        lambda: member.wait(60.0),
    ]
    for operation in [*operations, *operations]:
        with pytest.raises(errors.UnsupportedAssignorError):
            operation()
    member.close()
    with pytest.raises(errors.MemberClosedError) as raised:
        member.start()
    assert isinstance(raised.value.__cause__, errors.UnsupportedAssignorError)


def test_a_value_that_fits_in_no_request_is_raised(bootstrap: str, name: str) -> None:
    """Such a request never reaches the broker. Before, the member repeated it without end and without a log line."""

    class LongName(RangeAssignor):
        name = "x" * 40_000

    with kcore.connect(bootstrap) as node:
        node.topics.create(name, 1)
        consumer = node.group(name).consume(name, protocol="classic", assignors=[LongName()])
        with pytest.raises(EncodeError, match="name: a string has at most 32767 bytes"):
            next(iter(consumer))


async def test_every_operation_of_an_async_fatal_member_raises_its_error(anode: kcore.AsyncNode, name: str) -> None:
    await anode.topics.create(name, 1)
    member = anode.group(name).join(name, server_assignor=UNKNOWN_ASSIGNOR)
    await member.start(timeout=0)
    async with asyncio.timeout(60):
        for _ in range(2):
            with pytest.raises(errors.UnsupportedAssignorError):
                await member.wait()
            with pytest.raises(errors.UnsupportedAssignorError):
                await member.commit({(name, 0): 1})
            with pytest.raises(errors.UnsupportedAssignorError):
                await anext(member.events())
    await member.close()


def test_a_fatal_consumer_raises_its_error_at_each_poll(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    with node.group(name).consume(name, server_assignor=UNKNOWN_ASSIGNOR) as consumer:
        for _ in range(2):
            with pytest.raises(errors.UnsupportedAssignorError):
                consumer.poll(60.0)
        with pytest.raises(errors.UnsupportedAssignorError):
            next(iter(consumer))
        with pytest.raises(errors.UnsupportedAssignorError):
            consumer.commit({(name, 0): 1})


def test_a_refusal_is_logged_once(node: kcore.Node, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "kcore"):
        member = fatal_member(node, name)
        wait_until(lambda: caplog.records, "the log record")
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith(f"client: member {member.member_id} of group {name} failed: UnsupportedAssignorError: ")
    assert text.endswith("; close the member and join again")
    member.close()


def test_the_log_line_of_a_member_without_an_id_names_its_group(
    node: kcore.Node, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    member = node.group(name).join(name, protocol="classic", session_timeout=0.02, heartbeat_interval=0.01)
    with caplog.at_level(logging.ERROR, "kcore"), pytest.raises(errors.InvalidSessionTimeoutError):
        member.start()
    (record,) = caplog.records
    begin = f"client: a new member of group {name} failed: InvalidSessionTimeoutError: "
    assert record.getMessage().startswith(begin)


def test_an_error_of_a_later_event_is_logged_and_ends_a_wait(
    node: kcore.Node, name: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    node.topics.create(name, 2)
    seen: list[Assigned] = []

    def assigned(event: Assigned) -> None:
        """Raises an error at the next event after the first event with partitions.

        More events may follow, depending on the protocol and on the time at which `other` leaves.
        """
        if event.partitions or seen:
            seen.append(event)
        if len(seen) == 2:
            raise OSError("no space left")

    member = node.group(name).join(name, on_assigned=assigned, **options)
    member.start()
    wait_until(lambda: len(member.assignment) == 2, "the assignment")
    assert not member.wait(0.0)
    with caplog.at_level(logging.ERROR, "kcore"):
        with node.group(name).join(name, **options) as other:
            wait_until(lambda: len(member.assignment) == 1 and len(other.assignment) == 1, "a partition for each")
        with pytest.raises(OSError, match="no space left"):
            member.wait(60.0)
    record = caplog.records[0]
    assert (
        f"of group {name} failed: OSError: no space left; the next operation of the member raises the error"
        in record.getMessage()
    )
    assert record.exc_info is not None
    member.close()
    assert member.wait()


def test_two_static_members_with_one_instance_id_do_not_evict_each_other(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    events: list[Any] = []
    first = node.group(name).join(name, instance_id="i", on_assigned=events.append, on_revoked=events.append, **CLASSIC)
    first.start()
    with node.group(name).join(name, instance_id="i", **CLASSIC) as second:
        wait_until(lambda: first.state == "Fatal", "the eviction")
        for _ in range(2):
            with pytest.raises(errors.FencedInstanceIdError, match="uses instance_id 'i'"):
                first.commit({(name, 0): 1})
        second.commit({(name, 0): 2})
        wait_until(lambda: len(events) == 2, "the loss")
        first.close()
        assert second.state == "Stable"
    assert [type(event) for event in events] == [Assigned, Lost]


def test_a_closed_member_does_not_start_again(node: kcore.Node, name: str, options: dict[str, Any]) -> None:
    node.topics.create(name, 1)
    group = node.group(name)
    member = group.join(name, **options)
    with member:
        pass
    for start in (member.start, member.__enter__):
        with pytest.raises(errors.MemberClosedError, match=f"the member of group '{name}' is closed"):
            start()
    never = group.join(name, **options)
    with pytest.raises(errors.KcoreError, match="not started"):
        never.wait()
    never.close()
    assert never.wait()
    with pytest.raises(errors.MemberClosedError):
        never.start()
    consumer = group.consume(name, **options)
    with consumer:
        pass
    with pytest.raises(errors.MemberClosedError):
        consumer.__enter__()


def test_calls_of_a_member_that_was_not_started_raise_an_error(
    node: kcore.Node, name: str, options: dict[str, Any]
) -> None:
    """Otherwise some of these calls would never return."""
    node.topics.create(name, 1)
    member, consumer = node.group(name).join(name, **options), node.group(name).consume(name, **options)
    not_started = "the member was not started: call start(), or use the member in a `with` block"
    assert messages_of([member.poll, lambda: member.commit({(name, 0): 1}), lambda: member.wait(1.0)]) == {not_started}
    assert messages_of([lambda: consumer.commit({(name, 0): 1})]) == {not_started}
    assert messages_of([consumer.poll, consumer.commit, *position_calls(consumer, name)]) == {
        "the consumer was not started: use it in a `with` block, or loop over its records"
    }


def test_calls_of_a_consumer_that_is_closed_raise_an_error(node: kcore.Node, name: str) -> None:
    """A commit of the positions of a closed consumer would be a commit of nothing."""
    node.topics.create(name, 1)
    with node.group(name).consume(name) as consumer:
        pass
    closed = f"the member of group {name!r} is closed; call join() or consume() of the group again"
    assert messages_of([consumer.poll, consumer.commit, *position_calls(consumer, name)]) == {closed}


def position_calls(consumer: kcore.Consumer, name: str) -> list[Callable[[], Any]]:
    """Returns the calls of a consumer that concern positions in partitions."""
    return [
        consumer.positions,
        consumer.paused,
        lambda: consumer.position((name, 0)),
        lambda: consumer.seek((name, 0), 1),
        lambda: consumer.seek((name, 0), datetime(2026, 1, 1, tzinfo=UTC)),
        consumer.seek_to_beginning,
        lambda: consumer.seek_to_end((name, 0)),
        lambda: consumer.pause((name, 0)),
        lambda: consumer.resume((name, 0)),
    ]


def messages_of(calls: list[Callable[[], Any]]) -> set[str]:
    """Returns the texts of the `KcoreError` that each call raises."""
    messages = set()
    for call in calls:
        with pytest.raises(errors.KcoreError) as raised:
            call()
        messages.add(str(raised.value))
    return messages


def test_a_loop_starts_its_member_and_closes_it(node: kcore.Node, name: str, options: dict[str, Any]) -> None:
    node.topics.create(name, 1)
    node.topics[name].append("record")
    member, consumer = node.group(name).join(name, **options), node.group(name).consume(name, **options)
    events = member.events()
    first = next(events)
    events.close()  # type: ignore[attr-defined]
    records = iter(consumer)
    record = next(records)
    records.close()  # type: ignore[attr-defined]
    assert (type(first), member.state, record.value, consumer.member.state) == (Assigned, "Closed", b"record", "Closed")


def test_a_poll_of_a_closed_consumer_raises_an_error(node: kcore.Node, name: str, options: dict[str, Any]) -> None:
    node.topics.create(name, 1)
    with node.group(name).consume(name, **options) as consumer:
        consumer.poll()
    with pytest.raises(errors.MemberClosedError, match="is closed"):
        consumer.poll()


def test_poll_returns_events_until_the_member_is_closed(node: kcore.Node, name: str, options: dict[str, Any]) -> None:
    node.topics.create(name, 2)
    owned: set[TopicPartition] = set()

    def follow(member: kcore.Member, timeout: float) -> None:
        event = member.poll(timeout)
        if isinstance(event, Assigned):
            owned.update(event)
        elif event is not None:
            owned.difference_update(event)

    with node.group(name).join(name, **options) as member:
        wait_until(lambda: follow(member, 0.01) or len(owned) == 2, "both partitions")
        assert member.poll() is None
        other = node.group(name).join(name, **options)
        other.start(timeout=0)  # `other` joins only when this thread has handled the revocation
        wait_until(lambda: follow(member, 0.01) or (len(owned) == 1 and len(other.assignment) == 1), "the share")
        assert not owned & set(other.assignment)
        other.close()
        wait_until(lambda: follow(member, 0.01) or len(owned) == 2, "both partitions again")
    with pytest.raises(errors.MemberClosedError):
        member.poll()


def test_settings_of_the_other_protocol_are_refused(node: kcore.Node) -> None:
    group = node.group("g")
    for join in (group.join, group.consume):
        for argument in ({"session_timeout": 6.0}, {"heartbeat_interval": 1.0}):
            with pytest.raises(errors.ConfigError, match=r"consumer\.session\.timeout\.ms"):
                join("t", **argument)
            join("t", protocol="classic", **argument).close()


def test_the_type_of_the_state_names_every_state() -> None:
    assert set(get_args(MemberState)) == {state.value for kind in (ClassicState, ConsumerState) for state in kind}


def test_a_member_of_a_closed_node_does_not_start(name: str) -> None:
    """The start fails at once, although the look-up of the coordinator would otherwise use the whole time limit."""
    node = kcore.open()
    group = node.group(name)
    node.close()
    for member in (group.join("t"), group.consume("t")):
        with pytest.raises(errors.EngineClosedError), member:
            pass


def test_nothing_starts_while_the_node_closes_its_members(name: str) -> None:
    """While a node closes its members, another worker must not start. Otherwise the close of the node could go on
    forever.
    """
    with kcore.open() as node:
        node.topics.create("t")
        refused: list[type[BaseException]] = []

        class Reopened:
            def __init__(self) -> None:
                self.queue = node.queue("t", group=name)

            def close(self) -> None:
                with pytest.raises(errors.EngineClosedError) as caught:
                    self.queue.get(timeout=0)
                refused.append(caught.type)

        first, second = Reopened(), Reopened()
        node._calls.add_resource(first)
        node._calls.add_resource(second)
        node.close()
        assert refused == [errors.EngineClosedError] * 2
        assert node._calls.resources == {}


def test_a_worker_whose_topics_cannot_be_looked_up_any_more_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up runs concurrently with the heartbeats. Its error must end the waits of the worker."""

    def look_up(self: object) -> None:
        raise errors.EngineClosedError("the engine is closed")

    monkeypatch.setattr("kcore.node._sync.missing_topics.Subscription.look_up", look_up)
    with kcore.open() as node:
        queue = node.queue("absent", group=name)
        with pytest.raises(errors.EngineClosedError):
            queue.get(timeout=60)
        queue.close()
