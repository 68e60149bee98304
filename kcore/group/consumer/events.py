"""What groups tell: who watches a group hears of each durable change of it, without asking."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kcore.group.consumer.states import MemberState

if TYPE_CHECKING:
    from kcore.group.consumer.assignment import Owned
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.log.errors import LogError
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.topics import TopicImage

logger = logging.getLogger(__name__)

Partitions = Mapping[str, tuple[int, ...]]
"""Topic name -> partitions, ascending; topics that are gone are left out."""


class MemberView(NamedTuple):
    """A member as of an event.

    Attributes:
        member_id: its id.
        instance_id: its instance id, None for a dynamic member.
        client_id: its client's name for itself.
        member_epoch: its epoch; -2 for a static member that is away.
        state: its state.
        assigned: what it may use. While it may, nobody else may, and its `member_epoch` fences it.
        revoking: what it was told to give up and has not confirmed; nobody else may use it yet.
        target: what it shall have.
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
    """A group as of a commit that changed it.

    Attributes:
        group_id: the group.
        state: its state, in Kafka's words; "Dead" if it is no consumer group any more.
        group_epoch: its epoch.
        assignment_epoch: the epoch of the targets.
        members: its members by id.
    """

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    members: Mapping[str, MemberView]


Watcher = Callable[[GroupChanged], None]


class GroupEvents:
    """Who watches which group. One event a commit and group, however many facts it held.

    Args:
        topics: names of topic ids.
        pipeline: says when what changed is durable.
    """

    allows_background_commit = False  # an event tells of a group as it is when the commit is over

    __slots__ = ("_changed", "_pipeline", "_topics", "_watchers")

    def __init__(self, topics: TopicImage, pipeline: CommitPipeline | None) -> None:
        self._topics = topics
        self._pipeline = pipeline
        self._watchers: dict[str, list[Watcher]] = {}
        self._changed: dict[str, ConsumerGroup] = {}

    def watch(self, group_id: str, watcher: Watcher) -> Callable[[], None]:
        """Calls `watcher` after each commit that changed the group, from now on; the group need not exist yet.

        It is called on the engine's own thread, before answers go out, and must not call the engine: it hands the event
        over. What it raises is logged.

        Returns:
            What to call to hear no more.
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
        """A group changed in this round."""
        if group.group_id in self._watchers and self._pipeline is not None:
            self._changed[group.group_id] = group
            self._pipeline.enlist(self)

    # ---- Participant

    def seal(self) -> None:
        """Nothing to write."""

    def committed(self) -> None:
        """What changed is durable: tells."""
        changed, self._changed = self._changed, {}
        for group_id, group in changed.items():
            event = self.event_of(group)
            for watcher in list(self._watchers.get(group_id, ())):
                try:
                    watcher(event)
                except Exception:
                    logger.exception("whoever watches group %s failed", group_id)

    def failed(self, error: LogError) -> None:
        """Nothing changed."""
        self._changed = {}

    # ---- views

    def event_of(self, group: ConsumerGroup) -> GroupChanged:
        """A group as it is now."""
        there = group.shard.groups.get(group.group_id) is group
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
        state = group.state_name() if there else "Dead"
        return GroupChanged(group.group_id, state, group.group_epoch, group.assignment_epoch, members)

    def _named(self, partitions: Owned | Mapping[bytes, tuple[int, ...]]) -> Partitions:
        found = {}
        for topic_id, of_topic in partitions.items():
            topic = self._topics.by_id(topic_id)
            if topic is not None:
                found[topic.name] = tuple(sorted(of_topic))
        return found
