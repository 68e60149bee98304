"""Seeded interleavings of producers, restarts and time, compared with a small independent model.

Invariants: A transaction is visible completely or not at all. No record and no offset of a committed transaction is
lost. Nothing of an aborted transaction is visible. Epochs only grow. No transaction stays open forever.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from kcore.protocol.error_codes import ErrorCode as E
from tests.transaction.world import Identity, World

PARTITIONS = 3
STEPS = 250
TIMEOUT_MS = 5_000
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "transaction.state.log.num.partitions": 2,
}


@dataclass
class Transaction:
    """A producer's own view of its open transaction."""

    values: dict[int, list[bytes]] = field(default_factory=dict)
    offset: int | None = None


class Producer:
    """A client with one transactional id, which records its acknowledged operations."""

    def __init__(self, world: World, model: Model, name: str, version: int) -> None:
        self.world = world
        self.model = model
        self.tid = name
        self.group = f"group of {name}"
        self.bumps = version == 2
        self.identity: Identity | None = None
        self.sequences: dict[int, int] = {}
        self.open: Transaction | None = None
        self.seen = Identity(-1, -1)

    def init(self) -> None:
        """Initialises a new instance, which aborts an open transaction of the earlier instance."""
        for _ in range(2):
            code, identity = self.world.init(self.tid, timeout_ms=TIMEOUT_MS)
            if code is not E.CONCURRENT_TRANSACTIONS:
                break
        assert code in (E.NONE, E.NOT_COORDINATOR), code
        self.open = None
        self.identity = None
        if code is E.NONE:
            self.become(identity)

    def become(self, identity: Identity) -> None:
        """Stores the new identity. Epochs of one producer id must only grow."""
        if identity.producer_id == self.seen.producer_id:
            assert identity.producer_epoch >= self.seen.producer_epoch, (identity, self.seen)
        if identity != self.identity:
            self.sequences = {}
        self.identity = self.seen = identity

    def lost(self, code: E) -> None:
        """Handles an error that requires a new initialisation of the client."""
        assert code in (
            E.INVALID_PRODUCER_EPOCH,
            E.PRODUCER_FENCED,
            E.INVALID_TXN_STATE,
            E.TRANSACTION_ABORTABLE,
            E.NOT_COORDINATOR,
            E.KAFKA_STORAGE_ERROR,
            E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ), code
        self.identity = None

    def produce(self) -> None:
        if self.identity is None:
            self.init()
            return
        index = self.model.chance.randrange(PARTITIONS)
        values = [self.model.value() for _ in range(self.model.chance.randint(1, 3))]
        if not self.bumps:
            codes = self.world.add(self.tid, self.identity, [("t", index)])
            if codes != [E.NONE]:
                self.lost(codes[0])
                return
        code, _ = self.world.produce(
            self.tid,
            self.identity,
            self.sequences.get(index, 0),
            *values,
            index=index,
            version=12 if self.bumps else 11,
        )
        if code is not E.NONE:
            self.lost(code)
            return
        self.sequences[index] = self.sequences.get(index, 0) + len(values)
        self.open = self.open or Transaction()
        self.open.values.setdefault(index, []).extend(values)

    def commit_offset(self) -> None:
        if self.identity is None:
            self.init()
            return
        offset = self.model.next_offset()
        if not self.bumps:
            code = self.world.add_offsets(self.tid, self.identity, self.group)
            if code is not E.NONE:
                self.lost(code)
                return
        code = self.world.commit_offset(self.tid, self.identity, self.group, offset, version=5 if self.bumps else 3)
        if code is not E.NONE:
            self.lost(code)
            return
        self.open = self.open or Transaction()
        self.open.offset = offset

    def end(self) -> None:
        if self.identity is None or self.open is None:
            return
        commit = self.model.chance.random() < 0.6
        code, identity = self.world.end(self.tid, self.identity, commit, 5 if self.bumps else 4)
        if code is not E.NONE:
            self.lost(code)
            return
        ended, self.open = self.open, None
        if commit:
            self.model.commit(self.group, ended)
        before = self.sequences
        self.become(identity)
        if not self.bumps:
            self.sequences = before
        if self.model.chance.random() < 0.3:
            # The response was lost, and the client repeats its request: it must get the same response, with no other
            # effect.
            again = self.world.end(self.tid, self.repeated(identity), commit, 5 if self.bumps else 4)
            assert again == (E.NONE, self.identity if self.bumps else self.repeated(identity))

    def repeated(self, identity: Identity) -> Identity:
        return Identity(identity.producer_id, identity.producer_epoch - 1) if self.bumps else identity


class Model:
    """The committed state, which the model computes from responses alone."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.values: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        self.offsets: dict[str, int] = {}
        self._counter = 0

    def value(self) -> bytes:
        self._counter += 1
        return b"%d" % self._counter

    def next_offset(self) -> int:
        self._counter += 1
        return self._counter

    def commit(self, group: str, ended: Transaction) -> None:
        for index, values in ended.values.items():
            self.values[index] += values
        if ended.offset is not None:
            self.offsets[group] = ended.offset


def check(world: World, model: Model, *, settled: bool = False) -> None:
    """Checks that readers see only committed records, each once.

    A reader must see all committed records of a partition that has no open transaction.
    """
    for index in range(PARTITIONS):
        found = world.committed(index=index)
        wanted = set(model.values[index])
        assert set(found) <= wanted, "a reader sees what was never committed"
        assert len(set(found)) == len(found), "a record is there twice"
        stable, end = world.end_offsets(index=index)
        if stable == end:
            assert set(found) == wanted, "a committed record is lost"
        assert not settled or stable == end, f"t-{index} is held back at {stable} of {end}"
    for group, offset in model.offsets.items():
        assert world.offset(group, stable=False) == (E.NONE, offset)


@pytest.mark.parametrize("seed", range(12))
def test_any_interleaving_keeps_transactions_whole(seed: int) -> None:
    """Runs producers of transaction versions 1 and 2 together, with random restarts, failed commits and timeouts. New
    producers fence earlier producers.
    """
    chance = random.Random(seed)
    world = World(SETTINGS, {"t": PARTITIONS})
    model = Model(chance)
    producers = [Producer(world, model, f"p{number}", 1 + number % 2) for number in range(4)]
    for _ in range(STEPS):
        producer = chance.choice(producers)
        dice = chance.random()
        if dice < 0.45:
            producer.produce()
        elif dice < 0.6:
            producer.commit_offset()
        elif dice < 0.85:
            producer.end()
        elif dice < 0.88:
            producer.init()
        elif dice < 0.94:
            world.advance(chance.choice((10, 500, 3000, 7000)))
        elif dice < 0.97:
            world.restart()
        else:
            world.log.failures_left = 1
            producer.end()
            world.log.failures_left = 0
        if chance.random() < 0.15:
            check(world, model)
    world.advance(TIMEOUT_MS + 2000)
    world.settle()
    for producer in producers:
        assert world.state(producer.tid) not in ("Ongoing", "PrepareCommit", "PrepareAbort"), "open forever"
    check(world, model, settled=True)
    world.restart()
    check(world, model, settled=True)
    assert sum(map(len, model.values.values())) > 20, "the interleaving committed next to nothing"
