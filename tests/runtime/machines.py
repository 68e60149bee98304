"""A minimal state machine: named counters, stored as text records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kcore.clock import ManualClock, Now
from kcore.errors import KafkaError
from kcore.log import PartitionKey
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import (
    Api,
    CommitPipeline,
    Outcome,
    Pending,
    Record,
    RequestContext,
    Shard,
    ShardContext,
    ShardTimer,
    Slices,
)
from kcore.runtime.shard_services import ShardServices
from kcore_ext.runtime.timer_wheel import TimerWheel
from tests.harness import FailingLog

TOPIC = "__counters"
KEY = PartitionKey(bytes(15) + b"\x09", 0)


@dataclass(frozen=True)
class Name:
    """A record's key."""

    name: str

    def encode_key(self) -> bytes:
        return self.name.encode()


@dataclass(frozen=True)
class Count:
    """A record's value."""

    count: int

    def encode_value(self, version: int) -> bytes:
        return b"%d:%d" % (version, self.count)


class CounterMachine:
    """A state machine of named counters. Requests add to a counter, read it, or wait until it reaches a number. Timers
    delete counters.
    """

    def __init__(self, context: ShardContext) -> None:
        self.context = context
        self.counts: dict[str, int] = {}
        self.replayed: list[tuple[int, int, str, int | None]] = []
        self.markers: list[tuple[int, int, int, bool]] = []
        self.waiting: list[tuple[str, int, Pending]] = []
        self.loaded = self.unloaded = 0

    def replay(self, offset: int, producer_id: int, key: Name, value: Count | None) -> None:
        if key.name == "unreplayable":
            raise ValueError("this record cannot be replayed")
        self.replayed.append((offset, producer_id, key.name, None if value is None else value.count))
        if value is None:
            self.counts.pop(key.name, None)
        else:
            self.counts[key.name] = value.count

    def replay_marker(self, offset: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
        self.markers.append((offset, producer_id, producer_epoch, commit))

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
        assert key is not None
        if key == b"alien":
            return None
        return Name(key.decode()), None if value is None else Count(int(value.split(b":")[1]))

    def on_loaded(self) -> None:
        self.loaded += 1

    def on_unloaded(self) -> None:
        self.unloaded += 1


class Forget(ShardTimer):
    """A timer that deletes a counter."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def fire(self) -> Outcome | None:
        return Outcome([Record(Name(self.name), None)])


class AddApi(Api[Any, Any]):
    """Handles ("add", name, n); the response is ("added", name, new count)."""

    key = ApiKey.HEARTBEAT  # every API has one

    def handle(self, context: RequestContext, request: Any) -> Any:
        raise AssertionError("tests run the shard directly")

    def decide(self, machine: CounterMachine, context: RequestContext, request: Any) -> Any:
        verb, name, *rest = request
        count = machine.counts.get(name, 0)
        if verb == "add":
            count += rest[0]
            for waiting in [w for w in machine.waiting if w[0] == name and count >= w[1]]:
                machine.waiting.remove(waiting)
                machine.context.respond(waiting[2], ("reached", name, count))
            return Outcome([Record(Name(name), Count(count), 3)], ("added", name, count))
        if verb == "read":
            return ("count", name, count)
        if verb == "wait":
            pending = Pending(self, context, request, parked=True)
            machine.waiting.append((name, rest[0], pending))
            return pending
        if verb == "forget after":
            machine.context.schedule(machine.context.now.now_ms + rest[0], Forget(name))
            return ("will forget", name)
        if verb == "in transaction":
            return Outcome([Record(Name(name), Count(rest[0]))], ("pending", name), producer_id=7, producer_epoch=2)
        if verb == "large":
            return Outcome([Record(Name("x" * rest[0]), Count(1))], ("kept", name))
        if verb == "refuse":
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "no")
        raise RuntimeError("a bug")

    def error(self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None) -> Any:
        return ("error", code, message)


class Bench:
    """One shard of counters with a real log in memory and a manual clock."""

    def __init__(self, max_batch_bytes: int = 4_096) -> None:
        self.clock = ManualClock()
        self.now = Now(self.clock)
        self.log = FailingLog()
        self.pipeline = self.make_pipeline()
        self.wheel = TimerWheel(self.now.now_ms)
        self.slices = Slices()
        self.api = AddApi()
        self.max_batch_bytes = max_batch_bytes
        self.shard = self.make(0)
        self.shard.load()
        self.slices.finish()

    def make_pipeline(self) -> CommitPipeline:
        """Returns the pipeline. Overridden to replace it."""
        return CommitPipeline(self.log)

    def make(self, index: int) -> Shard[CounterMachine]:
        return Shard(
            TOPIC,
            index,
            self.log.open(KEY),
            CounterMachine,
            ShardServices(self.pipeline, self.wheel, self.slices, self.now),
            max_batch_bytes=self.max_batch_bytes,
        )

    def run(self, *request: Any) -> Any:
        return self.shard.run(self.api, RequestContext(0), request)

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        for timer in self.wheel.advance(self.now.update()):
            timer.payload()
