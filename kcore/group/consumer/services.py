"""Services of a node for its consumer groups; one object for all of its group shards."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kcore.assignors import Topics, load_all
from kcore.group.consumer.events import GroupEvents
from kcore.group.consumer.metadata import TopicMetadata
from kcore.group.settings import BrokerSettings, SettingsCache, check_settings
from kcore_ext.util.shared_text import shared_text

if TYPE_CHECKING:
    from kcore.config.node import Config
    from kcore.group.settings import GroupSettings
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.topics import TopicImage, TopicInfo

KEPT_NAMES: Final = 262_144
"""Maximum total number of names in all cached subscriptions of the node."""

MAX_KEPT_NAMES: Final = 16_384
"""Maximum number of names in a cached subscription."""

MAX_KEPT_SETS: Final = 4
"""Maximum number of cached long sets, which have more than `MAX_KEPT_NAMES` names.

For each of them, the node caches the set and its names in sorted order. It caches the topics of only one combination of
long sets.
"""

MAX_KEPT_CHARACTERS: Final = 249
"""Maximum length of a name in a cached subscription.

It is the maximum length of a topic name, but clients may send longer names.
"""

NAMES_PER_SLICE: Final = 5_000
"""Number of names of a long subscription that one slice looks up."""

INLINE_MEMBERS: Final = 512
"""Maximum number of members of a group whose new target is computed within the decision of a heartbeat.

The target of a larger group is computed in slices or in the background.
"""


class Background(Protocol):
    """The interface of a function that runs a computation in the background, and passes its result to the engine's own
    thread.
    """

    def __call__(self, compute: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Runs `compute` on any thread. Then calls `done` with its result or exception, on the engine's thread."""
        ...


SETTINGS: Final = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms")
"""The settings of a group that every heartbeat needs, in the order of `ConsumerSettings`."""

BOUNDED: Final = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
"""The settings that each group can override. The broker's settings define the bounds of the values."""


class ConsumerSettings(NamedTuple):
    """The settings of one group that every heartbeat needs.

    Attributes:
        session_timeout_ms: the session timeout of members.
        heartbeat_interval_ms: the interval between heartbeats.
        assignment_interval_ms: minimum time between two targets.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class KeptTopics(NamedTuple):
    """A cache entry: the topics of a set of subscriptions at the time of their look-up.

    Attributes:
        names: the topic names in the subscriptions, each once.
        infos: for each name, the topic that had this name; None if no topic had it.
        topics: the topics that existed, in the form that assignors receive.
        changes: the value of `TopicMetadata.changes` at the look-up. While `TopicMetadata.changes` has the same value,
            no topic has changed since the look-up. -1: a topic may have changed during the look-up, or the value was
            not stored. Only the comparison of `infos` with the present topics then shows whether the entry is valid.
    """

    names: tuple[str, ...]
    infos: list[TopicInfo | None]
    topics: Topics
    changes: int = -1


class ConsumerServices(SettingsCache[ConsumerSettings]):
    """Settings, topics, assignors and watchers.

    Args:
        config: the node's settings.
        topics: the cluster's topics.
        version: returns the current version of the metadata; see `TopicMetadata`.
        settings: the settings of groups; None if all groups use the broker's settings.
        enabled: returns True if the feature level `group.version` enables the new protocol.
        pipeline: reports when changes are durable, for watchers.

    Raises:
        ConfigError: settings contradict each other, or an assignor cannot be loaded.

    Attributes:
        config: the node's settings.
        metadata: the topics.
        events: the watchers of groups.
        enabled: whether both the node's settings and the feature level enable the new protocol.
        assignors: by name, the default first.
        background: computes targets of large groups; None: these targets are computed in slices.
        inline_members: a copy of `INLINE_MEMBERS`, which tests can change.
    """

    __slots__ = (
        "_enabled",
        "_kept_names",
        "_long_sets",
        "_long_topics",
        "_names",
        "_sorted",
        "_topics",
        "assignors",
        "background",
        "config",
        "enabled",
        "events",
        "inline_members",
        "metadata",
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
        check_settings(config, "consumer", BOUNDED)
        super().__init__(BrokerSettings(config) if settings is None else settings, SETTINGS, ConsumerSettings)
        self.config = config
        self.metadata = TopicMetadata(topics, version)
        self.events = GroupEvents(topics, pipeline)
        self.assignors: dict[str, Any] = load_all(config.group_consumer_assignors, "consumer")
        self.background: Background | None = None
        self.inline_members = INLINE_MEMBERS
        self._enabled = enabled
        self.feature_changed()
        self._kept_names = 0
        self._names: dict[tuple[str, ...], frozenset[str]] = {}
        self._sorted: dict[frozenset[str], tuple[str, ...]] = {}
        self._topics: dict[tuple[tuple[str | bytes, ...], ...], KeptTopics] = {}
        self._long_sets: dict[frozenset[str], tuple[frozenset[str], tuple[str, ...]]] = {}
        self._long_topics: tuple[tuple[tuple[str | bytes, ...], ...], KeptTopics] | None = None

    def feature_changed(self) -> None:
        """Checks again whether the protocol is enabled, after a feature level changed."""
        self.enabled = "consumer" in self.config.group_coordinator_rebalance_protocols and self._enabled()

    def names(self, names: Sequence[str]) -> frozenset[str]:
        """Returns the names as a set. Returns the same object for equal short lists, if it is cached.

        Most members of a group have the same subscription, so the members share one set.
        """
        if len(names) > MAX_KEPT_NAMES:
            return frozenset(set(map(shared_text, names)))  # a copy takes half the memory
        key = tuple(names)
        cached = self._names.get(key)
        if cached is None:
            key = tuple(map(shared_text, key))  # different lists share the texts of equal names
            if not _is_small(key):
                return frozenset(key)
            ordered = tuple(sorted(frozenset(key)))  # in the order of a record, so that replay finds the same object
            cached = self._names.get(ordered)
            self._make_room(len(key) if key == ordered or cached is not None else len(key) + len(ordered) + 1)
            if cached is None:
                cached = self._names[ordered] = frozenset(ordered)
            self._names[key] = cached
        return cached

    def matches(self, topics: frozenset[str]) -> frozenset[str]:
        """Returns a set equal to `topics`, the topics that match a pattern.

        If many topics match, all groups with the same matches get the same object, which saves memory.
        """
        return topics if len(topics) <= MAX_KEPT_NAMES else self._long_set(topics)[0]

    def _long_set(self, names: frozenset[str]) -> tuple[frozenset[str], tuple[str, ...]]:
        """Returns a cached long set that equals `names`, and its names in sorted order.

        The last `MAX_KEPT_SETS` long sets are cached.
        """
        cached = self._long_sets.pop(names, None)
        if cached is None:
            cached = (names, tuple(self.metadata.in_order(names)))
        self._long_sets[cached[0]] = cached
        if len(self._long_sets) > MAX_KEPT_SETS:
            del self._long_sets[next(iter(self._long_sets))]
        return cached

    def in_order(self, names: frozenset[str]) -> tuple[str, ...]:
        """Returns the names in sorted order, for the assignor. Equal sets share one tuple, while it is cached."""
        if len(names) > MAX_KEPT_NAMES:
            return self._long_set(names)[1]
        cached = self._sorted.get(names)
        if cached is None:
            cached = tuple(sorted(names))
            if _is_small(cached):
                self._make_room(len(cached))
                self._sorted[names] = cached
        return cached

    def topics(self, subscriptions: tuple[tuple[str | bytes, ...], ...]) -> Topics:
        """Returns the existing topics to which the subscriptions refer, for the assignor.

        The object is cached until one of the topics changes. Assignors and assignments store derived data in it.
        """
        work = self.topics_in_slices(subscriptions)
        while True:
            try:
                next(work)
            except StopIteration as end:
                topics: Topics = end.value
                return topics

    def topics_in_slices(self, subscriptions: tuple[tuple[str | bytes, ...], ...]) -> Generator[None, None, Topics]:
        """Returns the result of `topics`; yields after every `NAMES_PER_SLICE` names of a long subscription."""
        by_name = self.metadata.topics.by_name
        cached = self._topics.get(subscriptions)
        if cached is None and self._long_topics is not None and self._long_topics[0] == subscriptions:
            cached = self._long_topics[1]
        if cached is not None and cached.infos == [by_name(name) for name in cached.names]:
            if self._long_topics is not None and self._long_topics[1] is cached:
                self._long_topics = (subscriptions, cached._replace(changes=self.metadata.changes))
            return cached.topics
        if cached is not None:
            names = cached.names
        elif len(subscriptions) == 1:
            names = subscriptions[0]  # type: ignore[assignment]
        else:
            names = tuple(dict.fromkeys(chain.from_iterable(subscriptions)))  # type: ignore[arg-type]
        changes = self.metadata.changes
        infos: list[TopicInfo | None] = []
        partitions: dict[bytes, int] = {}
        ids: dict[str, bytes] = {}
        for first in range(0, len(names), NAMES_PER_SLICE):
            if first:
                yield
            for name in names[first : first + NAMES_PER_SLICE]:
                topic = by_name(name)
                infos.append(topic)
                if topic is not None:
                    partitions[topic.topic_id] = topic.partitions
                    ids[topic.name] = topic.topic_id
        if len(names) > NAMES_PER_SLICE:
            yield
        built = Topics(partitions, names=ids)
        if _is_small(names):
            if cached is None:
                self._make_room(len(names))
            self._topics[subscriptions] = KeptTopics(names, infos, built)
        else:
            unchanged = changes == self.metadata.changes
            self._long_topics = (subscriptions, KeptTopics(names, infos, built, changes if unchanged else -1))
        return built

    def known_topics(self, names: frozenset[str]) -> Topics | None:
        """Returns the existing topics among `names`, if `topics` has cached them and no topic has changed since; else
        None.

        Only long lists of topics are cached.
        """
        if len(names) <= MAX_KEPT_NAMES or self._long_topics is None:
            return None
        subscriptions, kept = self._long_topics
        ordered = self._long_sets.get(names)
        if kept.changes != self.metadata.changes or len(subscriptions) != 1 or ordered is None:
            return None
        return kept.topics if ordered[1] == subscriptions[0] else None

    def _make_room(self, count: int) -> None:
        """Clears the caches if `count` more names would exceed `KEPT_NAMES`.

        Sets to which members refer stay in memory.
        """
        self._kept_names += count + 1
        if self._kept_names > KEPT_NAMES:
            self._names.clear()
            self._sorted.clear()
            self._topics.clear()
            self._kept_names = count + 1


def _is_small(names: Sequence[str]) -> bool:
    """Returns True if the names may be cached, because there are few names and none is too long."""
    return len(names) <= MAX_KEPT_NAMES and max(map(len, names), default=0) <= MAX_KEPT_CHARACTERS
