"""The checks of `kcore log verify`: they report damage in damaged logs, and no damage in valid logs of every kind."""

from __future__ import annotations

import random
from collections.abc import Generator

import pytest

from kcore.broker.compaction.check import ReplayedState, check_compacted, check_records, check_rehearsed
from kcore.broker.compaction.cleaner import CompactionPass
from tests.broker.compaction.world import World, state


def written(seed: int, turns: int = 60) -> World:
    """Writes a log of records, transactions and tombstones, and compacts a part of the log."""
    chance = random.Random(seed)
    world = World(slice_records=5)
    for _ in range(turns):
        key, value = chance.choice([b"a", b"b", b"c", b"d"]), chance.choice([None, b"1", b"2"])
        what = chance.random()
        if what < 0.5:
            world.write([(key, value)], codec=chance.choice([0, 0, 4]))
        elif what < 0.8:
            world.write([(key, value)], producer_id=chance.randrange(3), transactional=True)
        elif what < 0.95:
            world.end(chance.randrange(3), chance.random() < 0.5)
        else:
            world.commit()
            world.compact()
    world.commit()
    return world


def findings(world: World) -> list[tuple[str, int | None]]:
    log = world.log
    found = [*check_records(log), *check_compacted(log), *check_rehearsed(world.engine, log, world.wall_ms)]
    return [(one.kind, one.offset) for one in found]


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_found_in_a_sound_log_and_nothing_is_changed(seed: int) -> None:
    world = written(seed)
    stored = list(world.log.batches())
    assert findings(world) == []
    assert not world.engine.dirty
    assert list(world.log.batches()) == stored


@pytest.mark.parametrize("seed", range(10))
def test_the_replayed_state_equals_the_history(seed: int) -> None:
    world = written(seed)
    values, pending = state(world.committed_history())
    found = ReplayedState(world.log.batches())
    assert {key: tuple(held) for key, held in found.values.items()} == {
        key: (one.offset, one.value) for key, one in values.items()
    }
    assert {
        (producer_id, key): tuple(held) for producer_id, some in found.pending.items() for key, held in some.items()
    } == {at: (one.offset, one.value) for at, one in pending.items()}


def test_a_compaction_that_would_lose_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a defect: compaction removes batches that have live records."""

    def remove(self: CompactionPass, start: int, stop: int, position: int) -> Generator[None, None, int]:
        self._changes.update(dict.fromkeys(base for base, _ in self._partition.log.batches(start, stop)))
        yield
        return stop

    world = World()
    for number in range(3):
        world.write([(b"k%d" % number, b"v")])
    world.commit()
    assert findings(world) == []
    monkeypatch.setattr(CompactionPass, "_read", remove)
    assert findings(world) == [("state", 0)]


def test_a_batch_with_unreadable_records_is_found() -> None:
    world = World()
    world.write([(b"a", b"1")])
    world.write([(b"b", b"1")])
    world.commit()
    bases, batches = world.storage._partitions[0].lists
    assert bases == [0, 1]
    batches[0] = batches[0][:61] + b"\xff" * 5 + batches[0][66:]
    assert [(one.kind, one.offset) for one in check_records(world.log)] == [("record", 0)]
