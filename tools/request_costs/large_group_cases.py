"""Requests about groups that are larger than those of the other cases: 30,000 topics, 5,000 members, 110,000 offsets.

A client needs many requests to make such a group. The cases send these requests before the measured one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kcore.protocol.api_keys import ApiKey, request_class
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.kit import commit, create
from tools.request_costs.cases import Case, struct_of
from tools.request_costs.state import STREAMS_MEMBERS, TOPICS, WIDE_PARTITIONS, State, streams_join

MORE_TOPICS = 20_000
WIDE_TOPICS = 10
GROUP_RESOURCE = 32
FIRST, SECOND = "m" * 22, "n" * 22


class LargeGroupCases:
    """The measured requests about large groups.

    Args:
        state: the node that serves them.
    """

    def __init__(self, state: State) -> None:
        self.state = state

    def __iter__(self) -> Iterator[Case]:
        for build in (self.consumers, self.streams, self.offsets):
            yield from build()

    def consumers(self) -> Iterator[Case]:
        """Yields heartbeats of members whose pattern matches 30,000 topics, and the description of their group."""
        names = [f"t{number}" for number in range(TOPICS, TOPICS + MORE_TOPICS)]
        made = [create(*names[first : first + 5_000]) for first in range(0, MORE_TOPICS, 5_000)]
        first = [*made, self._beat(0)]
        owning = [*first, self._beat(1), self._beat(1)]
        moving = [*owning, self._beat(0, SECOND), self._beat(2)]
        key = ApiKey.CONSUMER_GROUP_HEARTBEAT
        yield Case(key, "a pattern of 30,000 topics", 1, first)
        yield Case(key, "the target of these 30,000 topics", 1, owning[:-1])
        yield Case(key, "the step towards this target", 1, owning)
        yield Case(key, "half of 30,000 topics moves to a second member", 1, moving)
        yield Case(key, "a member with 30,000 topics leaves", 1, [*owning, self._beat(-1)])
        describe = request_class(ApiKey.CONSUMER_GROUP_DESCRIBE)
        yield Case(
            ApiKey.CONSUMER_GROUP_DESCRIBE, "a member with 30,000 topics", 1, [*owning, describe(group_ids=["cg"])]
        )

    def _beat(self, epoch: int, member_id: str = FIRST) -> Any:
        beat = request_class(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        joins = {"rebalance_timeout_ms": 10_000, "subscribed_topic_regex": "t.*", "topic_partitions": []}
        return beat(group_id="cg", member_id=member_id, member_epoch=epoch, **({} if epoch else joins))

    def streams(self) -> Iterator[Case]:
        """Yields a join, a leave and the description of a streams group with thousands of members."""
        group_id = self.state.streams_group
        interval = AlterableConfig(name="streams.assignment.interval.ms", config_operation=0, value="0")
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=[interval])
        due = IncrementalAlterConfigsRequest(resources=[resource])
        joined = streams_join(group_id, STREAMS_MEMBERS)
        key = ApiKey.STREAMS_GROUP_HEARTBEAT
        yield Case(key, f"a target of {STREAMS_MEMBERS:,} members", 0, [due, joined])
        beat = request_class(key)
        left = beat(group_id=group_id, member_id=joined.member_id, member_epoch=-1)
        yield Case(key, f"one of {STREAMS_MEMBERS:,} members leaves", 0, [due, joined, left])
        describe = request_class(ApiKey.STREAMS_GROUP_DESCRIBE)
        described = describe(group_ids=[group_id])
        yield Case(ApiKey.STREAMS_GROUP_DESCRIBE, f"{STREAMS_MEMBERS:,} members", 0, [due, joined, described])

    def offsets(self) -> Iterator[Case]:
        """Yields look-ups and removals of all offsets of a group with very many offsets."""
        names = [f"wide{number}" for number in range(WIDE_TOPICS)]
        half = WIDE_PARTITIONS // 2
        filled = [create(name, partitions=WIDE_PARTITIONS) for name in names]
        filled += [
            commit("all", {(name, index): 1 for index in range(first, first + half)})
            for name in names
            for first in (0, half)
        ]
        fetch = request_class(ApiKey.OFFSET_FETCH)
        group = struct_of(fetch, "groups")
        what = f"all of {WIDE_TOPICS * WIDE_PARTITIONS:,} offsets"
        yield Case(ApiKey.OFFSET_FETCH, what, 8, [*filled, fetch(groups=[group(group_id="all", topics=None)])], 7)
        removed = request_class(ApiKey.DELETE_GROUPS)(groups_names=["all"])
        yield Case(
            ApiKey.DELETE_GROUPS, f"a group with {WIDE_TOPICS * WIDE_PARTITIONS:,} offsets", 2, [*filled, removed], 7
        )
