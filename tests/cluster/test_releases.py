"""Reports of released partitions, and the conditions under which a node sends a report again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kcore.broker.cluster.handover import FIRST_RETRY_MS, RETRY_MS, Releases
from kcore.log.interface import PartitionKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_partition import AlterPartitionResponse, PartitionResult, TopicResult
from kcore.runtime.cluster import Leader
from kcore_ext.runtime.timer_wheel import TimerWheel

TOPIC = bytes(range(16))
EPOCH = 3
ACCEPTED = AlterPartitionResponse()
REFUSED = AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
PARTLY = AlterPartitionResponse(
    topics=[TopicResult(partitions=[PartitionResult(), PartitionResult(error_code=ErrorCode.INELIGIBLE_REPLICA)])]
)


class World:
    """The part of a node that reports released partitions, with a fake controller. All partitions move to node 2."""

    def __init__(self) -> None:
        self.wheel = TimerWheel(0)
        self.epoch = EPOCH
        self.sent: list[tuple[int, list[int]]] = []
        self.done: list[Any] = []
        self.responds: list[Any] = []  # immediate responses of the controller; if empty, the test responds later
        self.cluster: Any = SimpleNamespace(controller_id=9)
        image = SimpleNamespace(
            leader=lambda topic_id, partition: Leader(1, self.epoch), successor=lambda topic_id, partition: 2
        )
        lease = SimpleNamespace(holder=1, epoch=1)
        self.releases = Releases(
            SimpleNamespace(fenced=False, stopped=False, lease=lease),  # type: ignore[arg-type]
            SimpleNamespace(image=image),  # type: ignore[arg-type]
            self.cluster,
            self,
            self.wheel,
        )

    def send(self, node_id: int, request: Any, version: int, done: Any) -> None:
        named = [part.partition_index for topic in request.topics for part in topic.partitions]
        self.sent.append((self.wheel.now_ms, named))
        self.done.append(done)
        for response in self.responds:
            done(response)

    def release(self, partition: int) -> None:
        self.releases.add(PartitionKey(TOPIC, partition), self.epoch)
        self.releases.report()

    def advance(self, to_ms: int) -> None:
        """Fires the timers up to a time."""
        while 0 <= self.wheel.next_deadline_ms() <= to_ms:
            for timer in self.wheel.advance(self.wheel.next_deadline_ms()):
                timer.payload()
        list(self.wheel.advance(to_ms))


@pytest.mark.parametrize("response", [None, REFUSED, PARTLY])
def test_a_report_that_was_not_accepted_is_repeated_soon_and_ever_later(response: Any) -> None:
    world = World()
    world.responds = [response]
    world.release(0)
    world.advance(1_000)
    assert [at_ms for at_ms, _ in world.sent] == [0, 10, 30, 70, 150, 310, 510, 710, 910]


def test_an_accepted_report_is_repeated_only_if_the_metadata_do_not_follow() -> None:
    world = World()
    world.release(0)
    world.done[-1](ACCEPTED)
    world.advance(RETRY_MS - 1)
    assert world.sent == [(0, [0])]
    world.advance(RETRY_MS)
    assert world.sent == [(0, [0]), (RETRY_MS, [0])]


def test_a_partition_that_returns_and_is_released_again_is_reported_again() -> None:
    """A paused node released a partition, led it again, and released it again. It replays both moves at once.

    The node does not see the leader between the two moves, but sends a second report.
    """
    world = World()
    world.release(0)
    world.epoch += 2
    world.release(0)
    world.done[-1](ACCEPTED)
    world.advance(RETRY_MS)
    assert world.sent == [(0, [0]), (0, [0])]


def test_a_partition_released_during_a_report_is_reported_right_after_it() -> None:
    world = World()
    world.release(0)
    world.advance(7)
    world.release(1)
    assert world.sent == [(0, [0])]
    world.done[-1](ACCEPTED)
    world.advance(8)
    assert world.sent == [(0, [0]), (7, [0, 1])]


def test_a_report_waits_for_a_controller() -> None:
    world = World()
    world.cluster.controller_id = -1
    world.release(0)
    world.advance(FIRST_RETRY_MS - 1)
    assert world.sent == []
    world.cluster.controller_id = 9
    world.advance(FIRST_RETRY_MS)
    assert world.sent == [(FIRST_RETRY_MS, [0])]
