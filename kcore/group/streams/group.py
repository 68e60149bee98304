"""A streams group: its members, its topology, its epochs, and the rules for its offsets."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Final

from kcore.counts import add_count
from kcore.group.committing_group import CommittingGroup
from kcore.group.group import ExpirationBase, GroupType
from kcore.group.streams import leave
from kcore.group.streams.member import NEVER, MemberMetadata, StreamsMember, own_bytes
from kcore.group.streams.processes import TaskProcesses
from kcore.group.streams.records import group_tombstones
from kcore.group.streams.states import STABLE, UNREVOKED, GroupState
from kcore.group.streams.tasks import NO_PARTITIONS, NOTHING, CurrentAssignment, Tasks
from kcore.group.streams.timers import RevocationTimer
from kcore.protocol.error_codes import NO_ERROR, ErrorCode

if TYPE_CHECKING:
    from kcore.group.offsets.commit import PlannedTopic
    from kcore.group.shard import GroupShard
    from kcore.group.streams.configure import ConfiguredTopology
    from kcore.group.streams.records import AssignmentConfigs
    from kcore.group.streams.services import StreamsSettings
    from kcore.group.streams.topology import Topology
    from kcore.runtime.machine import Record

NOT_VALIDATED: Final = -1
"""The value of `validated_epoch` while the topology is not ready."""
EMPTY, NOT_READY, ASSIGNING, RECONCILING, REACHED = GroupState  # looked up once: see `states.STABLE`


class StreamsGroup(CommittingGroup[StreamsMember, Tasks]):
    """A group of Kafka Streams members.

    See `EpochGroup` for the arguments and the other attributes. Soft state is in memory only: no record stores it.

    Attributes:
        validated_epoch: the topology epoch for which the topology was ready, or `NOT_VALIDATED`.
        assignment_configs: the assignment settings, as recorded with the group epoch.
        topology: the topology, None before the first member.
        processes: for each task, the processes of the members that have the task.
        reconciled: number of members in state STABLE, by member epoch.
        configured: the topology with its computed partition counts; None: the next heartbeat computes them. Soft state.
        topics_changed: whether a topic of the topology changed since it was configured. Soft state.
        endpoint_epoch: a counter that grows when the endpoints or their partitions change. Soft state.
        target_job: whether a target is being written in slices. Soft state.
        shutdown_member: the member that requested the shutdown of the application, or None. Soft state.
        rest_epoch: the group epoch at the last heartbeat that found no work and whose response had no status. `NEVER`
            after a change of the group. Soft state.
        rest_settings: the group's settings at that heartbeat. `rest_epoch` is not valid for other settings.
    """

    __slots__ = (
        "_resting",
        "assignment_configs",
        "configured",
        "endpoint_epoch",
        "processes",
        "reconciled",
        "rest_epoch",
        "rest_settings",
        "shutdown_member",
        "target_job",
        "topics_changed",
        "topology",
        "validated_epoch",
    )

    group_type = GroupType.STREAMS
    no_target = NOTHING

    def __init__(self, shard: GroupShard, group_id: str, live: bool, registered: bool = True) -> None:
        super().__init__(shard, group_id, live, registered)
        self.validated_epoch = NOT_VALIDATED
        self.assignment_configs: AssignmentConfigs = ()
        self.topology: Topology | None = None
        self.processes = TaskProcesses()
        self.reconciled: dict[int, int] = {}
        self.configured: ConfiguredTopology | None = None
        self.topics_changed = False
        self.endpoint_epoch = 0
        self.target_job = False
        self.shutdown_member: str | None = None
        self.rest_epoch = NEVER
        self.rest_settings: StreamsSettings | None = None
        self._resting: list[StreamsMember] = []

    # ---- reading

    @property
    def state(self) -> GroupState:
        """The state of the group, derived from its topology, members and epochs."""
        if not self.members:
            return EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return ASSIGNING
        if self.reconciled.get(self.assignment_epoch, 0) < len(self.members):
            return RECONCILING
        return REACHED

    def session_timeout_ms(self, member: StreamsMember) -> int:
        """Returns the session timeout of the group's settings."""
        return self.shard.streams.settings(self.group_id).session_timeout_ms

    # ---- changes by records; only replay calls these

    def put_epoch(self, epoch: int, metadata_hash: int, validated_epoch: int, configs: AssignmentConfigs) -> None:
        """Sets the group epoch and the values recorded with it. A change of one of these values raises the epoch."""
        self.set_epoch(epoch, metadata_hash)
        self.validated_epoch = validated_epoch
        self.assignment_configs = configs
        self._changed()

    def put_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """Sets the epoch of a complete target assignment."""
        super().put_assignment_epoch(epoch, timestamp_ms)
        self._changed()

    def put_topology(self, topology: Topology | None) -> None:
        """Sets the topology; None removes it."""
        before, self.topology = self.topology, topology
        self.configured = None
        if self._registered:
            old = frozenset[str]() if before is None else before.required_topics
            new = frozenset[str]() if topology is None else topology.required_topics
            for name in old - new:
                self.shard.topic_subscribed(self.group_id, name, False)
            for name in new - old:
                self.shard.topic_subscribed(self.group_id, name, True)
            self.count_metadata(
                (0 if topology is None else topology.size_bytes) - (0 if before is None else before.size_bytes)
            )
        self._changed()

    def put_metadata(self, member_id: str, metadata: MemberMetadata) -> None:
        """Sets a member's metadata; adds the member if it is new."""
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = StreamsMember(self, member_id, metadata)
            self._count(member, 1)
            self.count_metadata(own_bytes(member_id, metadata))
            if self.live:
                self.keep_session(member)
                self.shard.meters.joins["streams"] += 1
        else:
            before = member.metadata
            self.count_metadata(own_bytes(member_id, metadata) - own_bytes(member_id, before))
            if before.process_id != metadata.process_id:
                self.processes.replace(member.current, before.process_id, member.current, metadata.process_id)
            member.set_metadata(metadata)
        self._changed()

    def remove(self, member: StreamsMember) -> None:
        """Removes a member."""
        self._count(member, -1)
        self.count_metadata(-own_bytes(member.member_id, member.metadata))
        del self.members[member.member_id]
        self.processes.replace(member.current, member.metadata.process_id, None, "")
        member.stop()
        if self.live:
            self.shard.meters.leaves["streams"] += 1
        if not self.members:
            self.shutdown_member = None
        self._changed()

    def put_current(self, member: StreamsMember, current: CurrentAssignment) -> None:
        """Sets a member's current assignment.

        Unless the shard is loading, arms the revocation timer if tasks must be revoked.
        """
        process_id = member.metadata.process_id
        self.processes.replace(member.current, process_id, current, process_id)
        self._count(member, -1)
        member.move(current)
        self._count(member, 1)
        if self.live:
            self.await_revocation(member)
        self._changed()

    def _count(self, member: StreamsMember, step: int) -> None:
        if member.current.state is STABLE:
            add_count(self.reconciled, member.current.member_epoch, step)

    def _changed(self) -> None:
        self.rest_epoch = NEVER
        self.count_state()

    # ---- soft state

    def topic_changed(self) -> None:
        """Makes the next heartbeat check the topics again."""
        self.topics_changed = True
        self.rest_epoch = NEVER

    def request_shutdown(self, member_id: str) -> None:
        """Stores the first member that requested the shutdown of the application."""
        if self.shutdown_member is None:
            self.shutdown_member = member_id
        self.rest_epoch = NEVER

    def set_configured(self, configured: ConfiguredTopology) -> None:
        """Sets the configured topology. Discards the cached endpoints, whose partitions may have changed."""
        self.configured = configured
        for member in self.members.values():
            member.endpoint_view = None

    def note_rest(self, member: StreamsMember, settings: StreamsSettings) -> None:
        """Registers that a member's heartbeat found no work, and that its response has no status.

        The fast path may then serve the member's next heartbeats. The first call after a change of the group removes
        the registrations of all other members, because their next heartbeats may find work.
        """
        if self.rest_epoch != self.group_epoch:
            for other in self._resting:
                other.rest_epoch = NEVER
            self._resting.clear()
        if member.rest_epoch != self.group_epoch:
            self._resting.append(member)
        self.rest_epoch = member.rest_epoch = self.group_epoch
        self.rest_settings = settings

    def await_revocation(self, member: StreamsMember) -> None:
        """Restarts a member's revocation timer if it must revoke tasks, else cancels the timer."""
        if member.revocation_timer is not None:
            member.revocation_timer.disarm()
            member.revocation_timer = None
        if member.current.state is UNREVOKED and member.current.member_epoch >= 0:
            member.revocation_timer = RevocationTimer.armed(member)

    def fence(self, member: StreamsMember) -> list[Record]:
        """Returns the records that remove a member."""
        return leave.fence(self, member)

    # ---- Group

    def state_filter_name(self) -> str:
        """Returns the name that a filter of ListGroups matches."""
        return self.state.filter_name

    def member_epoch(self, member: StreamsMember) -> int:
        """Returns the epoch of a member."""
        return member.current.member_epoch

    def had_all(self, member: StreamsMember, epoch: int, topics: Iterable[PlannedTopic]) -> bool:
        """Returns True if the member has owned the task of each partition in a commit since `epoch` or earlier."""
        if self.topology is None:
            return False
        assigned, revoking = member.current.assigned.active, member.current.revoking.active
        for requested_topic, topic, codes in topics:
            part = self.topology.subtopology_of.get(topic.name)
            for i, requested in enumerate(requested_topic.partitions):
                if codes is not None and codes[i]:
                    continue  # already refused
                if part is None:
                    return False
                partition = requested.partition_index
                since = assigned.get(part, NO_PARTITIONS).get(partition)
                if since is None:
                    since = revoking.get(part, NO_PARTITIONS).get(partition)
                if since is None or since > epoch:
                    return False
        return True

    def validate_offset_delete(self) -> ErrorCode:
        """Returns NONE: offsets of topics that the topology does not read may be deleted at any time."""
        return NO_ERROR

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns True if the group has members and its topology reads `topic`."""
        return topic in self._subscribed_topics()

    def offset_expiration_base(self) -> ExpirationBase | None:
        """Returns the rules of expiration: the retention time of an offset starts at its commit.

        While the group has members, offsets of the topology's input topics do not expire.
        """
        return ExpirationBase(None, self._subscribed_topics())

    def _subscribed_topics(self) -> Container[str]:
        return self.topology.subtopology_of if self.members and self.topology is not None else ()

    def tombstones(self) -> list[Record]:
        """Returns the tombstones of all records of the group."""
        return group_tombstones(self)

    def on_loaded(self) -> None:
        """Starts all timers. The rebalance timeout of members that must revoke tasks starts again."""
        self.live = True
        for member in self.members.values():
            self.keep_session(member)
            self.await_revocation(member)

    def on_replaced(self) -> None:
        """Ends the group when a group of another kind takes its id in the same shard."""
        self.put_topology(None)  # the shard forgets the topics of the topology
        self.on_unloaded()
