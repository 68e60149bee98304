"""The steps of a heartbeat: metadata, topology, group epoch, target, and the resulting tasks of the member.

These steps create records, and do not change the durable state of the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.errors import KafkaError
from kcore.group.metadata_bound import check_room
from kcore.group.streams import records as group_records
from kcore.group.streams import target as targets
from kcore.group.streams.configure import ConfiguredTopology, Status, TopicFault, configure
from kcore.group.streams.group import NOT_VALIDATED
from kcore.group.streams.member import own_bytes
from kcore.group.streams.reconcile import reconcile
from kcore.group.streams.states import STABLE
from kcore.group.streams.timers import start_initial_delay
from kcore.group.streams.topology import Topology, from_request, is_same
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.group.heartbeat_parts import HeartbeatPart
    from kcore.group.streams.group import StreamsGroup
    from kcore.group.streams.member import MemberMetadata, StreamsMember
    from kcore.group.streams.preparation import PreparedTopology
    from kcore.group.streams.tasks import CurrentAssignment, Report
    from kcore.protocol.messages.streams_group_heartbeat import Topology as RequestedTopology
    from kcore.runtime.machine import Record


class MemberChange:
    """The change of one member and its group by a heartbeat. The steps of the decision fill the attributes.

    Attributes:
        group: the member's group, before the decision.
        member_id: identifies the member in the group.
        member: the existing member with this id; None for a new member.
        metadata: the member's new metadata.
        current: the member's assignment before the decision.
        after: the member's assignment after the decision.
        records: the records so far.
        statuses: the statuses of the response so far.
        settings: the group's settings.
        prepared: the requested topology, if earlier slices have prepared it and it equals the group's topology; else
            None.
        topology: the group's topology after the decision.
        configured: the result of configuring `topology`.
        group_epoch: the group's epoch after the decision.
    """

    __slots__ = (
        "_metadata_changed",
        "after",
        "configured",
        "current",
        "group",
        "group_epoch",
        "member",
        "member_id",
        "metadata",
        "prepared",
        "records",
        "settings",
        "statuses",
        "topology",
    )

    topology: Topology
    configured: ConfiguredTopology

    def __init__(
        self,
        group: StreamsGroup,
        member_id: str,
        member: StreamsMember | None,
        current: CurrentAssignment,
        metadata: MemberMetadata,
        records: list[Record],
        prepared: PreparedTopology | None = None,
    ) -> None:
        self.group = group
        self.member_id = member_id
        self.member = member
        self.current = current
        self.after = current
        self.metadata = metadata
        self.records = records
        self.prepared = prepared
        self.statuses: list[TopicFault] = []
        self.settings = group.shard.streams.settings(group.group_id)
        self.group_epoch = group.group_epoch
        self._metadata_changed = member is None or (member.metadata is not metadata and member.metadata != metadata)
        if self._metadata_changed:
            records.append(group_records.member_metadata(group.group_id, member_id, metadata))

    def set_topology(self, requested: RequestedTopology | None) -> None:
        """Sets the group's topology if the group has none; otherwise compares the requested topology with the group's.

        Raises:
            KafkaError: INVALID_REQUEST if the requested topology differs from the group's. UNKNOWN_SERVER_ERROR if
                there is no topology, or if `refuse_impossible` refuses the requested topology.
        """
        group, present = self.group, self.group.topology
        if present is None:
            if requested is None:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"group {group.group_id} has no topology")
            self.topology = from_request(requested) if self.prepared is None else self.prepared.topology
            self.records.append(group_records.topology_record(group.group_id, self.topology))
            return
        self.topology = present
        prepared, self.prepared = self.prepared, None
        if prepared is None:
            same = requested is None or is_same(requested, present)
        else:
            same = prepared.topology == present
            if same:
                self.prepared = prepared
        if requested is not None and requested.epoch >= present.epoch and not same:
            message = (
                f"the topology differs from that of group {group.group_id}, which cannot change: delete the group first"
            )
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if self.metadata.topology_epoch < present.epoch:
            text = f"the member's topology epoch {self.metadata.topology_epoch} is behind the group's {present.epoch}"
            self.statuses.append(TopicFault(Status.STALE_TOPOLOGY, text))

    def check_room(self, before: MemberMetadata) -> None:
        """Refuses metadata of the member, or a new topology, that exceeds `kcore.max.group.metadata.bytes`.

        Args:
            before: the member's metadata before the decision; empty for a new member.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED.
        """
        group, member_id = self.group, self.member_id
        growth = 0 if self.topology is group.topology else self.topology.size_bytes
        if self._metadata_changed:
            growth += own_bytes(member_id, self.metadata)
            growth -= 0 if self.member is None else own_bytes(member_id, before)
        if growth > 0:
            check_room(group, growth)

    def move_epoch(self, report: Report | None) -> None:
        """Configures the topology if its topics may have changed. Raises the group epoch if the assignment may change.

        Args:
            report: the tasks that the member reports; None if it sends no report.

        Raises:
            KafkaError: STREAMS_INVALID_TOPOLOGY if the topology is invalid; INVALID_REQUEST if the member reports tasks
                that the topology does not have.
        """
        group = self.group
        bump = self._metadata_changed
        metadata_hash = group.metadata_hash
        configured = group.configured
        if group.topology is None or configured is None or group.topics_changed:
            metadata_hash = group.shard.streams.metadata.hash_of(self.topology.required_topics)
            changed = metadata_hash != group.metadata_hash
            bump = bump or changed
            if changed or group.topology is None or configured is None:
                configured = self._configured(metadata_hash)
                group.set_configured(configured)
            # stays True until the new hash is durable, because this decision may still be refused
            group.topics_changed = changed
        self.configured = configured
        validated_epoch = NOT_VALIDATED
        if configured.is_ready:
            validated_epoch = self.topology.epoch
            if report is not None:
                check_report(report, configured)
        configs = self.settings.assignment_configs
        if bump or validated_epoch != group.validated_epoch or configs != group.assignment_configs:
            self.group_epoch += 1
            self.records.append(
                group_records.group_epoch(group.group_id, self.group_epoch, metadata_hash, validated_epoch, configs)
            )
        if not group.members and self.settings.initial_rebalance_delay_ms > 0:
            start_initial_delay(group.shard, group.group_id, self.settings.initial_rebalance_delay_ms)

    def _configured(self, metadata_hash: int) -> ConfiguredTopology:
        """Returns the configured topology.

        Earlier slices may have configured it. Their result is valid if the hash of the topics has not changed since.
        """
        prepared = self.prepared
        if prepared is not None and prepared.configured is not None and prepared.metadata_hash == metadata_hash:
            return prepared.configured
        return configure(self.topology, self.group.shard.topics)

    def reconcile(self, report: Report | None, part: HeartbeatPart) -> None:
        """Computes the targets of all members if new ones are due, and moves this member one step towards its target.

        Args:
            report: the tasks that the member reports; None if it sends no report.
            part: the part of the heartbeat. If a later part moves the member, this method leaves the member unchanged
                after it has computed new targets.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH if the member must drop its tasks and rejoin; UNKNOWN_SERVER_ERROR if the
                assignor failed.
        """
        group, current = self.group, self.current
        if part.computes_target:
            target_epoch, target = targets.update(self)
            if target_epoch != group.assignment_epoch and not part.assigns:
                return
        else:
            target_epoch, target = group.assignment_epoch, group.target_of(self.member_id)
        if current.member_epoch == target_epoch and current.state is STABLE:
            return  # already reconciled
        self.after = reconcile(
            current,
            target_epoch,
            target,
            process_id=self.metadata.process_id,
            processes=group.processes,
            report=report,
        )
        if self.after is not current:
            self.records.append(group_records.current_assignment(group.group_id, self.member_id, self.after))


def check_report(report: Report, configured: ConfiguredTopology) -> None:
    """Refuses reported tasks that the topology does not have.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    parts = configured.subtopologies or {}
    for entries in report:
        for entry in entries:
            part = parts.get(entry.subtopology_id)
            if part is None:
                message = f"the topology has no subtopology {entry.subtopology_id}"
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            for partition in entry.partitions:
                if not 0 <= partition < part.tasks:
                    message = f"subtopology {entry.subtopology_id} has {part.tasks} tasks, not task {partition}"
                    raise KafkaError(ErrorCode.INVALID_REQUEST, message)
