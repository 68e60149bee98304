"""The update of one member in a decision: metadata, group epoch, target, and its resulting assignment.

Heartbeats of the new protocol and JoinGroup requests of classic members use this module. It creates records, and does
not change the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.errors import KafkaError
from kcore.group.consumer import records as group_records
from kcore.group.consumer import target as targets
from kcore.group.consumer.assignment import NO_TARGET, CurrentAssignment, Reported, Target
from kcore.group.consumer.member import own_bytes
from kcore.group.consumer.reconcile import reconcile
from kcore.group.consumer.regex import check_regex, schedule_resolution
from kcore.group.consumer.subscriptions import NO_NAMES
from kcore.group.metadata_bound import check_room
from kcore.group.name_bound import check_names
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.group.consumer_assignment import SubscribedTopics

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.consumer.member import ConsumerMember, MemberMetadata
    from kcore.runtime.machine import Record


class MemberChange:
    """The change of one member in one decision.

    Attributes:
        group: the member's group, before the decision.
        member_id: identifies the member in the group.
        member: the existing member with this id; None for a new member, even if the new member replaces another.
        replaced: the static member that the new member replaces, or None.
        before: the metadata of `member` or `replaced` before the decision; None if both are None.
        metadata: the member's new metadata.
        current: the member's assignment before the decision.
        after: the member's assignment after the decision.
        records: the records of the decision.
        group_epoch: the group's epoch after the decision.
        subscription_changed: whether the member's subscription changed.
    """

    __slots__ = (
        "_dropped_regex",
        "after",
        "before",
        "current",
        "group",
        "group_epoch",
        "member",
        "member_id",
        "metadata",
        "records",
        "replaced",
        "subscription_changed",
    )

    metadata: MemberMetadata

    def __init__(
        self,
        group: ConsumerGroup,
        member_id: str,
        member: ConsumerMember | None,
        current: CurrentAssignment,
        records: list[Record],
        replaced: ConsumerMember | None = None,
    ) -> None:
        self.group = group
        self.member_id = member_id
        self.member = member
        self.replaced = replaced
        predecessor = member if member is not None else replaced
        self.before = None if predecessor is None else predecessor.metadata
        self.current = current
        self.after = current
        self.records = records
        self.group_epoch = group.group_epoch
        self.subscription_changed = False
        self._dropped_regex = ""

    @property
    def target(self) -> Target:
        """The member's target before a new target is computed.

        A member that replaces a static member has the target of that member.
        """
        return self.group.target_of(self.member_id if self.replaced is None else self.replaced.member_id)

    def replace(self, old: ConsumerMember) -> None:
        """Adds the records by which the member replaces a static member and inherits that member's state."""
        group_id = self.group.group_id
        self.records += group_records.member_tombstones(group_id, old.member_id)
        self.records.append(group_records.member_metadata(group_id, self.member_id, old.metadata))
        self.records.append(group_records.target_assignment(group_id, self.member_id, self.target))
        self.records.append(group_records.current_assignment(group_id, self.member_id, self.current))

    # ---- metadata

    def set_metadata(
        self, metadata: MemberMetadata, *, visible: Callable[[str], bool] | None, any_regex_counts: bool = False
    ) -> None:
        """Sets the member's metadata. Raises the group epoch if the new metadata changes the group's topics.

        Args:
            metadata: the new metadata.
            visible: returns True for a topic that the client may see; patterns match only these topics. None: all
                topics.
            any_regex_counts: True if each change of the pattern raises the epoch. False if the change raises the epoch
                only when the topics of the new pattern are known.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION; UNKNOWN_SERVER_ERROR if the names do not fit into a record;
                GROUP_MAX_SIZE_REACHED if the group would have too many names or too much metadata.
        """
        group, before = self.group, self.before
        self.metadata = metadata
        if before is None or before.names is not metadata.names:
            self._check_names(metadata)
        if before is not metadata and (before is None or before != metadata):
            self._check_room(metadata)
            self.records.append(group_records.member_metadata(group.group_id, self.member_id, metadata))
        names_changed = (
            bool(metadata.names) if before is None else before is not metadata and before.names != metadata.names
        )
        regex_changed, resolved = self._change_regex("" if before is None else before.regex, metadata.regex)
        self.subscription_changed = names_changed or regex_changed
        self._move_epoch(names_changed or resolved or (regex_changed and any_regex_counts))
        schedule_resolution(group, metadata.regex if regex_changed else "", self._dropped_regex, visible)

    def _check_names(self, metadata: MemberMetadata) -> None:
        """Refuses topic names that exceed the maximum record size or the group's limit on names.

        This check runs first, because later code examines every name, and a request may have a million names. The
        record of a classic member contains the names as a list, and again in the subscriptions from its JoinGroup.
        """
        most = self.group.shard.max_record_bytes
        size_bytes = sum(map(len, metadata.names))
        if metadata.classic is not None:
            size_bytes += sum(len(subscription) for _, subscription in metadata.classic.protocols)
        if size_bytes > most:
            message = f"a subscription to {len(metadata.names)} topics exceeds the maximum record size of {most} bytes"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        group = self.group
        before = NO_NAMES if self.before is None else self.before.names
        elements = group.shard.config.kcore_max_request_elements
        check_names(group.group_id, group.subscriptions.names, before, metadata.names, elements)

    def _check_room(self, metadata: MemberMetadata) -> None:
        """Refuses metadata that exceeds `kcore.max.group.metadata.bytes`."""
        group, before = self.group, self.before
        subscriptions = group.subscriptions
        former_id = self.member_id if self.replaced is None else self.replaced.member_id
        names = NO_NAMES if before is None else before.names
        growth = subscriptions.sets.growth(subscriptions.names, names, metadata.names)
        check_room(group, growth + own_bytes(self.member_id, metadata) - own_bytes(former_id, before))

    def _change_regex(self, old: str, new: str) -> tuple[bool, bool]:
        """Returns two flags: whether the pattern changed, and whether the topics of the new pattern are known.

        The topics are known if the group has already resolved the pattern, or if there is no new pattern.
        """
        if old == new:
            return False, False
        group = self.group
        subscribers = group.subscriptions.regexes
        if old and subscribers.get(old) == 1:
            self._dropped_regex = old
            self.records.append(group_records.regular_expression_tombstone(group.group_id, old))
        if not new:
            return True, True
        if new not in subscribers:
            check_regex(new)
            return True, False
        return True, new in group.subscriptions.resolved

    def _move_epoch(self, bump: bool) -> None:
        group = self.group
        refresh_due = group.refresh_due()
        if not (bump or refresh_due):
            return
        metadata_hash = group.metadata_hash
        if refresh_due or self._changes_group_topics():
            topics = group.subscriptions.topics_after(self.before, self.metadata, self._dropped_regex)
            metadata_hash = group.shard.consumer.metadata.hash_of(topics)
            bump = bump or metadata_hash != group.metadata_hash
        if bump:
            self.group_epoch += 1
            self.records.append(group_records.group_epoch(group.group_id, self.group_epoch, metadata_hash))
        group.topics_seen(self.group_epoch)
        if group.has_legacy_metadata:
            self.records.append(group_records.legacy_metadata_tombstone(group.group_id))

    def _changes_group_topics(self) -> bool:
        """Returns True if the group's topics after the change may differ from those of the last group epoch."""
        if self._dropped_regex or self.group.hash_outdated:
            return True
        subscriptions = self.group.subscriptions
        old = frozenset() if self.before is None else self.before.names
        new = self.metadata.names
        if old is new or (not old and new <= subscriptions.names.keys()):
            return False
        return any(name not in subscriptions for name in new - old) or any(
            subscriptions.names[name] == 1 for name in old - new
        )

    # ---- target and assignment

    def reconcile(self, reported: Reported | None) -> None:
        """Computes the targets of all members if new ones are due, and moves this member one step towards its target.

        Args:
            reported: the partitions that the member reports; None if it sends no report.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH if the member must drop its partitions and rejoin; UNKNOWN_SERVER_ERROR if
                the assignor failed.
        """
        group = self.group
        target_epoch, target = targets.update(self)
        current = self.current
        if not self.subscription_changed and current.member_epoch == target_epoch and not current.state:
            return  # already reconciled
        topics = group.subscriptions.topics_of(self.metadata)
        self.after = reconcile(
            current,
            target_epoch,
            target or NO_TARGET,
            owners=group.owners,
            reported=reported,
            subscribed=SubscribedTopics(group.shard.topics.by_id, topics, group.shard.consumer.known_topics(topics)),
            has_topics=bool(topics),
            changed=self.subscription_changed,
        )
        if self.after is not current:
            self.records.append(group_records.current_assignment(group.group_id, self.member_id, self.after))
