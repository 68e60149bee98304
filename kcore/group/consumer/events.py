"""Events that report each durable change of a consumer group to its watchers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kcore.group.consumer.states import MemberState
from kcore.process_logging import log_name

if TYPE_CHECKING:
    from kcore.group.consumer.assignment import Owned
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.log.errors import LogError
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.topics import TopicImage

logger = logging.getLogger(__name__)

Partitions = Mapping[str, tuple[int, ...]]
"""Topic name -> partitions, ascending; deleted topics are omitted."""


class MemberView(NamedTuple):
    """A member at the time of an event.

    Attributes:
        member_id: identifies the member in the group.
        instance_id: the member's group instance id, None for a dynamic member.
        client_id: the client id of the member's requests.
        member_epoch: the member's epoch; -2 for a static member that left temporarily.
        state: the member's progress towards its target assignment.
        assigned: the partitions that the member may use. No other member may use them until the member has released
            them. A watcher can fence the member by its `member_epoch`.
        revoking: the partitions it must revoke and has not confirmed; no other member may use them yet.
        target: its target assignment.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    member_epoch: int
    state: MemberState
    assigned: Partitions
    revoking: Partitions
    target: Partitions


class GroupChanged(NamedTuple):
    """A group after a commit that changed it.

    Attributes:
        group_id: the changed group.
        state: Kafka's name of the group's state; "Dead" if the group is no longer a consumer group.
        group_epoch: rises with each change that affects the assignment.
        assignment_epoch: the epoch of the targets.
        members: the group's members by id.
    """

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    members: Mapping[str, MemberView]


Watcher = Callable[[GroupChanged], None]


class GroupEvents:
    """The watchers of groups. Each commit that changes a group produces one event, however many records the commit has.

    Args:
        topics: maps topic ids to names.
        pipeline: reports when changes are durable.
    """

    allows_background_commit = False  # an event must show the group as of the end of its commit

    __slots__ = ("_changed", "_pipeline", "_topics", "_watchers")

    def __init__(self, topics: TopicImage, pipeline: CommitPipeline | None) -> None:
        self._topics = topics
        self._pipeline = pipeline
        self._watchers: dict[str, list[Watcher]] = {}
        self._changed: dict[str, ConsumerGroup] = {}

    def watch(self, group_id: str, watcher: Watcher) -> Callable[[], None]:
        """Calls `watcher` after each later commit that changes the group; the group need not exist yet.

        The engine's thread calls `watcher`, before the engine sends the responses of the commit. The watcher must not
        call the engine, and should only hand the event to another thread. The engine logs exceptions of the watcher.

        Returns:
            A function that removes the watcher.
        """
        self._watchers.setdefault(group_id, []).append(watcher)

        def stop() -> None:
            watchers = self._watchers.get(group_id, [])
            if watcher in watchers:
                watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(group_id, None)

        return stop

    # ---- for replay

    def touch(self, group: ConsumerGroup) -> None:
        """Registers a changed group, so that the commit of the current round sends an event to its watchers."""
        if group.group_id in self._watchers and self._pipeline is not None:
            self._changed[group.group_id] = group
            self._pipeline.enlist(self)

    # ---- Participant

    def seal(self) -> None:
        """Does nothing: events add no records to the write set."""

    def committed(self) -> None:
        """Sends the events of the changes that are now durable."""
        changed, self._changed = self._changed, {}
        for group_id, group in changed.items():
            event = self.event_of(group)
            for watcher in list(self._watchers.get(group_id, ())):
                try:
                    watcher(event)
                except Exception:
                    logger.exception(
                        "group %s: the watcher %s of the group's events raised an error and missed one event; correct "
                        "the watcher",
                        group_id,
                        log_name(watcher),
                    )

    def failed(self, error: LogError) -> None:
        """Discards the changes of a failed commit."""
        self._changed = {}

    # ---- views

    def event_of(self, group: ConsumerGroup) -> GroupChanged:
        """Returns the current state of a group as an event."""
        exists = group.shard.groups.get(group.group_id) is group
        members = {
            member.member_id: MemberView(
                member.member_id,
                member.metadata.instance_id,
                member.metadata.client_id,
                member.current.member_epoch,
                member.current.state,
                self._named(member.current.assigned),
                self._named(member.current.revoking),
                self._named(group.target_of(member.member_id)),
            )
            for member in group.members.values()
        }
        state = group.state_name() if exists else "Dead"
        return GroupChanged(group.group_id, state, group.group_epoch, group.assignment_epoch, members)

    def _named(self, partitions: Owned | Mapping[bytes, tuple[int, ...]]) -> Partitions:
        named = {}
        for topic_id, of_topic in partitions.items():
            topic = self._topics.by_id(topic_id)
            if topic is not None:
                named[topic.name] = tuple(sorted(of_topic))
        return named
