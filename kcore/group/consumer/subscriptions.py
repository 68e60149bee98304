"""The subscriptions of all members of a group: names, patterns and their matches, requested assignors.

The module counts subscribers, so that the cost of a change depends on the changed member, not on the size of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.group.metadata_bound import TOPIC_BYTES, NameSets

if TYPE_CHECKING:
    from kcore.group.consumer.member import MemberMetadata


NO_NAMES: Final[frozenset[str]] = frozenset()


class ResolvedRegex(NamedTuple):
    """The topics that a pattern matched.

    Attributes:
        topics: the topics' names.
        version: the version of the metadata in which the pattern was resolved.
        timestamp_ms: time of the resolution, milliseconds since the epoch.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def _count(counts: dict[str, int], key: str, change: int) -> bool:
    """Changes a count; returns True if the key was added or removed."""
    before = counts.get(key, 0)
    after = before + change
    assert after >= 0, f"the count of {key} is negative"
    if after:
        counts[key] = after
    else:
        del counts[key]
    return not before or not after


class Subscriptions:
    """The subscriptions of a group's members.

    Attributes:
        names: for each topic name, the number of members that subscribe to it.
        regexes: for each pattern, the number of members that subscribe to it.
        resolved: for each pattern, the topics that it matched.
        matched: for each topic name, the number of patterns that matched it.
        assignors: for each assignor, the number of members that request it.
        classic_members: number of members that use the classic protocol.
        classic_protocols: for each protocol, the number of classic members that support it.
        sets: the different sets of topic names to which members subscribe.
    """

    __slots__ = (
        "_on_topic",
        "_on_topics",
        "assignors",
        "classic_members",
        "classic_protocols",
        "matched",
        "names",
        "regexes",
        "resolved",
        "sets",
    )

    def __init__(
        self,
        on_topic: Callable[[str, bool], None],
        on_topics: Callable[[Iterable[str], bool], None] | None = None,
    ) -> None:
        """Sets the callbacks.

        Args:
            on_topic: called with (name, subscribed) when a topic gets its first or loses its last subscriber.
            on_topics: called with (names, subscribed) in place of `on_topic` when many topics get their first or lose
                their last subscriber together. If it is None, `on_topic` is called for each of these topics.
        """
        self._on_topic = on_topic
        self._on_topics = on_topics
        self.names: dict[str, int] = {}
        self.regexes: dict[str, int] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        self.matched: dict[str, int] = {}
        self.assignors: dict[str, int] = {}
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}
        self.sets = NameSets()

    def __contains__(self, topic: object) -> bool:
        """Returns True if any member subscribes to the topic, by name or by a pattern."""
        return topic in self.names or topic in self.matched

    def __iter__(self) -> Iterator[str]:
        """Iterates over the subscribed topics, each once."""
        names = self.names
        yield from names
        for topic in self.matched:
            if topic not in names:
                yield topic

    @property
    def size_bytes(self) -> int:
        """The memory of the subscribed names for the metadata limit, in bytes. The matches of patterns do not count."""
        return self.sets.size_bytes + TOPIC_BYTES * len(self.names)

    # ---- changes, for replay

    def change(self, before: MemberMetadata | None, after: MemberMetadata | None) -> None:
        """Updates the counts for a member that joined (`before` is None), left (`after` is None) or changed."""
        names = self.names
        old_names = NO_NAMES if before is None else before.names
        new_names = NO_NAMES if after is None else after.names
        if old_names is not new_names:
            for name in new_names - old_names if old_names else new_names:
                readers = names.get(name)
                if readers is None:
                    self._topic(names, name, 1)
                else:
                    names[name] = readers + 1
            for name in old_names - new_names:
                self._topic(names, name, -1)
            self.sets.change(old_names, new_names)
        for metadata, step in ((before, -1), (after, 1)):
            if metadata is None:
                continue
            if metadata.regex:
                _count(self.regexes, metadata.regex, step)
            if metadata.server_assignor is not None:
                _count(self.assignors, metadata.server_assignor, step)
            if metadata.classic is not None:
                self.classic_members += step
                for name, _ in metadata.classic.protocols:
                    _count(self.classic_protocols, name, step)

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Sets the topics that a pattern matches; None removes the pattern."""
        before = self.resolved.pop(regex, None)
        if resolved is not None:
            self.resolved[regex] = resolved
        old = frozenset() if before is None else before.topics
        new = frozenset() if resolved is None else resolved.topics
        if old is new:
            return
        matched, names, on_topic = self.matched, self.names, self._on_topic
        if not (old or matched or names) and self._on_topics is not None:
            # The first pattern of a group may match 100,000 topics, and its record is replayed in one piece.
            matched.update(dict.fromkeys(new, 1))
            self._on_topics(new, True)
            return
        if not (new or self.resolved or names) and self._on_topics is not None:
            matched.clear()  # the last pattern of a group without other subscriptions
            self._on_topics(old, False)
            return
        for name in new - old if old else new:
            count = matched.get(name)
            matched[name] = 1 if count is None else count + 1
            if count is None and name not in names:
                on_topic(name, True)
        for name in old - new:
            self._topic(matched, name, -1)

    def _topic(self, counts: dict[str, int], name: str, step: int) -> None:
        was_subscribed = name in self
        _count(counts, name, step)
        if (name in self) is not was_subscribed:
            self._on_topic(name, not was_subscribed)

    # ---- queries

    def topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """Returns the topics of a member: its names, and the last matches of its pattern."""
        resolved = self.resolved.get(metadata.regex) if metadata.regex else None
        if resolved is None:
            return metadata.names
        names = metadata.names
        return names | resolved.topics if names and not names <= resolved.topics else resolved.topics

    def topics_after(
        self, before: MemberMetadata | None, after: MemberMetadata | None, dropped_regex: str = ""
    ) -> set[str]:
        """Returns the group's topics after a change of one member.

        Args:
            before: the member's previous metadata; None for a new member.
            after: the member's new metadata; None if the member leaves.
            dropped_regex: a pattern that has no subscriber after the change.
        """
        topics = set(self.names)
        old_names = frozenset() if before is None else before.names
        new_names = frozenset() if after is None else after.names
        topics.difference_update(name for name in old_names - new_names if self.names[name] == 1)
        topics.update(new_names)
        for regex, resolved in self.resolved.items():
            if regex != dropped_regex:
                topics.update(resolved.topics)
        return topics
