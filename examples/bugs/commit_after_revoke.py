"""Commits positions of partitions that the consumer has lost (confluent-kafka).

The bug: the program keeps its positions in a dictionary, and commits all of them from time to time. After a rebalance
the dictionary still has partitions of another consumer, and the commit moves that consumer's offsets back. The broker
accepts it, because the member and the generation are valid.
The fix: drop the positions of revoked partitions.
"""

from __future__ import annotations

import confluent_kafka

from examples.bugs.common import GROUP, POLL_S, TOPIC, confluent_consumer
from kcore.testing import Broker

PARTITIONS = 2
SYMPTOM = "the committed offsets of partition . went back"


class _Worker:
    """A worker that commits all its positions together."""

    drops_revoked = False

    def __init__(self, bootstrap: str, name: str) -> None:
        self.positions: dict[int, int] = {}
        self.consumer = confluent_consumer(bootstrap, **{"client.id": name})
        self.consumer.subscribe([TOPIC], on_revoke=self._revoked)

    def _revoked(self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        if self.drops_revoked:
            for partition in partitions:
                self.positions.pop(partition.partition, None)

    def step(self) -> None:
        """Polls once, and processes the record if there is one."""
        record = self.consumer.poll(POLL_S)
        if record is not None and record.error() is None:
            self.positions[record.partition()] = record.offset() + 1

    def commit(self) -> None:
        """Commits all positions."""
        offsets = [confluent_kafka.TopicPartition(TOPIC, index, offset) for index, offset in self.positions.items()]
        if offsets:
            self.consumer.commit(offsets=offsets, asynchronous=False)


class buggy(_Worker):  # noqa: N801 - a program, as the functions of the other modules
    """A worker that keeps the positions of revoked partitions."""


class fixed(_Worker):  # noqa: N801
    """A worker that drops the positions of revoked partitions."""

    drops_revoked = True


def check(broker: Broker, program) -> None:
    for partition in range(PARTITIONS):
        broker.node.topics[TOPIC].append("first", partition=partition)
    first = program(broker.bootstrap, "first")
    while len(first.positions) < PARTITIONS:
        first.step()
    first.commit()
    second = program(broker.bootstrap, "second")
    while len(first.consumer.assignment()) != 1 or len(second.consumer.assignment()) != 1:
        first.step()
        second.step()
    (moved,) = second.consumer.assignment()
    broker.node.topics[TOPIC].append("second", partition=moved.partition)
    while second.positions.get(moved.partition) != 2:
        second.step()
    second.commit()
    first.commit()
    second.consumer.close()
    first.consumer.close()
    commits = broker.history(GROUP).commits((TOPIC, moved.partition))
    assert commits == sorted(commits), f"the committed offsets of partition {moved.partition} went back: {commits}"
