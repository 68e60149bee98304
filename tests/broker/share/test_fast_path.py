"""ShareFetch gives the same responses, records, timers and states with and without the compiled paths.

The reference run has no fast path, and writes delivery states by WriteShareGroupState requests.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import ResourceType
from kcore.protocol.messages.share_acknowledge import AcknowledgementBatch
from kcore.runtime import Pending, RequestContext
from kcore.share.local import LocalPersister
from kcore_ext.broker.share.acknowledgements import count_types, valid
from tests.broker.share.world import Ack, World, acquired
from tests.reference import share_acknowledgements as reference

PARTITIONS = 3
MEMBERS = ("m", "n", "o")
STEPS = 120
ACCEPT, RELEASE, REJECT = 1, 2, 3


class Script:
    """Random requests and events on one node.

    Args:
        seed: the seed of the random choices. Steps also depend on earlier responses.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(
            {"share.coordinator.snapshot.update.records.per.snapshot": "6"},
            partitions=PARTITIONS,
            group={"share_record_lock_duration_ms": "15000"},
        )
        self.epochs = dict.fromkeys(MEMBERS, 0)
        self.held: dict[str, dict[int, list[tuple[int, int]]]] = {member: {} for member in MEMBERS}
        self.waiting: list[tuple[str, Pending]] = []
        self.seen: list[Any] = []
        self.served = 0

    def run(self) -> list[Any]:
        """Runs all steps. Returns everything that a client or an observer can see of the node."""
        for step in range(STEPS):
            kind = self.random.choices(
                ["fetch", "produce", "acknowledge", "advance", "truncate", "fail", "configure", "restart"],
                [50, 20, 10, 8, 3, 4, 3, 1],
            )[0]
            getattr(self, kind)()
            self.observe(step, kind)
        return self.seen

    def observe(self, step: int, kind: str) -> None:
        self.world.settle()
        for member, pending in list(self.waiting):
            if pending.done:
                self.waiting.remove((member, pending))
                self.arrived(member, pending.response)
        engine = self.world.engine
        states = [(str(each), each.state, each.snapshot(), each.start_offset) for each in engine.share_partitions]
        counters = engine.share_partitions.counters
        counts = (counters.deliveries, counters.redeliveries, list(counters.acknowledgements))
        self.seen.append((step, kind, states, len(engine.wheel), len(engine.purgatory), counts))

    def arrived(self, member: str, response: Any) -> None:
        self.seen.append(response.encode(2))
        if response.error_code:
            self.epochs[member] = 0
            return
        for topic in response.responses:
            for partition in topic.partitions:
                mine = self.held[member].setdefault(partition.partition_index, [])
                mine += [(each.first_offset, each.last_offset) for each in partition.acquired_records]

    def acks(self, member: str) -> dict[int, list[Ack]]:
        """Makes acknowledgements of records that the member has acquired, and sometimes of other records."""
        found: dict[int, list[Ack]] = {}
        for index, ranges in list(self.held[member].items()):
            if self.random.random() < 0.3:
                continue
            for first, last in sorted(self.held[member].pop(index)):
                if last - first < 9 and self.random.random() < 0.4:
                    types = [self.random.choice([0, ACCEPT, RELEASE, REJECT]) for _ in range(first, last + 1)]
                    found.setdefault(index, []).append((first, last, *types))
                else:
                    found.setdefault(index, []).append((first, last, self.random.choice([ACCEPT, ACCEPT, RELEASE])))
            del ranges
        if self.random.random() < 0.05:
            first = self.random.randrange(20)
            found[self.random.randrange(PARTITIONS)] = [(first, first + self.random.randrange(-1, 3), ACCEPT)]
        return found

    # ---- steps

    def fetch(self) -> None:
        member = self.random.choice(MEMBERS)
        if any(each == member for each, _ in self.waiting):
            return
        epoch = self.epochs[member]
        partitions: dict[int, list[Ack]] = {}
        if epoch == 0:
            self.held[member].clear()
            partitions = {index: [] for index in range(PARTITIONS) if self.random.random() < 0.8}
        else:
            partitions = self.acks(member)
            if self.random.random() < 0.05:
                partitions.setdefault(self.random.randrange(PARTITIONS), [])
        if epoch and self.random.random() < 0.03:
            epoch += self.random.choice([1, -1 - epoch])
        request = self.world.fetch_request(
            member,
            epoch,
            partitions,
            forgotten=[0] if epoch and self.random.random() < 0.02 else [],
            max_wait_ms=self.random.choice([0, 500]),
            min_bytes=self.random.choice([1, 1, 1, 300]),
            max_bytes=self.random.choice([1 << 20, 1 << 20, 200]),
            max_records=self.random.choice([1, 5, 100]),
            batch_size=self.random.choice([2, 100]),
            share_acquire_mode=self.random.choice([0, 0, 1]),
        )
        result = self.world.start(request, 2)
        self.epochs[member] = epoch + 1 if epoch >= 0 else 0
        self.waiting.append((member, done(result)))

    def acknowledge(self) -> None:
        member = self.random.choice(MEMBERS)
        acks = self.acks(member)
        if any(each == member for each, _ in self.waiting) or not self.epochs[member] or not acks:
            return
        request = self.world.acknowledge_request(member, self.epochs[member], acks)
        response = self.world.call(request, 2)
        self.seen.append(response.encode(2))
        self.epochs[member] = 0 if response.error_code else self.epochs[member] + 1

    def produce(self) -> None:
        self.world.produce(self.random.randrange(1, 9), partition=self.random.randrange(PARTITIONS))

    def advance(self) -> None:
        self.world.advance(self.random.choice([100, 600, 16_000]))

    def truncate(self) -> None:
        partition = self.world.engine.partitions.get("t", 0)
        assert partition is not None
        self.world.delete_records(self.random.randrange(partition.log_start_offset, partition.high_watermark + 1))

    def fail(self) -> None:
        """Makes the commit of a request fail. Retries of its writes succeed."""
        self.world.log.failures_left = 1
        self.fetch()
        self.world.settle()
        self.world.log.failures_left = 0
        for _ in range(4):
            self.world.advance(20)

    def configure(self) -> None:
        self.world.configure(
            share_delivery_count_limit=str(self.random.choice([2, 5])),
            share_isolation_level=self.random.choice(["read_committed", "read_uncommitted"]),
        )

    def restart(self) -> None:
        self.served += share_fetch(self.world).fast_path.served
        self.world.restart()
        self.waiting.clear()
        self.epochs = dict.fromkeys(MEMBERS, 0)
        for held in self.held.values():
            held.clear()


def done(result: Any) -> Pending:
    """Returns the response of a pending request once it is complete, or an immediate response unchanged."""
    if isinstance(result, Pending):
        return result
    pending = Pending(None, None, None)  # type: ignore[arg-type]
    pending.complete(result)
    return pending


def share_fetch(world: World) -> Any:
    return world.engine.apis[ApiKey.SHARE_FETCH]


class Reference(Script):
    """Runs the script of `Script` without the compiled paths."""

    def observe(self, step: int, kind: str) -> None:
        share_fetch(self.world).fast = None  # a restart restores the fast path
        super().observe(step, kind)


@pytest.mark.parametrize("seed", range(12))
def test_the_fast_path_serves_like_the_generic_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(seed)
    seen = script.run()
    with monkeypatch.context() as patch:
        patch.setattr(LocalPersister, "writer", lambda *arguments: None)
        generic = Reference(seed)
        share_fetch(generic.world).fast = None
        expected = generic.run()
    for one, other in zip(seen, expected, strict=True):
        assert one == other
    assert script.world.records() == generic.world.records()
    assert script.served + share_fetch(script.world).fast_path.served > 10
    script.world.restart()
    generic.world.restart()
    assert script.world.records() == generic.world.records()


def test_the_common_requests_take_the_fast_path() -> None:
    """The first fetch opens the session. The following fetches, with and without acknowledgements, run without Python
    code.
    """
    world = World(partitions=2)
    world.produce(3)
    world.produce(2, partition=1)
    assert acquired(world.fetch("m", 0, [0, 1])) == [(0, 2, 1), (0, 1, 1)]
    world.produce(1)
    response = world.fetch("m", 1, {0: [(0, 1, ACCEPT), (2, 2, RELEASE)], 1: [(0, 1, ACCEPT)]}, max_wait_ms=500)
    assert acquired(response) == [(2, 2, 2), (3, 3, 1)]
    world.produce(1, partition=1)
    assert acquired(world.fetch("m", 2, max_wait_ms=500)) == [(2, 2, 1)]
    assert share_fetch(world).fast_path.served == 2


class Denying:
    """An authorizer that denies READ of one resource."""

    def __init__(self) -> None:
        self.denied: tuple[ResourceType, str] | None = None

    def allowed(self, context: RequestContext, operation: Any, kind: ResourceType, name: str) -> bool:
        return (kind, name) != self.denied


@pytest.mark.parametrize(
    ("denied", "codes"),
    [((ResourceType.GROUP, "g"), (30, 0)), ((ResourceType.TOPIC, "t"), (0, 29))],
)
def test_the_fast_path_checks_permissions(denied: tuple[ResourceType, str], codes: tuple[int, int]) -> None:
    world = World()
    authorizer = Denying()
    api = share_fetch(world)
    served = type(api)(
        world.engine.share_partitions,
        lambda: True,
        api._memory_budget,
        cluster=world.engine.cluster,
        authorizer=authorizer,
    )
    world.engine.apis.made[ApiKey.SHARE_FETCH] = served
    world.produce(2)
    assert acquired(world.fetch("m", 0, [0])) == [(0, 1, 1)]
    authorizer.denied = denied
    response = world.fetch("m", 1, {0: [(0, 0, ACCEPT)]})
    assert response.error_code == codes[0]
    assert [partition.acknowledge_error_code for topic in response.responses for partition in topic.partitions] == [
        codes[1]
    ] * bool(codes[1])
    assert served.fast_path.served == 0


def test_acknowledgement_batches_are_checked_like_the_reference() -> None:
    chance = random.Random(7)
    for _ in range(3_000):
        batches = [
            AcknowledgementBatch(
                first_offset=chance.choice([-1, 0, 1, 5, 2**63 - 1]),
                last_offset=chance.choice([-1, 0, 2, 5, 9, 2**63 - 1]),
                acknowledge_types=tuple(chance.randrange(-1, 6) for _ in range(chance.randrange(4))),
            )
            for _ in range(chance.randrange(1, 4))
        ]
        for version in (1, 2):
            for renews in (False, True):
                expected = reference.valid(batches, version, renews)
                assert valid(batches, version, renews) is expected, batches
                if expected:
                    totals, other = [0] * 5, [0] * 5
                    count_types(batches, totals)
                    reference.count_types(batches, other)
                    assert totals == other
