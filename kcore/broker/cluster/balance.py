"""Placement of leaders: pure functions that compute moves of partitions from the metadata and the live nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kcore.broker.metadata.image import MetadataImage
    from kcore.runtime.topics import TopicInfo


class Move(NamedTuple):
    """A change of a partition's leader, which takes effect immediately or is planned.

    Attributes:
        topic: the topic of the partition.
        partition: the partition's number.
        leader: the id of the new leader; -1 if no node can lead it.
        replicas: the partition's replicas (node ids), the leader first.
    """

    topic: TopicInfo
    partition: int
    leader: int
    replicas: tuple[int, ...]


class Placement:
    """The number of partitions that each node leads, per topic and in total, while moves are planned.

    A partition whose move is under way counts for the node that will lead it.

    Args:
        image: the metadata.
        targets: the nodes to which partitions can move: live nodes that are not draining.
    """

    def __init__(self, image: MetadataImage, targets: Collection[int]) -> None:
        self._image = image
        self._targets = sorted(targets)
        self._racks = {node: self._rack(node) for node in self._targets}
        self.totals: Counter[int] = Counter(dict.fromkeys(self._targets, 0))
        self.leaders: dict[bytes, list[int]] = {}
        for topic in image.all():
            leaders = self.leaders[topic.topic_id] = image.leading_nodes(topic.topic_id)
            for index, successor in image.successors.get(topic.topic_id, {}).items():
                if successor in self._targets:
                    leaders[index] = successor
            self.totals.update(leaders)

    def _current(self, topic: TopicInfo, partition: int) -> int:
        """Returns the node that leads a partition now; -1 if there is none."""
        leader = self._image.leader(topic.topic_id, partition)
        return -1 if leader is None else leader.node_id

    def _rack(self, node: int) -> str | int:
        """Returns the rack of a node. A node without a rack counts as a separate rack."""
        broker = self._image.brokers.get(node)
        return node if broker is None or broker.rack is None else broker.rack

    def _in_racks(self, counts: Counter[int]) -> Counter[str | int]:
        """Returns the number of partitions that the nodes of each rack lead; `counts` has the number for each node."""
        racks: Counter[str | int] = Counter()
        for node, rack in self._racks.items():
            racks[rack] += counts[node]
        return racks

    def best(self, topic: TopicInfo) -> int:
        """Chooses the node that becomes the leader of a partition of a topic; returns -1 if there is no such node.

        The method chooses the node that leads the fewest partitions of the topic. If several nodes lead equally few, it
        prefers the rack whose nodes lead the fewest partitions of the topic. In this rack, it prefers the node that
        leads the fewest partitions of all topics.
        """
        if not self._targets:
            return -1
        counts = Counter(self.leaders[topic.topic_id])
        racks = self._in_racks(counts)
        return min(self._targets, key=lambda node: (counts[node], racks[self._racks[node]], self.totals[node], node))

    def move(self, topic: TopicInfo, partition: int, leader: int) -> Move:
        """Plans a new leader for a partition, and updates the numbers of partitions that the nodes lead."""
        leaders = self.leaders[topic.topic_id]
        before = leaders[partition]
        leaders[partition] = leader
        self.totals[before] -= 1
        self.totals[leader] += 1
        previous_replicas = self._image.replicas[topic.topic_id][partition]
        return Move(
            topic, partition, leader, moved_replicas(previous_replicas, self._current(topic, partition), leader)
        )

    def leaderless(self, alive: Collection[int]) -> Iterator[Move]:
        """Yields moves of the partitions whose leader is not alive. If there is no target, the moves leave these
        partitions without a leader.
        """
        alive_nodes = set(alive)
        for topic in self._image.all():
            leading = self._image.leading_nodes(topic.topic_id)
            if alive_nodes.issuperset(leading):
                continue
            for partition, leader in enumerate(leading):
                if leader in alive_nodes:
                    continue
                planned = self.leaders[topic.topic_id][partition]
                previous_replicas = self._image.replicas[topic.topic_id][partition]
                live = [node for node in previous_replicas if node in self._targets]
                target = live[0] if live and len(previous_replicas) > 1 else self.best(topic)
                if planned != leader:
                    target = planned
                if target != leader:
                    yield self.move(topic, partition, target)

    def cancelled_plans(self, alive: Collection[int]) -> Iterator[Move]:
        """Yields a move for each partition whose planned new leader is no longer a target. The move cancels the plan:
        the current leader keeps the partition.

        The method omits partitions without a live leader, because `leaderless` moves them, and a decision must not move
        a partition twice.
        """
        for topic in self._image.all():
            for partition, successor in self._image.successors.get(topic.topic_id, {}).items():
                leader = self._current(topic, partition)
                if successor not in self._targets and leader in alive:
                    yield Move(topic, partition, leader, self._image.replicas[topic.topic_id][partition])

    def drained(self) -> Iterator[Move]:
        """Yields moves of partitions from live nodes that are not targets, such as draining nodes, to targets."""
        if not self._targets:
            return
        targets = {-1, *self._targets}
        for topic in self._image.all():
            leaders = self.leaders[topic.topic_id]
            if targets.issuperset(leaders):
                continue
            for partition, leader in enumerate(leaders):
                if leader not in targets:
                    yield self.move(topic, partition, self.best(topic))

    def evened(self) -> Iterator[Move]:
        """Yields moves after which nodes lead equal numbers of partitions of each topic, and similar numbers in total.

        Numbers that differ by one count as equal. The moves also spread the leaders of each topic over the racks as
        evenly as possible, so that the loss of a rack affects few partitions.
        """
        if len(self._targets) < 2:
            return
        for topic in self._image.all():
            yield from self._even(topic)
        for topic in self._image.all():
            move = self._even_total(topic)
            if move is not None:
                yield move

    def _even(self, topic: TopicInfo) -> Iterator[Move]:
        leaders = self.leaders[topic.topic_id]
        counts = Counter(dict.fromkeys(self._targets, 0))
        counts.update({node: count for node, count in Counter(leaders).items() if node in counts})
        racks = self._in_racks(counts)

        def load(node: int) -> tuple[int, int, int, int]:
            return counts[node], racks[self._racks[node]], self.totals[node], node

        while True:
            most, least = max(self._targets, key=load), min(self._targets, key=load)
            difference = counts[most] - counts[least]
            if difference < 1 or (difference == 1 and not self._evens_racks(racks, most, least)):
                return
            counts[most] -= 1
            counts[least] += 1
            racks[self._racks[most]] -= 1
            racks[self._racks[least]] += 1
            yield self.move(topic, _last(leaders, most), least)

    def _evens_racks(self, racks: Counter[str | int], most: int, least: int) -> bool:
        """Returns True if a move from node `most` to node `least` makes the numbers of partitions of their racks more
        equal.
        """
        return racks[self._racks[most]] - racks[self._racks[least]] > 1

    def _even_total(self, topic: TopicInfo) -> Move | None:
        """Moves one partition of a topic, if this makes the nodes' total numbers of partitions more even.

        The partition moves from the node that leads the most partitions to the node that leads the fewest. Returns None
        if the totals are even, or if the move would make the numbers of this topic less even, by node or by rack.
        """
        leaders = self.leaders[topic.topic_id]
        counts = Counter(leaders)
        most = max(self._targets, key=lambda node: (self.totals[node], node))
        least = min(self._targets, key=lambda node: (self.totals[node], node))
        if self.totals[most] - self.totals[least] < 2 or counts[most] <= counts[least]:
            return None
        racks = self._in_racks(counts)
        if self._racks[most] != self._racks[least] and racks[self._racks[most]] <= racks[self._racks[least]]:
            return None  # the next decision would move it back to even the racks
        return self.move(topic, _last(leaders, most), least)


def moved_replicas(previous_replicas: tuple[int, ...], before: int, leader: int) -> tuple[int, ...]:
    """Returns the replicas of a partition after a move, the leader first.

    Args:
        previous_replicas: the replicas before the move.
        before: the leader before the move.
        leader: the new leader; -1: none.
    """
    if leader < 0 or leader == before:
        return previous_replicas
    others = [node for node in previous_replicas if node not in (leader, before)]
    if leader in previous_replicas:
        others.append(before)
    return (leader, *others)[: len(previous_replicas)]


def _last(leaders: list[int], node: int) -> int:
    """Returns the highest partition number of a topic that a node leads.

    Args:
        leaders: the leader of each partition of the topic.
        node: the id of the node.
    """
    return len(leaders) - 1 - leaders[::-1].index(node)
