"""What consumer groups need of the node they live on; one object for all of its group shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kcore.assignors import Topics, load_all
from kcore.errors import ConfigError
from kcore.group.consumer.events import GroupEvents
from kcore.group.consumer.metadata import TopicMetadata

if TYPE_CHECKING:
    from kcore.config.node import Config
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.topics import TopicImage, TopicInfo

KEPT_NAMES: Final = 262_144
"""How many names the subscriptions have that are kept once for all members with the same."""

MAX_KEPT_NAMES: Final = 16_384
"""How many names a subscription has at most that is kept."""

MAX_KEPT_CHARACTERS: Final = 249
"""Characters of a name in a subscription that is kept: no topic has a longer one, but clients may subscribe to it."""

INLINE_MEMBERS: Final = 512
"""Up to how many members a target is computed within the heartbeat that finds it due."""


class GroupSettings(Protocol):
    """What is in force for a group: its own setting, else the broker's."""

    def get(self, group_id: str, key: str) -> Any:
        """The value of `consumer.session.timeout.ms` and its like."""
        ...


class BrokerSettings:
    """No group has settings of its own."""

    __slots__ = ("_config",)

    def __init__(self, config: Config) -> None:
        self._config = config

    def get(self, group_id: str, key: str) -> Any:
        """The broker's setting."""
        return self._config.get(f"group.{key}")


class Background(Protocol):
    """Runs a computation beside everything else, and hands its result back to the engine's own thread."""

    def __call__(self, compute: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Runs `compute` anywhere; then `done(result)`, or `done(the exception)`, on the engine's thread."""
        ...


class ConsumerSettings(NamedTuple):
    """The settings of one group that are looked at with every heartbeat.

    Attributes:
        session_timeout_ms: how long a silent member stays.
        heartbeat_interval_ms: how often members are to beat.
        assignment_interval_ms: the least time between two targets.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class KeptTopics(NamedTuple):
    """The topics of some subscriptions, and what they were when they were looked up.

    Attributes:
        names: the names in the subscriptions, each once.
        found: what was found under each name.
        topics: those that were there, as the assignor takes them.
    """

    names: tuple[str, ...]
    found: list[TopicInfo | None]
    topics: Topics


def check_times(config: Config) -> None:
    """Refuses broker's settings of consumer groups that contradict each other, as Kafka does at its start.

    Raises:
        ConfigError: a time is outside of the bounds for groups' own settings, or a session no longer than a heartbeat's
            interval.
    """
    for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        name, low, high = f"group.consumer.{what}", f"group.consumer.min.{what}", f"group.consumer.max.{what}"
        value, least, most = config.get(name), config.get(low), config.get(high)
        if not least <= value <= most:
            raise ConfigError(f"{name}={value} must be within {low}={least} and {high}={most}")
    session_ms, interval_ms = config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms
    if interval_ms >= session_ms:
        raise ConfigError(
            f"group.consumer.heartbeat.interval.ms={interval_ms} must be below "
            f"group.consumer.session.timeout.ms={session_ms}"
        )


class ConsumerServices:
    """Settings, topics, assignors and watchers.

    Args:
        config: the node's settings.
        topics: the cluster's topics.
        version: see `TopicMetadata`.
        settings: groups' own settings; None: there are none.
        enabled: whether the new protocol is on (`group.version`).
        pipeline: says when changes are durable, for watchers.

    Raises:
        ConfigError: settings contradict each other, or an assignor cannot be had.

    Attributes:
        config: the node's settings.
        metadata: the topics.
        events: who watches groups.
        enabled: whether members of the new protocol are served at all.
        settings_of: settings of groups, as far as they were asked for; `settings` is what to ask.
        assignors: by name, the default first.
        background: where targets of large groups are computed; None: between two rounds.
        inline_members: see `INLINE_MEMBERS`.
    """

    __slots__ = (
        "_enabled",
        "_kept_names",
        "_names",
        "_settings",
        "_sorted",
        "_topics",
        "assignors",
        "background",
        "config",
        "enabled",
        "events",
        "inline_members",
        "metadata",
        "settings_of",
    )

    def __init__(
        self,
        config: Config,
        topics: TopicImage,
        *,
        version: Callable[[], int] = lambda: 1,
        settings: GroupSettings | None = None,
        enabled: Callable[[], bool] = lambda: True,
        pipeline: CommitPipeline | None = None,
    ) -> None:
        check_times(config)
        self.config = config
        self.metadata = TopicMetadata(topics, version)
        self.events = GroupEvents(topics, pipeline)
        self.assignors: dict[str, Any] = load_all(config.group_consumer_assignors, "consumer")
        self.background: Background | None = None
        self.inline_members = INLINE_MEMBERS
        self._enabled = enabled
        self.feature_changed()
        self._settings: GroupSettings = settings if settings is not None else BrokerSettings(config)
        self.settings_of: dict[str, ConsumerSettings] = {}
        self._kept_names = 0
        self._names: dict[tuple[str, ...], frozenset[str]] = {}
        self._sorted: dict[frozenset[str], tuple[str, ...]] = {}
        self._topics: dict[tuple[tuple[str | bytes, ...], ...], KeptTopics] = {}

    def feature_changed(self) -> None:
        """A feature of the cluster has another level: whether the protocol is on is asked anew."""
        self.enabled = "consumer" in self.config.group_coordinator_rebalance_protocols and self._enabled()

    def settings(self, group_id: str) -> ConsumerSettings:
        """What is in force for a group."""
        found = self.settings_of.get(group_id)
        if found is None:
            get = self._settings.get
            found = self.settings_of[group_id] = ConsumerSettings(
                get(group_id, "consumer.session.timeout.ms"),
                get(group_id, "consumer.heartbeat.interval.ms"),
                get(group_id, "consumer.assignment.interval.ms"),
            )
        return found

    def settings_changed(self) -> None:
        """A setting of a group or of the broker changed: all are read anew."""
        self.settings_of = {}

    def forget(self, group_id: str) -> None:
        """A group is gone."""
        self.settings_of.pop(group_id, None)

    def names(self, names: Sequence[str]) -> frozenset[str]:
        """Names as a set; equal ones are one object, since most members of a group read the same."""
        if len(names) > MAX_KEPT_NAMES:
            return frozenset(names)
        key = tuple(names)
        found = self._names.get(key)
        if found is None:
            if not _is_small(key):
                return frozenset(key)
            ordered = tuple(sorted(frozenset(key)))  # as a record lists them: replay finds the same object
            found = self._names.get(ordered)
            self._make_room(len(key) if key == ordered or found is not None else len(key) + len(ordered) + 1)
            if found is None:
                found = self._names[ordered] = frozenset(ordered)
            self._names[key] = found
        return found

    def in_order(self, names: frozenset[str]) -> tuple[str, ...]:
        """The names in order, for the assignor; equal sets give one object."""
        found = self._sorted.get(names)
        if found is None:
            found = tuple(sorted(names))
            if _is_small(found):
                self._make_room(len(found))
                self._sorted[names] = found
        return found

    def topics(self, subscriptions: tuple[tuple[str | bytes, ...], ...]) -> Topics:
        """The topics of subscriptions as they are now, for the assignor; one object as long as none of them changes.

        Assignors and assignments keep with that object what they derive from it.
        """
        by_name = self.metadata.topics.by_name
        kept = self._topics.get(subscriptions)
        if kept is not None and kept.found == [by_name(name) for name in kept.names]:
            return kept.topics
        names = tuple(dict.fromkeys(str(name) for names in subscriptions for name in names))
        found = [by_name(name) for name in names]
        there = [topic for topic in found if topic is not None]
        made = Topics(
            {topic.topic_id: topic.partitions for topic in there},
            names={topic.name: topic.topic_id for topic in there},
        )
        if _is_small(names):
            if kept is None:
                self._make_room(len(names))
            self._topics[subscriptions] = KeptTopics(names, found, made)
        return made

    def _make_room(self, count: int) -> None:
        """Forgets what is kept if `count` names more would be too many; whoever uses a set has it still."""
        self._kept_names += count + 1
        if self._kept_names > KEPT_NAMES:
            self._names.clear()
            self._sorted.clear()
            self._topics.clear()
            self._kept_names = count + 1


def _is_small(names: Sequence[str]) -> bool:
    """Returns whether names may be kept: there are few enough of them, and none is too long."""
    return len(names) <= MAX_KEPT_NAMES and max(map(len, names), default=0) <= MAX_KEPT_CHARACTERS
