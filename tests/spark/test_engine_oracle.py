"""The rebuild of kcore's own logs equals the engine's own state, at the end and at random earlier offsets."""

from __future__ import annotations

import random
from typing import Any

from kcore.runtime import Pending
from kcore.spark.rebuild import AsOf, rebuild
from kcore.spark.sources import ServerSource
from kcore.spark.tables import group_shard_rows, table_rows, transaction_rows
from tests import kit
from tests.transaction.world import Identity, World

CUTS = 20
STEPS = 160
STATE_TABLES = {"groups", "members", "assignments", "regexes", "offsets", "transactions"}

Place = tuple[str, int]
Rows = list[tuple[str, str]]


def shown(rows: Any) -> Rows:
    """Rows in an order and a form that can be compared. What a log does not say of a group is left out."""
    found = []
    for table, row in rows:
        if table in STATE_TABLES:
            row.pop("coordinator_partition", None)
            found.append((table, repr(sorted(row.items()))))
    return sorted(found)


class Sender:
    """The engine of a world, for whoever sends requests."""

    def __init__(self, world: World) -> None:
        self._world = world

    def send(self, request: Any, version: int | None = None) -> Any:
        response = self._world.start(request, type(request).MAX_VERSION if version is None else version)
        self._world.settle()
        if isinstance(response, Pending) and not response.done:
            self._world.advance(1)  # a first join waits for the end of its round
            self._world.settle()
        return response.response if isinstance(response, Pending) else response


def live(world: World) -> dict[Place, tuple[int, Rows]]:
    """(end offset, state) of every coordinator partition, out of the engine's own machines."""
    engine = world.engine
    ends = {part[:2]: part.end or 0 for part in ServerSource(Sender(world)).parts()}
    found = {}
    for shard in engine.groups:
        place = ("__consumer_offsets", shard.index)
        found[place] = (ends[place], shown(group_shard_rows(shard.machine)))
    assert engine.transactions.shards is not None
    for shard in engine.transactions.shards:
        place = ("__transaction_state", shard.index)
        found[place] = (ends[place], shown(transaction_rows(shard.machine)))
    return found


class Traffic:
    """Commits, deletions, classic groups and transactions, at random."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._sender = Sender(world)
        self._chance = chance
        self._open: dict[str, Identity] = {}
        self._known: dict[str, Identity] = {}

    def step(self) -> None:
        """One thing happens."""
        self._world.advance(self._chance.randrange(1, 50))
        self._chance.choice([self._commit, self._commit, self._group, self._begin, self._pending, self._end])()

    def _commit(self) -> None:
        offsets = {("t", self._chance.randrange(4)): self._chance.randrange(1_000)}
        self._sender.send(kit.commit(f"g{self._chance.randrange(12)}", offsets), kit.COMMIT_VERSION)

    def _group(self) -> None:
        kit.stable_alone(self._sender, f"work{self._chance.randrange(10_000)}", session_ms=600_000)

    def _begin(self) -> None:
        tid = f"tx{self._chance.randrange(6)}"
        if tid not in self._open:
            self._known[tid] = self._open[tid] = self._world.begin(tid, 600_000)

    def _pending(self) -> None:
        if self._open:
            tid = self._chance.choice(sorted(self._open))
            group = f"g{self._chance.randrange(12)}"
            self._world.add_offsets(tid, self._open[tid], group)
            offset, index = self._chance.randrange(1_000), self._chance.randrange(4)
            self._world.commit_offset(tid, self._open[tid], group, offset, index=index)

    def _end(self) -> None:
        if self._open:
            tid = self._chance.choice(sorted(self._open))
            self._world.end(tid, self._open.pop(tid), self._chance.random() < 0.6)


def test_the_rebuild_is_the_engine_at_the_end_and_at_earlier_offsets() -> None:
    """Field by field, at 20 offsets at which the engine stood while the traffic ran, and at its end."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    world = World(topics={"t": 4})
    traffic = Traffic(world, chance)
    moments = []
    cuts = set(chance.sample(range(STEPS - 1), CUTS)) | {STEPS - 1}
    for step in range(STEPS):
        traffic.step()
        world.settle()
        if step in cuts:
            moments.append(live(world))
    source = ServerSource(Sender(world))
    logs = {part[:2]: list(source.rows(part)) for part in source.parts()}
    compared = 0
    for moment in moments:
        for place, (end_offset, expected) in moment.items():
            if not end_offset:
                continue
            result = rebuild(*place, logs[place], AsOf(offset=end_offset))
            assert result.state.faults == []
            assert shown(table_rows(result.state, result.cut)) == expected, (place, end_offset)
            compared += len(expected)
    assert compared > 1_000
