"""Test members of streams groups that report their tasks, as Kafka Streams does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kcore.group.apis.streams_group_describe import StreamsGroupDescribeApi
from kcore.group.apis.streams_group_heartbeat import StreamsGroupHeartbeatApi
from kcore.group.streams.group import StreamsGroup
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeRequest
from kcore.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.group.context import GroupContext

GROUP = "app"
Owned = dict[str, list[int]]


def internal(name: str, partitions: int = 0, replication_factor: int = 0) -> TopicInfo:
    """Returns a changelog or repartition topic. With 0 partitions, the coordinator decides the partition count."""
    return TopicInfo(name=name, partitions=partitions, replication_factor=replication_factor)


def subtopology(
    part: str,
    sources: Sequence[str] = (),
    changelogs: Sequence[TopicInfo] = (),
    sinks: Sequence[str] = (),
    repartitions: Sequence[TopicInfo] = (),
    copartition: Iterable[tuple[Sequence[int], Sequence[int]]] = (),
) -> Subtopology:
    """Returns a subtopology.

    Each co-partition group is a pair of index lists: positions in `sources`, and positions in `repartitions`.
    """
    return Subtopology(
        subtopology_id=part,
        source_topics=sources,
        state_changelog_topics=changelogs,
        repartition_sink_topics=sinks,
        repartition_source_topics=repartitions,
        copartition_groups=[
            CopartitionGroup(source_topics=ours, repartition_source_topics=theirs) for ours, theirs in copartition
        ],
    )


def topology(*parts: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=parts)


def task_list(owned: Owned) -> list[TaskIds]:
    """Returns tasks in the format in which a heartbeat reports them."""
    return [TaskIds(subtopology_id=part, partitions=numbers) for part, numbers in sorted(owned.items())]


def owned_tasks(entries: Iterable[Any] | None) -> Owned:
    """Returns the tasks of one role in a response or a description."""
    return {entry.subtopology_id: sorted(entry.partitions) for entry in entries or ()}


class World(GroupContext):
    """A group shard with the APIs of streams groups. Targets are computed at once, unless the test sets another
    interval.
    """

    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        at_once = {"group.streams.assignment.interval.ms": 0, "group.streams.initial.rebalance.delay.ms": 0}
        super().__init__({**at_once, **named}, topics)
        self.use_fast_path = True
        self.api: StreamsGroupHeartbeatApi | None = None

    @property
    def heartbeats(self) -> StreamsGroupHeartbeatApi:
        """Returns the test's own API object if there is one, and otherwise a new API object."""
        if self.api is not None:
            return self.api
        api = StreamsGroupHeartbeatApi(self.shards, self.streams)
        if not self.use_fast_path:
            api.fast = lambda context, request: None  # type: ignore[assignment]
        return api

    def beat(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Sends a heartbeat with only the given fields."""
        options = {"client_id": fields.pop("client_id")} if "client_id" in fields else {}
        request = StreamsGroupHeartbeatRequest(**{"group_id": GROUP, **fields})
        response: StreamsGroupHeartbeatResponse = self.call(self.heartbeats, request, **options)
        return response

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        request = StreamsGroupDescribeRequest(group_ids=[group_id])
        (found,) = self.call(StreamsGroupDescribeApi(self.shards, self.streams), request).groups
        assert isinstance(found, DescribedGroup)
        return found

    @property
    def group(self) -> StreamsGroup:
        """Returns the group in memory."""
        group = self.machine.groups[GROUP]
        assert isinstance(group, StreamsGroup)
        return group

    def settle(self, *members: Member, rounds: int = 20) -> int:
        """Sends heartbeats of all members until each has its target. Returns the number of
        heartbeats of each member.
        """
        for done in range(rounds):
            if self.group.state_name() == "Stable" and all(m.epoch == self.group.group_epoch for m in members):
                return done
            for member in members:
                member.ack()
        raise AssertionError(f"not at rest after {rounds} rounds: {self.describe()}")


class Member:
    """A member that stores its epoch and its tasks."""

    def __init__(self, world: World, member_id: str, process: str | None = None) -> None:
        self.world = world
        self.member_id = member_id
        self.process = process or f"p-{member_id}"
        self.epoch = 0
        self.active: Owned = {}
        self.standby: Owned = {}

    def send(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Sends a heartbeat, and stores the values of a successful response."""
        response = self.world.beat(**{"member_id": self.member_id, "member_epoch": self.epoch, **fields})
        if not response.error_code:
            self.take(response)
        return response

    def take(self, response: StreamsGroupHeartbeatResponse) -> None:
        """Stores the values of a successful response."""
        self.epoch = response.member_epoch
        if response.active_tasks is not None:
            self.active = owned_tasks(response.active_tasks)
            self.standby = owned_tasks(response.standby_tasks)

    def join(self, requested: Topology, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Sends the first heartbeat."""
        response = self.send(**self.join_fields(requested), **fields)
        assert response.error_code == ErrorCode.NONE, response
        return response

    def join_fields(self, requested: Topology) -> dict[str, Any]:
        """Returns the fields of a first heartbeat."""
        return {
            "member_epoch": 0,
            "rebalance_timeout_ms": 10_000,
            "topology": requested,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": self.process,
        }

    def beat(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Sends a heartbeat that changes nothing."""
        return self.send(**fields)

    def ack(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Sends a heartbeat that reports the last tasks as owned."""
        return self.send(
            active_tasks=task_list(self.active), standby_tasks=task_list(self.standby), warmup_tasks=[], **fields
        )

    def leave(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        return self.send(member_epoch=-1, **fields)
