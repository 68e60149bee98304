"""Warnings about topics that do not exist. Each topic is named in a first warning after two seconds, and then again in
a warning every ten minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.client.missing_topics import NEW_TOPIC_S, REPEAT_S, RETRY_S, MissingTopics, SubscriptionCheck
from kcore.errors import UnknownTopicOrPartitionError
from kcore.node._async.calls import UNKNOWN_TOPIC_S, may_repeat
from kcore.node._async.topics import AsyncTopic
from kcore.node.membership import Protocol
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from kcore.testing import VirtualNode
from tests.kit import wait_until

LOGGERS = ("kcore.node._async.missing_topics", "kcore.node._sync.missing_topics", "kcore.node._async.batch_sender")

Join = Callable[[kcore.AsyncNode, list[str]], Any]

JOINS: dict[str, tuple[str, Join]] = {
    "consumer": ("a member of group 'g'", lambda node, topics: node.group("g").join(topics)),
    "classic": ("a member of group 'g'", lambda node, topics: node.group("g").join(topics, protocol="classic")),
    "consume": ("a member of group 'g'", lambda node, topics: node.group("g").consume(topics)),
    "queue": ("a worker of share group 'g'", lambda node, topics: node.queue(topics, group="g")),
}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the warnings so far."""
    return [record.message for record in caplog.records if record.name in LOGGERS and record.levelname == "WARNING"]


def unknown(subscriber: str, topics: str, pronoun: str) -> str:
    return (
        f"client: {subscriber} subscribes to {topics}, which the brokers do not know; "
        f"check the spelling, or create {pronoun}"
    )


@pytest.mark.kcore(topics=["orders"])
@pytest.mark.parametrize("kind", JOINS)
def test_a_subscription_warns_of_a_misspelled_topic(
    kcore_node: VirtualNode, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """A subscription names a misspelled topic, and the client warns. Once a topic of this name is created, the warnings
    end, and the member gets the topic's partitions.
    """
    subscriber, join = JOINS[kind]

    async def scenario(node: kcore.AsyncNode) -> list[int]:
        counts = []
        async with join(node, ["oders", "orders"]):
            for seconds in (60, 2_000):
                await asyncio.sleep(seconds)
                counts.append(len(warnings(caplog)))
            await node.topics.create("oders", 1)
            await asyncio.sleep(2_000)
            counts.append(len(warnings(caplog)))
        return counts

    assert kcore_node.run(scenario) == [1, 1 + 2_000 // REPEAT_S, 1 + 2_000 // REPEAT_S]
    assert set(warnings(caplog)) == {unknown(subscriber, "'oders'", "it")}


def test_topics_are_named_together_and_new_ones_are_left_out(
    kcore_node: VirtualNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: kcore.AsyncNode) -> None:
        async with node.group("g").join(["b", "new", "a"]):
            await asyncio.sleep(NEW_TOPIC_S / 2)
            await node.topics.create("new", 1)
            await asyncio.sleep(60)
        async with node.group("p").join(pattern="nothing.*"):
            await asyncio.sleep(60)

    kcore_node.run(scenario)
    assert warnings(caplog) == [unknown("a member of group 'g'", "'a', 'b'", "them")]


@pytest.mark.kcore(topics=["jobs"])
def test_a_producer_warns_of_a_topic_that_was_deleted(
    kcore_node: VirtualNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: kcore.AsyncNode) -> None:
        producer = node.producer(timeout=1_500.0)
        await (await producer.append("jobs", "stored")).result()
        await node.topics["jobs"].delete()
        deliveries = [await producer.append("jobs", "waiting", partition=0) for _ in range(3)]
        await asyncio.sleep(1)
        assert warnings(caplog) == []
        await asyncio.sleep(599)
        assert len(warnings(caplog)) == 1
        for delivery in deliveries:
            with pytest.raises(TimeoutError):
                await delivery.result()
        await producer.close()

    kcore_node.run(scenario)
    text = (
        "client: a producer has records of topic 'jobs', which the brokers do not know; "
        "the records fail 1500 s after their append unless the topic is created"
    )
    assert set(warnings(caplog)) == {text}
    assert len(warnings(caplog)) <= 1 + 1_500 / REPEAT_S


def test_a_produce_to_a_misspelled_topic_fails_at_once(
    kcore_node: VirtualNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: kcore.AsyncNode) -> float:
        producer = node.producer()
        with pytest.raises(UnknownTopicOrPartitionError, match="'oders'"):
            await producer.append("oders", "v")
        await producer.close()
        return kcore_node.now

    assert kcore_node.run(scenario) == 0


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_members_on_threads_warn_once(
    node: kcore.Node, name: str, caplog: pytest.LogCaptureFixture, protocol: Protocol
) -> None:
    with node.group(name).join([f"no-{name}"], protocol=protocol):
        wait_until(lambda: warnings(caplog), "the warning", 60)
    assert warnings(caplog) == [unknown(f"a member of group '{name}'", f"'no-{name}'", "it")]


def response(**codes: int) -> MetadataResponse:
    """Returns a response with the error code of each topic."""
    return MetadataResponse(topics=[MetadataResponseTopic(name=name, error_code=code) for name, code in codes.items()])


def test_a_subscription_repeats_lookups_of_missing_topics_only() -> None:
    missing, other = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    check = SubscriptionCheck(["c", "b", "a", "a"], 5.0)
    assert (check.topics, check.due_s) == (["a", "b", "c"], 5.0)
    check.begin()
    assert check.due_s is None
    check.failed(6.0)
    assert check.due_s == 6.0 + RETRY_S
    assert check.received(response(a=missing, b=other, c=0), 20.0) == []
    assert (check.topics, check.due_s) == (["a"], 20.0 + NEW_TOPIC_S), "the others are not looked up again"
    check.begin()
    assert check.received(response(a=ErrorCode.INVALID_TOPIC_EXCEPTION), 22.0) == ["a"]
    assert check.due_s == 22.0 + REPEAT_S
    check.begin()
    assert check.received(response(a=missing), 622.0) == ["a"]
    check.begin()
    assert check.received(response(a=0), 1_222.0) == []
    assert (check.topics, check.due_s) == ([], None)
    assert SubscriptionCheck([], 1.0).due_s is None


def test_the_times_of_a_topic_that_exists_again_begin_again() -> None:
    topics = MissingTopics()
    times = [(0.0, False), (1.9, False), (2.0, True), (2.1, False), (601.9, False), (602.0, True)]
    assert [(at_s, topics.missing("t", at_s)) for at_s, _ in times] == times
    topics.found("t")
    assert [topics.missing("t", at_s) for at_s in (603.0, 604.9, 605.0)] == [False, False, True]
    assert not topics.missing("other", 605.0)


def test_the_documents_name_the_time_for_which_an_append_to_a_missing_partition_waits() -> None:
    error = UnknownTopicOrPartitionError()
    assert may_repeat(error, UNKNOWN_TOPIC_S - 0.01, local=False)
    assert not may_repeat(error, UNKNOWN_TOPIC_S, local=False)
    assert not may_repeat(error, 0, local=True)
    repeats = f"A connection to a cluster first repeats the request for {UNKNOWN_TOPIC_S:g} seconds,"
    texts = [(Path(__file__).parents[2] / "docs" / "python-api.md").read_text(), str(AsyncTopic.append.__doc__)]
    assert [text for text in texts if repeats not in " ".join(text.split())] == []
