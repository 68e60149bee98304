"""A forked child of a program with members, consumers and producers. Their threads exist in the parent only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import kcore
from kcore.node._sync.node import Node
from tests.drivers.test_forks import HANG_S, in_child
from tests.kit import QUICK

# the long linger: no batch is sent before the fork
pytestmark = pytest.mark.filterwarnings("ignore::kcore.errors.ImplausibleTimeWarning")

SERVED = "served"
CLOSED = "closed"


@pytest.fixture(params=["alone", "listens", "connected"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """Opens an embedded node, with or without a listener, or connects to its listener."""
    with ExitStack() as opened:
        node: Node = opened.enter_context(kcore.open(config=QUICK))
        node.topics.create("t")
        node.topics["t"].append("a record")
        if request.param != "alone":
            listening = node.listen()
        if request.param == "connected":
            node = opened.enter_context(kcore.connect(listening.bootstrap))
        yield node


def outcome(call: Callable[[], object]) -> str:
    """Returns the error of a call, or SERVED if there is none."""
    try:
        call()
    except kcore.errors.KcoreError as error:
        return str(error).partition(" of process ")[0]
    return SERVED


def test_a_child_refuses_every_call_and_closes_everything_at_once(node: Node) -> None:
    """The parent continues. The child must not wait for a thread of the parent, because this would never end."""
    member = node.group("m").join(["t"])
    member.start(timeout=HANG_S)
    consumer = node.group("c").consume(["t"]).__enter__()
    assert len(consumer.poll(HANG_S)) == 1
    queue = node.queue("t", group="q").__enter__()
    queue.get(0)
    producer = node.producer(linger=HANG_S)
    delivery = producer.append("t", "another record")

    def report() -> list[str]:
        calls: list[Callable[[], object]] = [
            node.topics.list,
            lambda: node.topics["t"].append("from the child"),
            lambda: node.group("m").join(["t"]).start(),
            member.wait,
            lambda: member.commit({("t", 0): 1}),
            consumer.poll,
            queue.get,
            producer.flush,
            lambda: node.producer().append("t", "from the child"),
        ]
        found = [outcome(call) for call in calls]
        for one in (producer, queue, consumer, member, node):
            one.close()
        return [*found, CLOSED]

    _, reported = in_child(report)
    text = "the engine was opened by the parent" if node._calls.local else "the node was connected by the parent"
    assert reported == [text] * 9 + [CLOSED]
    producer.flush()
    assert delivery.result(HANG_S).offset == 1
    assert [record.value for record in consumer.poll(HANG_S)] == [b"another record"]
    for one in (producer, queue, consumer, member):
        one.close()


def test_an_exception_of_a_child_leaves_the_blocks_of_its_parent(node: Node) -> None:
    """The child leaves the `with` blocks of its parent without waiting, and ends with its own exception."""

    def report() -> list[str]:
        try:
            with stack:
                sys.exit("the child ends")
        except SystemExit as end:
            return [str(end)]

    with ExitStack() as stack:
        stack.enter_context(node.group("c").consume(["t"])).poll(HANG_S)
        stack.enter_context(node.queue("t", group="q")).get(0)
        stack.enter_context(node.producer(linger=HANG_S)).append("t", "another record")
        _, reported = in_child(report)
    assert reported == ["the child ends"]
    assert len(node.topics["t"].read(0, 0)) == 2
