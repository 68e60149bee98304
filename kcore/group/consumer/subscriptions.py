"""What a group reads, all members together: names, patterns and what they match, wishes for an assignor. Counted, so
that a member that comes, goes or changes costs what it changes and not what the group is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kcore.group.consumer.member import MemberMetadata


NO_NAMES: Final[frozenset[str]] = frozenset()


class ResolvedRegex(NamedTuple):
    """What a pattern matched.

    Attributes:
        topics: the topics' names.
        version: of the metadata that was looked at.
        timestamp_ms: when it was looked at, milliseconds since the epoch.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def _count(counts: dict[str, int], key: str, change: int) -> bool:
    """Counts; whether the key came or went with it."""
    before = counts.get(key, 0)
    after = before + change
    assert after >= 0, f"{key} is counted below nothing"
    if after:
        counts[key] = after
    else:
        del counts[key]
    return not before or not after


class Subscriptions:
    """The subscriptions of a group's members.

    Attributes:
        names: how many members subscribe to a topic by name.
        regexes: how many members subscribe to a pattern.
        resolved: what patterns matched.
        matched: how many of the patterns matched a topic.
        assignors: how many members want an assignor.
        classic_members: how many members speak the classic protocol.
        classic_protocols: how many of these support a protocol.
    """

    __slots__ = (
        "_on_topic",
        "assignors",
        "classic_members",
        "classic_protocols",
        "matched",
        "names",
        "regexes",
        "resolved",
    )

    def __init__(self, on_topic: Callable[[str, bool], None]) -> None:
        """`on_topic(name, subscribed)` is told of topics that begin or cease to be read by anybody."""
        self._on_topic = on_topic
        self.names: dict[str, int] = {}
        self.regexes: dict[str, int] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        self.matched: dict[str, int] = {}
        self.assignors: dict[str, int] = {}
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}

    def __contains__(self, topic: object) -> bool:
        """Whether any member reads the topic, by name or by a pattern."""
        return topic in self.names or topic in self.matched

    def __iter__(self) -> Iterator[str]:
        """The topics that are read, each once."""
        names = self.names
        yield from names
        for topic in self.matched:
            if topic not in names:
                yield topic

    # ---- changes, for replay

    def change(self, before: MemberMetadata | None, after: MemberMetadata | None) -> None:
        """A member came (`before` is None), went (`after` is None) or changed."""
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
        """A pattern was looked up (again), or is gone (None)."""
        before = self.resolved.pop(regex, None)
        if resolved is not None:
            self.resolved[regex] = resolved
        old = frozenset() if before is None else before.topics
        new = frozenset() if resolved is None else resolved.topics
        for name in new - old:
            self._topic(self.matched, name, 1)
        for name in old - new:
            self._topic(self.matched, name, -1)

    def _topic(self, counts: dict[str, int], name: str, step: int) -> None:
        known = name in self
        _count(counts, name, step)
        if (name in self) is not known:
            self._on_topic(name, not known)

    # ---- what would be

    def topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """The topics a member reads: its names, and what its pattern matched when it was last looked up."""
        resolved = self.resolved.get(metadata.regex) if metadata.regex else None
        return metadata.names if resolved is None else metadata.names | resolved.topics

    def topics_after(
        self, before: MemberMetadata | None, after: MemberMetadata | None, dropped_regex: str = ""
    ) -> set[str]:
        """The topics that are read once a member has changed.

        Args:
            before: what it said; None for a new member.
            after: what it says; None if it goes.
            dropped_regex: a pattern that nobody has any more then.
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
