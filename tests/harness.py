"""A whole node for tests: a real engine, a log in memory, virtual time, and no threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.drivers.threads import ThreadDriver
from kcore.engine import Engine
from kcore.log import FailureReason, LogEngine, LogError
from kcore.log.memory_engine import MemoryLogEngine
from kcore.runtime import Pending, RequestContext
from tests.kit import create

WALL_MS = 1_700_000_000_000


class FailingLog(MemoryLogEngine):
    """A log in memory that fails the next commits.

    Attributes:
        failures_left: the number of commits that will fail; empty commits do not count.
    """

    failures_left = 0

    def write(self, write_set: Any) -> None:
        if self.failures_left:
            self.failures_left -= 1
            raise LogError("the test wants this commit to fail", FailureReason.INJECTED)
        super().write(write_set)


class EngineHarness:
    """A node whose requests are decided, committed and completed by the test.

    Args:
        settings: further settings by Kafka's names, which override `SETTINGS`.
        topics: topics to create, name -> partitions.
        log: the log, or None for a new `FailingLog`.
        wall_ms: the time at the start.

    Attributes:
        SETTINGS: the settings of all nodes of this class.
        clock: the time, which only the test moves.
        log: the log, which survives restarts.
        engine: the engine, which each restart replaces.
        connection_id: the connection of the next requests.
    """

    SETTINGS: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        topics: Mapping[str, int] | None = None,
        *,
        log: LogEngine | None = None,
        wall_ms: int = WALL_MS,
    ) -> None:
        self.settings = {name: str(value) for name, value in {**self.SETTINGS, **(settings or {})}.items()}
        self.clock = ManualClock(wall_ms=wall_ms)
        self.log: Any = FailingLog() if log is None else log
        self.connection_id = 1
        self._uuids = 0
        self.boot()
        for name, partitions in (topics or {}).items():
            self.create_topic(name, partitions)

    def boot(self) -> None:
        """Opens an engine on the log."""
        self.engine = Engine(self.log, Config.of(self.settings), self.clock, self.new_uuid)
        self.engine.cluster.advertise("PLAINTEXT", "localhost", 9092)

    def close(self) -> None:
        """Closes the engine and its log."""
        self.engine.close()

    def open(self, log: LogEngine) -> None:
        """Opens an engine on a log. The earlier engine must be closed."""
        self.log = log
        self.boot()

    def new_uuid(self) -> bytes:
        """Returns numbered UUIDs in place of random ones."""
        self._uuids += 1
        return b"\x10" + self._uuids.to_bytes(15, "big")

    def restart(self) -> None:
        """Stops the process and starts it again. Uncommitted changes and soft state are lost."""
        self.log.rollback()
        self.boot()
        self.engine.turn()
        self.settle()

    def settle(self) -> None:
        """Commits until no write and no load is pending."""
        self.engine.slices.finish()
        while self.engine.pipeline.dirty:
            self.engine.commit()
            self.engine.slices.finish()

    def advance(self, ms: int) -> None:
        """Advances the time by `ms`. Timers fire at their own times."""
        self.engine.advance(ms)

    def start(self, request: Any, version: int, **context: Any) -> Any:
        """Processes a request, encoded and decoded as on the wire, without a commit.

        Args:
            request: the request.
            version: its version.
            context: fields of its `RequestContext`, such as `principal`.

        Returns:
            The response or a `Pending`.
        """
        request = type(request).decode(request.encode(version), version)
        self.engine.now.update()
        about = RequestContext(version, "test", connection_id=self.connection_id, **context)
        return self.engine.submit(about, request)

    def received(self, response: Any, version: int) -> Any:
        """Commits, so that a response of `start` is complete. Returns this response as a client decodes it."""
        self.settle()
        if isinstance(response, Pending):
            assert response.done, f"{type(response.request).__name__} is parked"
            response = response.response
        return type(response).decode(response.encode(version), version)

    def call(self, request: Any, version: int | None = None) -> Any:
        """Processes a request and commits. Returns the response as a client decodes it.

        The version None selects the newest one.
        """
        version = self.engine.newest_version(request) if version is None else version
        return self.received(self.start(request, version), version)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Creates a topic."""
        (result,) = self.call(create(name, partitions=partitions)).topics
        assert not result.error_code, result

    def topic_id(self, name: str = "t") -> bytes:
        """Returns the id of a topic."""
        topic = self.engine.topics.by_name(name)
        assert topic is not None
        return topic.topic_id


class DrivenHarness(EngineHarness):
    """A node whose requests a driver commits, and whose parked requests wait in virtual time.

    Attributes:
        driver: the driver, which each restart replaces.
    """

    WAITS_MS = (10, 10, 10, 100, 1_000, 30_000, 60_000, 0)
    """Durations in ms. While a request is parked, `send` advances the time by each of them in turn. The longest ones
    exceed the session timeouts of members.
    """

    def boot(self) -> None:
        super().boot()
        self.driver = ThreadDriver(self.engine)
        self.driver.run()

    def advance(self, ms: int) -> None:
        self.driver.advance(ms)

    def settle(self) -> None:
        """Commits and runs slices until none is pending."""
        self.driver.run()
        while self.engine.slices:
            self.driver.run()

    def begin(self, request: Any, version: int | None = None) -> Any:
        """Sends a request. Returns its response, or a `Pending` if the request is parked.

        The version None selects the newest one.
        """
        version = self.engine.newest_version(request) if version is None else version
        return self.driver.start(RequestContext(version, "client"), request)

    def send(self, request: Any, version: int | None = None) -> Any:
        """Sends a request and returns its response. Advances the time while the request is parked."""
        response = self.begin(request, version)
        for wait_ms in self.WAITS_MS:
            if not isinstance(response, Pending):
                return response
            if response.done:
                return response.response
            self.advance(wait_ms)
        raise AssertionError(f"{type(request).__name__} never gets a response")
