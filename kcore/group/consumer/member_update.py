"""One member's step: what it says, what follows for the group's epoch, its target, and where the member is then.

Both protocols come here: a heartbeat of the new one, and a JoinGroup of a member that speaks the classic one. Nothing
of the group is changed; the records say what is to be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.errors import KafkaError
from kcore.group.consumer import records as group_records
from kcore.group.consumer import target as targets
from kcore.group.consumer.assignment import NO_TARGET, CurrentAssignment, Reported, Target
from kcore.group.consumer.reconcile import reconcile
from kcore.group.consumer.regex import check_regex, schedule_resolution
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.consumer.member import ConsumerMember, MemberMetadata
    from kcore.runtime.machine import Record


class MemberChange:
    """A member on its way through one decision.

    Attributes:
        group: its group, as it is.
        member_id: its id.
        member: what the group has under that id; None for a new member, also for one that takes another's place.
        replaced: the static member whose place it takes, or None.
        before: what it said; what the replaced one said; None for a new member.
        metadata: what it says now.
        current: where it is before the decision.
        after: where it is after it.
        records: what the decision writes.
        group_epoch: the group's epoch after the decision.
        subscription_changed: whether it reads something else now.
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
        told = member if member is not None else replaced
        self.before = None if told is None else told.metadata
        self.current = current
        self.after = current
        self.records = records
        self.group_epoch = group.group_epoch
        self.subscription_changed = False
        self._dropped_regex = ""

    @property
    def target(self) -> Target:
        """What it shall have, before a new target is computed: a replaced member's passes on to it."""
        return self.group.target_of(self.member_id if self.replaced is None else self.replaced.member_id)

    def replace(self, old: ConsumerMember) -> None:
        """Writes that the member takes a static member's place: whatever that one had is the new one's."""
        group_id = self.group.group_id
        self.records += group_records.member_tombstones(group_id, old.member_id)
        self.records.append(group_records.member_metadata(group_id, self.member_id, old.metadata))
        self.records.append(group_records.target_assignment(group_id, self.member_id, self.target))
        self.records.append(group_records.current_assignment(group_id, self.member_id, self.current))

    # ---- what it says

    def say(
        self, metadata: MemberMetadata, *, visible: Callable[[str], bool] | None, any_regex_counts: bool = False
    ) -> None:
        """The member says something of itself; the group's epoch moves if that changes what the group reads.

        Args:
            metadata: what it says.
            visible: which topics whoever asks may see; None: all.
            any_regex_counts: whether a pattern that is not resolved yet moves the epoch, too.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION; UNKNOWN_SERVER_ERROR for more names than a record can hold.
        """
        group, before = self.group, self.before
        self.metadata = metadata
        if before is None or before.names is not metadata.names:
            self._check_names(metadata.names)
        if before is not metadata and (before is None or before != metadata):
            self.records.append(group_records.member_metadata(group.group_id, self.member_id, metadata))
        names_changed = (
            bool(metadata.names) if before is None else before is not metadata and before.names != metadata.names
        )
        regex_changed, resolved = self._change_regex("" if before is None else before.regex, metadata.regex)
        self.subscription_changed = names_changed or regex_changed
        self._move_epoch(names_changed or resolved or (regex_changed and any_regex_counts))
        schedule_resolution(group, metadata.regex if regex_changed else "", self._dropped_regex, visible)

    def _check_names(self, names: frozenset[str]) -> None:
        """Refuses what could not be written in the end, before much is done with it: a million names took seconds."""
        most = self.group.shard.max_record_bytes
        if sum(map(len, names)) > most:
            message = f"a subscription to {len(names)} topics is longer than the {most} bytes that may be written"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)

    def _change_regex(self, old: str, new: str) -> tuple[bool, bool]:
        """Whether the pattern changed, and whether what it matches is known already."""
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
        if refresh_due or self._reads_other_topics():
            topics = group.subscriptions.topics_after(self.before, self.metadata, self._dropped_regex)
            metadata_hash = group.shard.consumer.metadata.hash_of(topics)
            bump = bump or metadata_hash != group.metadata_hash
        if bump:
            self.group_epoch += 1
            self.records.append(group_records.group_epoch(group.group_id, self.group_epoch, metadata_hash))
        group.topics_seen(self.group_epoch)
        if group.has_legacy_metadata:
            self.records.append(group_records.legacy_metadata_tombstone(group.group_id))

    def _reads_other_topics(self) -> bool:
        """Whether the group as a whole begins or ceases to read a topic: only then the hash can be another one."""
        if self._dropped_regex:
            return True
        subscriptions = self.group.subscriptions
        old = frozenset() if self.before is None else self.before.names
        new = self.metadata.names
        if old is new or (not old and new <= subscriptions.names.keys()):
            return False
        return any(name not in subscriptions for name in new - old) or any(
            subscriptions.names[name] == 1 for name in old - new
        )

    # ---- what it shall have, and has

    def reconcile(self, reported: Reported | None) -> None:
        """Computes a new target if one is due, and takes the member a step towards its own.

        Args:
            reported: what the member says it uses; None if it does not say.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH (see `states.Step.FENCE`); UNKNOWN_SERVER_ERROR if the assignor failed.
        """
        group = self.group
        target_epoch, target = targets.update(self)
        current = self.current
        if not self.subscription_changed and current.member_epoch == target_epoch and not current.state:
            return  # at rest
        topics, by_id = group.subscriptions.topics_of(self.metadata), group.shard.topics.by_id

        def subscribed(topic_id: bytes) -> bool:
            topic = by_id(topic_id)
            return topic is not None and topic.name in topics

        by_name = group.shard.topics.by_name
        self.after = reconcile(
            current,
            target_epoch,
            target or NO_TARGET,
            owners=group.owners,
            reported=reported,
            subscribed=subscribed,
            subscribes_to_something=lambda: any(by_name(name) is not None for name in topics),
            changed=self.subscription_changed,
        )
        if self.after is not current:
            self.records.append(group_records.current_assignment(group.group_id, self.member_id, self.after))
