"""A group stores data of its last target to compute the next one faster. The results are the same without this data."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.group.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatApi
from kcore.group.consumer.group import ConsumerGroup
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kcore.runtime import Pending, RequestContext
from tests.group.context import GroupContext
from tests.kit import serve

CONTEXT = RequestContext(1, "one", "/127.0.0.1")
TOPICS = {f"topic-{number}": number * 3 + 1 for number in range(4)}
MOST_MEMBERS = 12
UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH = 25, 110


class Life:
    """A group whose members join, change their subscriptions and leave, while topics grow, as random numbers decide.

    Args:
        seed: the seed of the random numbers. Two groups with the same seed send the same requests as long as their
            responses are equal.
        forgets: True to discard all data of the last target before each request.
    """

    def __init__(self, seed: int, forgets: bool) -> None:
        self.random = Random(seed)
        interval_ms = self.random.choice([0, 0, 50])
        self.context = GroupContext({"group.consumer.assignment.interval.ms": interval_ms}, TOPICS)
        self.api = ConsumerGroupHeartbeatApi(self.context.shards, self.context.consumer)
        self.forgets = forgets
        self.members: dict[str, tuple[int, list[TopicPartitions]]] = {}
        self.sizes = dict(TOPICS)

    def step(self) -> Any:
        """Runs one random request. Returns its response."""
        if self.random.random() < 0.05:
            self._grow(self.random.choice(sorted(self.sizes)))
        if self.forgets:
            self._forget()
        request = self._request()
        result = serve(self.api, CONTEXT, request)
        self.context.pipeline.commit()
        self.context.slices.finish()
        response = result.response if isinstance(result, Pending) else result
        self._remember(request, response)
        self.context.advance(self.random.choice([0, 5, 40]))
        return response

    def _forget(self) -> None:
        self.context.consumer._topics.clear()
        group = self.context.machine.groups.get("g")
        if isinstance(group, ConsumerGroup):
            group.last_members = None
            for member in group.members.values():
                member.assignor_member = None

    def _grow(self, topic: str) -> None:
        self.sizes[topic] += 1
        self.context.topics.add(topic, self.sizes[topic])
        self.context.consumer.metadata.changed(topic)
        self.context.machine.on_topic_changed(topic)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        random = self.random
        names = random.sample([*sorted(TOPICS), "nowhere"], random.randint(0, 4))
        if not self.members or random.random() < 0.3:
            return ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=f"m{random.randrange(MOST_MEMBERS)}",
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=names,
                server_assignor=random.choice([None, "uniform", "range"]),
                topic_partitions=[],
            )
        member_id = random.choice(sorted(self.members))
        epoch, owned = self.members[member_id]
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)
        what = random.random()
        if what < 0.15:
            request.member_epoch = -1
        elif what < 0.25:
            request.subscribed_topic_names = names
        elif what < 0.9:
            request.topic_partitions = owned
        return request

    def _remember(self, request: ConsumerGroupHeartbeatRequest, response: Any) -> None:
        member_id = request.member_id
        if response.error_code or request.member_epoch < 0:
            assert response.error_code in (0, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH), response
            self.members.pop(member_id, None)
            return
        _, owned = self.members.get(member_id, (0, []))
        if response.assignment is not None:
            owned = [
                TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
                for topic in response.assignment.topic_partitions
            ]
        self.members[member_id] = (response.member_epoch, owned)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_group_that_forgets_decides_the_same(seed: int) -> None:
    """A group that discards the data of the last target gives the same responses and writes the same bytes to the
    log.
    """
    one, other = Life(seed, forgets=False), Life(seed, forgets=True)
    for number in range(80):
        assert one.step() == other.step(), f"step {number}"
    assert [*map(bytes_of, one.context.log().batches())] == [*map(bytes_of, other.context.log().batches())]


def bytes_of(batch: tuple[int, Any]) -> tuple[int, bytes]:
    """Returns a batch of the log in a comparable form."""
    return batch[0], bytes(batch[1])
