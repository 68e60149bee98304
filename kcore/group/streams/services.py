"""Services of a node for its streams groups; one object for all of its group shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kcore.assignors import get
from kcore.errors import ConfigError
from kcore.group.consumer.metadata import TopicMetadata
from kcore.group.settings import BrokerSettings, SettingsCache, check_settings

if TYPE_CHECKING:
    from kcore.assignors.streams_sticky import StreamsAssignment, StreamsMember, Subtopology
    from kcore.config.node import Config
    from kcore.group.settings import GroupSettings
    from kcore.group.streams.configure import InternalTopic
    from kcore.runtime.api import RequestContext

STANDBY_REPLICAS: Final = "num.standby.replicas"
"""The name of the only assignment setting in a group's record."""


SETTINGS: Final = (
    "streams.session.timeout.ms",
    "streams.heartbeat.interval.ms",
    "streams.assignment.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
)
"""The settings of a group that every heartbeat needs, in the order of `StreamsSettings`."""

BOUNDED: Final = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
"""The settings of which a group may have its own value, within bounds that the broker's settings define."""


class TaskAssignor(Protocol):
    """The interface of an assignor of tasks; `kcore.assignors` finds one by its name."""

    name: str

    def assign(
        self,
        members: Iterable[StreamsMember],
        subtopologies: dict[str, Subtopology],
        *,
        num_standby_replicas: int = 0,
    ) -> StreamsAssignment:
        """Assigns all tasks to the members."""
        ...


class TopicCreator(Protocol):
    """The interface of a service that creates the internal topics of applications.

    The service remembers failures for some time.
    """

    def name_fault(self, name: str) -> str | None:
        """Returns the reason why no topic of a topology can have this name; None if the name is allowed."""
        ...

    def create(self, context: RequestContext, topics: Iterable[InternalTopic], remember_ms: int) -> None:
        """Starts creating the internal topics that do not exist yet.

        Args:
            context: the client whose request needs the topics.
            topics: the internal topics that must exist.
            remember_ms: the time in ms for which `failures` returns a failure of this request.
        """
        ...

    def failures(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the remembered failures to create any of the topics `names`: topic name -> reason."""
        ...


class NoTopicCreator:
    """A `TopicCreator` that creates no topics, for shards without a control plane."""

    __slots__ = ()

    def name_fault(self, name: str) -> str | None:
        """Accepts every name."""
        return None

    def create(self, context: RequestContext, topics: Iterable[InternalTopic], remember_ms: int) -> None:
        """Does nothing."""

    def failures(self, names: Iterable[str]) -> dict[str, str]:
        """Returns no failures."""
        return {}


class StreamsSettings(NamedTuple):
    """The settings of one group.

    Attributes:
        session_timeout_ms: the session timeout of members.
        heartbeat_interval_ms: the interval between heartbeats.
        assignment_interval_ms: minimum time between two targets.
        initial_rebalance_delay_ms: time for which an empty group waits for more members.
        num_standby_replicas: standby tasks for each stateful task.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    initial_rebalance_delay_ms: int
    num_standby_replicas: int

    @property
    def assignment_configs(self) -> tuple[tuple[str, str], ...]:
        """The settings that affect the assignment, in the form of the record of the group epoch: (name, value)."""
        return ((STANDBY_REPLICAS, str(self.num_standby_replicas)),)


def check_broker_settings(config: Config) -> None:
    """Refuses contradictory broker settings of streams groups, as Kafka does at startup.

    Raises:
        ConfigError: `kcore.group.settings.check_settings` refuses a setting, or there are too many standby replicas.
    """
    check_settings(config, "streams", BOUNDED)
    replicas, most = config.group_streams_num_standby_replicas, config.group_streams_max_standby_replicas
    if replicas > most:
        raise ConfigError(
            f"group.streams.num.standby.replicas={replicas} must be at most group.streams.max.standby.replicas={most}"
        )


class StreamsServices(SettingsCache[StreamsSettings]):
    """Settings, topics, the assignor and the creator of internal topics.

    Args:
        config: the node's settings.
        metadata: the cluster's topics and their hashes.
        settings: groups' own settings; None: none exist.
        enabled: returns True if streams groups are enabled (`streams.version`).
        topic_creator: creates internal topics; None: such topics are never created.

    Raises:
        ConfigError: settings contradict each other, or the assignor cannot be loaded.

    Attributes:
        config: the node's settings.
        metadata: the cluster's topics and their hashes.
        enabled: whether streams groups are served.
        assignor: the assignor of tasks.
        topic_creator: creates internal topics.
    """

    __slots__ = (
        "_enabled",
        "assignor",
        "config",
        "enabled",
        "metadata",
        "topic_creator",
    )

    def __init__(
        self,
        config: Config,
        metadata: TopicMetadata,
        *,
        settings: GroupSettings | None = None,
        enabled: Callable[[], bool] = lambda: True,
        topic_creator: TopicCreator | None = None,
    ) -> None:
        check_broker_settings(config)
        super().__init__(BrokerSettings(config) if settings is None else settings, SETTINGS, StreamsSettings)
        self.config = config
        self.metadata = metadata
        self.assignor: TaskAssignor = get(config.kcore_streams_assignor, "streams")
        self.topic_creator: TopicCreator = NoTopicCreator() if topic_creator is None else topic_creator
        self._enabled = enabled
        self.feature_changed()

    def feature_changed(self) -> None:
        """Checks again whether streams groups are enabled, after a feature level changed."""
        self.enabled = "streams" in self.config.group_coordinator_rebalance_protocols and self._enabled()
