"""The most expensive known requests of at most 1 MB for the APIs of streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kcore.protocol.api_keys import ApiKey, request_class
from tools.request_costs.cases import MAX_ELEMENTS, Case, Cases, struct_of
from tools.request_costs.state import State

MEMBER = "m" * 22
ENTRIES = MAX_ELEMENTS - 100


class StreamsCases:
    """The measured requests about streams groups.

    Args:
        state: the node that serves them.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.cases = Cases(state)

    def __iter__(self) -> Iterator[Case]:
        for build in (self.joins, self.heartbeats, self.descriptions):
            yield from build()

    def joins(self) -> Iterator[Case]:
        """Yields joins with the largest topologies."""
        for what, topology in self._topologies():
            yield Case(ApiKey.STREAMS_GROUP_HEARTBEAT, what, 0, [self._join(topology)])
        large = dict(self._topologies())["10,000 subtopologies"]
        again = self._join(large, member_id="n" * 22)
        yield Case(ApiKey.STREAMS_GROUP_HEARTBEAT, "10,000 subtopologies, second member", 0, [self._join(large), again])

    def _topologies(self) -> Iterator[tuple[str, Any]]:
        beat = request_class(ApiKey.STREAMS_GROUP_HEARTBEAT)
        topology, part = struct_of(beat, "topology"), struct_of(beat, "topology.subtopologies")
        info = struct_of(beat, "topology.subtopologies.state_changelog_topics")
        names, absent = self.state.names, self.cases.names
        yield "absent topics", topology(subtopologies=[
            part(subtopology_id=name, source_topics=[name]) for name in absent[: ENTRIES // 2]
        ])  # fmt: skip
        yield "10,000 subtopologies", topology(subtopologies=[
            part(subtopology_id=name, source_topics=[name]) for name in names
        ])  # fmt: skip
        yield (
            "one subtopology of 10,000 topics",
            topology(subtopologies=[part(subtopology_id="0", source_topics=names)]),
        )
        yield "50,000 tasks", topology(subtopologies=[
            part(subtopology_id=name, source_topics=["wide"]) for name in names[:5]
        ])  # fmt: skip
        yield "8,000 changelog topics to create", topology(subtopologies=[
            part(subtopology_id=name, source_topics=[name], state_changelog_topics=[info(name=f"{name}-log")])
            for name in names[: ENTRIES // 3]
        ])  # fmt: skip
        yield "a changelog for each of 20,000 names", topology(subtopologies=[
            part(subtopology_id="0", source_topics=["data"], state_changelog_topics=[
                info(name=name) for name in absent[-19_000:]
            ])
        ])  # fmt: skip
        yield "a chain of repartition topics", topology(subtopologies=[
            part(
                subtopology_id=f"{number:05}",
                source_topics=["data"] if not number else (),
                repartition_sink_topics=[f"r{number:05}"],
                repartition_source_topics=[info(name=f"r{number - 1:05}")] if number else (),
            )
            for number in range(ENTRIES // 3)
        ])  # fmt: skip

    def _join(self, topology: Any, member_id: str = MEMBER, **fields: Any) -> Any:
        beat = request_class(ApiKey.STREAMS_GROUP_HEARTBEAT)
        return beat(
            group_id="st", member_id=member_id, member_epoch=0, rebalance_timeout_ms=10_000, topology=topology,
            active_tasks=[], standby_tasks=[], warmup_tasks=[], process_id="p", **fields,
        )  # fmt: skip

    def heartbeats(self) -> Iterator[Case]:
        """Yields heartbeats of members in a group with a large topology."""
        beat = request_class(ApiKey.STREAMS_GROUP_HEARTBEAT)
        tasks, tag = struct_of(beat, "active_tasks"), struct_of(beat, "client_tags")
        topologies = dict(self._topologies())
        key = ApiKey.STREAMS_GROUP_HEARTBEAT
        tags = [tag(key=name, value="v") for name in self.cases.names[:ENTRIES]]
        few = topologies["50,000 tasks"]
        yield Case(key, "most client tags", 0, [self._join(few, client_tags=tags)])
        joined = self._join(topologies["10,000 subtopologies"])
        for what, count in (("10,000 tasks reported", len(self.state.names)), ("no task reported", 0)):
            reported = [tasks(subtopology_id=name, partitions=[0]) for name in self.state.names[:count]]
            request = beat(
                group_id="st", member_id=MEMBER, member_epoch=2, active_tasks=reported, standby_tasks=[],
                warmup_tasks=[], endpoint_information_epoch=-1,
            )  # fmt: skip
            yield Case(key, what, 0, [joined, request])
        absent = [tasks(subtopology_id="x", partitions=list(range(ENTRIES)))]
        yield Case(
            key, "25,000 absent tasks reported", 0,
            [joined, beat(group_id="st", member_id=MEMBER, member_epoch=2, active_tasks=absent, standby_tasks=[],
                          warmup_tasks=[])],
        )  # fmt: skip

    def descriptions(self) -> Iterator[Case]:
        """Yields the measured requests of StreamsGroupDescribe."""
        describe = request_class(ApiKey.STREAMS_GROUP_DESCRIBE)
        key = ApiKey.STREAMS_GROUP_DESCRIBE
        yield self.cases.of(key, "absent groups", lambda n: describe(group_ids=self.cases.names[:n]), 400_000)
        topologies = dict(self._topologies())
        for what in ("10,000 subtopologies", "50,000 tasks"):
            joined = self._join(topologies[what])
            yield Case(key, what, 0, [joined, describe(group_ids=["st"])])
            again = self.cases.of(key, f"{what}, again and again", lambda n: describe(group_ids=["st"] * n), 400_000)
            yield again._replace(requests=[joined, *again.requests])
