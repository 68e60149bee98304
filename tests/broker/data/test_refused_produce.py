"""A refused produce request changes no state of a partition, and later requests of rightful producers succeed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kcore.broker.apis.produce import ProduceApi
from kcore.broker.data.transaction_verifier import UNDECIDED
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode as E
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.runtime import Pending, RequestContext, failed_requests
from tests.broker.data.context import DataPlane
from tests.broker.data.test_produce import Coordinator, request, response, taken, transactional
from tests.broker.data.test_produce import refused as refused_with
from tests.transaction.world import Identity, World, produce_request

PARTITIONS = 2
DAY_MS = 86_400_000


def guards(producers: Any) -> dict[tuple[int, str, int], tuple[Any, ...]]:
    return {
        (producer_id, *key): (guard, guard.lowest_sequence, guard.supports_epoch_bump, guard.created_ms)
        for producer_id, own in producers.verification_guards.items()
        for key, guard in own.items()
    }


def state(world: World) -> Any:
    """Returns the state that later produce requests depend on: partitions, guards, outstanding requests."""
    return (
        [
            (
                partition.topic,
                partition.index,
                partition.end_offset,
                partition.high_watermark,
                partition.last_stable_offset,
                {producer_id: entry.state() for producer_id, entry in partition.producers.entries.items()},
                list(partition.producers.open_transactions.items()),
                guards(partition.producers),
            )
            for partition in world.engine.partitions
        ],
        dict(world.engine.apis[ApiKey.PRODUCE].partition_verifier._outstanding),
    )


@pytest.mark.parametrize("version", [11, 12])
def test_a_strangers_transactional_id_does_not_lock_a_producer_out(version: int) -> None:
    """Another client sends the producer's id with a different transactional id, and gets error 49. Afterwards the
    rightful producer can write, and so can its next instance.
    """
    world = World(topics={"t": 1})
    own = world.begin("own")
    world.begin("stranger")
    before = state(world)
    for epoch in range(own.producer_epoch, own.producer_epoch + 6):
        forged = Identity(own.producer_id, epoch)
        assert world.produce("stranger", forged, 0, version=version) == (E.INVALID_PRODUCER_ID_MAPPING, -1)
    assert state(world) == before
    for _ in range(2):
        if version == 11:
            assert world.add("own", own, [("t", 0)]) == [E.NONE]
        assert world.produce("own", own, 0, version=version)[0] is E.NONE
        own = world.begin("own")


@pytest.mark.parametrize("version", [11, 12])
def test_a_higher_epoch_of_the_own_id_does_not_lock_it_out(version: int) -> None:
    """An epoch that the coordinator did not allocate is refused (47), and the allocated epoch is accepted."""
    world = World(topics={"t": 1})
    own = world.begin("own")
    if version == 11:
        assert world.add("own", own, [("t", 0)]) == [E.NONE]
    before = state(world)
    forged = Identity(own.producer_id, own.producer_epoch + 3)
    assert world.produce("own", forged, 0, version=version) == (E.INVALID_PRODUCER_EPOCH, -1)
    assert state(world) == before
    assert world.produce("own", own, 0, version=version) == (E.NONE, 0)


@pytest.mark.parametrize("version", [11, 12])
def test_a_stranger_does_not_lock_out_an_idempotent_producer(version: int) -> None:
    """Another client sends a batch with the id of an idempotent producer in a transaction, and is refused. The
    producer's own batches are appended nevertheless.
    """
    world = World(topics={"t": 1})
    world.begin("stranger")
    response = world.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 5)
    own = Identity(response.producer_id, response.producer_epoch)
    for sequence in range(3):
        response = world.call(produce_request(None, own, sequence), version)
        assert response.responses[0].partition_responses[0].base_offset == sequence
        before = state(world)
        assert world.produce("stranger", own, 0, version=version)[0] is E.INVALID_PRODUCER_ID_MAPPING
        assert state(world) == before


def test_forged_requests_do_not_fail_one_that_is_being_verified() -> None:
    """A forged request with a higher epoch or another producer id does not supersede the rightful request, for any
    result of the coordinator.
    """
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")
    own = plane.send(request(("t", 0, transactional(producer=(7, 1))), tid="tid"), 12)
    forged = [
        plane.send(request(("t", 0, transactional(producer=producer)), tid=tid), 12)
        for producer, tid in (((7, 2), "tid"), ((9, 5), "tid"), ((7, 1), "stranger"), ((7, 9), "stranger"))
    ]
    assert [pending.done for pending in (own, *forged)] == [False] * 5
    coordinator.requests_of_verification.append(coordinator.requests_of_verification.pop(0))
    for _ in forged:
        coordinator.respond(E.INVALID_PRODUCER_ID_MAPPING)
    for pending in forged:
        assert pending.response == response(refused_with(E.INVALID_PRODUCER_ID_MAPPING))
    coordinator.respond(E.NONE)
    plane.commit()
    assert own.response == response(taken(0))
    assert plane.partition("t").producers.verification_guards == {}


def test_a_request_that_fails_after_its_verification_has_a_response_without_memory_for_a_log_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug interrupts the append, and the name of the request for the log line cannot be made."""
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")
    own = plane.send(request(("t", 0, transactional(producer=(7, 1))), tid="tid"), 12)
    failures = []

    def fail(*arguments: Any) -> Any:
        failures.append(arguments)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(ProduceApi, "finish", fail)
        patch.setattr(failed_requests, "request_name", fail)
        coordinator.respond(E.NONE)
    assert len(failures) == 2
    assert own.done
    assert own.response == response(refused_with(E.UNKNOWN_SERVER_ERROR))


@pytest.mark.parametrize("code", sorted(UNDECIDED))
def test_a_batch_that_could_not_be_verified_is_not_overtaken(code: E) -> None:
    """The client sends sequence 0 again. Sequence 1 must not be appended before sequence 0, even if the verification of
    0 has failed.
    """
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")
    first = plane.send(request(("t", 0, transactional(0)), tid="tid"), 11)
    coordinator.respond(code)
    assert first.done
    created = guards(plane.partition("t").producers)
    plane.clock.advance(1000)
    plane.now.update()
    second = plane.send(request(("t", 0, transactional(1)), tid="tid"), 11)
    coordinator.respond(E.NONE)
    assert second.response == response(refused_with(E.OUT_OF_ORDER_SEQUENCE_NUMBER, 0))
    assert guards(plane.partition("t").producers) == created
    for sequence in (0, 1):
        pending = plane.send(request(("t", 0, transactional(sequence)), tid="tid"), 11)
        if not pending.done and coordinator.requests_of_verification:
            coordinator.respond(E.NONE)
        plane.commit()
        assert pending.response == response(taken(sequence))
    assert plane.partition("t").producers.verification_guards == {}


def test_old_verifications_expire() -> None:
    """A partition forgets the verification of a transactional id and epoch one day after the first request. Later
    requests do not extend this time.
    """
    coordinator = Coordinator()
    plane = DataPlane(verifier=coordinator)
    plane.topic("t")

    def produce(tid: str, producer: tuple[int, int]) -> None:
        plane.send(request(("t", 0, transactional(producer=producer)), tid=tid), 11)
        coordinator.respond(E.NOT_COORDINATOR)

    produce("one", (7, 0))
    plane.clock.advance(DAY_MS - 1)
    plane.now.update()
    for tid, producer in (("one", (7, 0)), ("one", (7, 1)), ("two", (8, 0))):
        produce(tid, producer)
    producers = plane.partition("t").producers
    for after_ms, left in ((0, {(7, "one", 0), (7, "one", 1), (8, "two", 0)}), (1, {(7, "one", 1), (8, "two", 0)})):
        plane.clock.advance(after_ms)
        plane.now.update()
        for _ in plane.housekeeping.expire_producers():
            pass
        assert set(guards(producers)) == left
    plane.clock.advance(DAY_MS)
    plane.now.update()
    for _ in plane.housekeeping.expire_producers():
        pass
    assert producers.verification_guards == {}


@dataclass
class Victim:
    """A rightful producer, which sends Produce requests of `version`."""

    tid: str | None
    version: int
    identity: Identity
    sequences: dict[int, int] = field(default_factory=dict)
    added: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)


class Strangers(RuleBasedStateMachine):
    """Rightful producers write while other clients send requests that must be refused."""

    @initialize()
    def begin(self) -> None:
        self.world = World(topics={"t": PARTITIONS})
        self.stranger = self.world.begin("stranger")
        response = self.world.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 5)
        self.victims = [
            Victim("first", 11, self.world.begin("first")),
            Victim("second", 12, self.world.begin("second")),
            Victim(None, 12, Identity(response.producer_id, response.producer_epoch)),
        ]

    # ---- rightful producers

    @rule(who=st.integers(0, 2), index=st.integers(0, PARTITIONS - 1))
    def write(self, who: int, index: int) -> None:
        victim = self.victims[who]
        if victim.version == 11 and index not in victim.added:
            assert self.world.add(victim.tid or "", victim.identity, [("t", index)]) == [E.NONE]
            victim.added.add(index)
        sequence = victim.sequences.get(index, 0)
        sent = produce_request(victim.tid, victim.identity, sequence, index=index)
        assert self.code(self.world.call(sent, victim.version)) == E.NONE
        victim.sequences[index] = sequence + 1
        if victim.tid is not None:
            victim.open.add(index)

    @rule(who=st.integers(0, 1), commit=st.booleans())
    def end(self, who: int, commit: bool) -> None:
        victim = self.victims[who]
        if not victim.open:
            return
        version = 5 if victim.version == 12 else 4
        code, identity = self.world.end(victim.tid or "", victim.identity, commit, version)
        assert code is E.NONE
        if identity != victim.identity:
            victim.identity, victim.sequences = identity, {}
        victim.added, victim.open = set(), set()

    @rule(who=st.integers(0, 1))
    def next_instance(self, who: int) -> None:
        victim = self.victims[who]
        victim.identity = self.world.begin(victim.tid or "")
        victim.sequences, victim.added, victim.open = {}, set(), set()

    # ---- requests that must be refused

    def expect_refusal(self, sent: Any, version: int, *codes: E) -> None:
        """Sends the request to the fast path and to the generic path; both must refuse it."""
        before = state(self.world)
        assert self.code(self.world.call(sent, version)) in codes
        assert state(self.world) == before
        context = RequestContext(version)
        again = self.world.engine.apis[ApiKey.PRODUCE].handle(context, sent)
        self.world.settle()
        assert self.code(again.response if isinstance(again, Pending) else again) in codes
        assert state(self.world) == before

    @rule(
        who=st.integers(0, 2),
        index=st.integers(0, PARTITIONS - 1),
        bump=st.integers(-1, 3),
        sequence=st.sampled_from([0, 0, 1, 5, 2**31 - 1]),
        tid=st.sampled_from(["stranger", "nobody"]),
        version=st.sampled_from([11, 12]),
    )
    def forge_producer_id(self, who: int, index: int, bump: int, sequence: int, tid: str, version: int) -> None:
        """Sends a victim's producer id with the stranger's transactional id."""
        victim = self.victims[who]
        epoch = victim.identity.producer_epoch + bump
        if epoch < 0 or (bump == 0 and index in victim.open):
            return
        sent = produce_request(tid, Identity(victim.identity.producer_id, epoch), sequence, index=index)
        self.expect_refusal(sent, version, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_EPOCH)

    @rule(
        who=st.integers(0, 1),
        index=st.integers(0, PARTITIONS - 1),
        bump=st.integers(1, 100),
        sequence=st.sampled_from([0, 0, 1, 5]),
        version=st.sampled_from([11, 12]),
    )
    def forge_epoch(self, who: int, index: int, bump: int, sequence: int, version: int) -> None:
        """Sends an epoch that the coordinator has not allocated."""
        victim = self.victims[who]
        forged = Identity(victim.identity.producer_id, victim.identity.producer_epoch + bump)
        sent = produce_request(victim.tid, forged, sequence, index=index)
        self.expect_refusal(sent, version, E.INVALID_PRODUCER_EPOCH)

    @rule(who=st.integers(0, 1), index=st.integers(0, PARTITIONS - 1), version=st.sampled_from([11, 12]))
    def forge_transactional_id(self, who: int, index: int, version: int) -> None:
        """Sends the stranger's producer id with a victim's transactional id."""
        sent = produce_request(self.victims[who].tid, self.stranger, 0, index=index)
        self.expect_refusal(sent, version, E.INVALID_PRODUCER_ID_MAPPING)

    @rule(who=st.integers(0, 1), index=st.integers(0, PARTITIONS - 1), sequence=st.sampled_from([0, 1, 5]))
    def write_outside_of_the_transaction(self, who: int, index: int, sequence: int) -> None:
        """Sends a batch to a partition that was not added to the transaction. Before version 12, the coordinator only
        verifies the partition.
        """
        victim = self.victims[who]
        if index in victim.open or index in victim.added:
            return
        sent = produce_request(victim.tid, victim.identity, sequence, index=index)
        self.expect_refusal(sent, 11, E.TRANSACTION_ABORTABLE)

    @rule(who=st.integers(0, 2), index=st.integers(0, PARTITIONS - 1), gap=st.integers(1, 9))
    def leave_a_gap(self, who: int, index: int, gap: int) -> None:
        """Sends a sequence with a gap before it, outside of a transaction."""
        victim = self.victims[who]
        if index not in victim.sequences:
            return
        sent = produce_request(None, victim.identity, victim.sequences[index] + gap, index=index)
        self.expect_refusal(sent, victim.version, E.OUT_OF_ORDER_SEQUENCE_NUMBER)

    @invariant()
    def nothing_is_left_to_verify(self) -> None:
        if hasattr(self, "world"):
            assert all(not partition.producers.verification_guards for partition in self.world.engine.partitions)

    @staticmethod
    def code(response: Any) -> int:
        code: int = response.responses[0].partition_responses[0].error_code
        return code


TestStrangers = Strangers.TestCase
TestStrangers.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("version", [11, 12])
def test_a_stranger_does_not_write_into_an_open_transaction(version: int) -> None:
    """The forged request has the right producer id, epoch and next sequence, but another transactional id."""
    world = World(topics={"t": 1})
    own = world.begin("own")
    world.begin("stranger")
    assert world.produce("own", own, 0, version=12) == (E.NONE, 0)
    before = state(world)
    assert world.produce("stranger", own, 1, version=version) == (E.INVALID_PRODUCER_ID_MAPPING, -1)
    assert state(world) == before
    assert world.produce("own", own, 1, version=12) == (E.NONE, 1)


def test_a_batch_without_transaction_does_not_lock_a_transactional_producer_out() -> None:
    """Another client sends a non-transactional batch with a higher epoch. The rightful producer can still write
    afterwards, both before its first transaction and between two transactions.
    """
    world = World(topics={"t": 1})
    own = world.begin("own")
    forged = Identity(own.producer_id, own.producer_epoch + 100)
    assert world.call(produce_request(None, forged, 0), 12).responses[0].partition_responses[0].error_code == E.NONE
    assert world.produce("own", own, 0, version=12)[0] is E.NONE
    own = world.begin("own")
    response = world.call(produce_request(None, Identity(own.producer_id, own.producer_epoch + 100), 0), 12)
    assert response.responses[0].partition_responses[0].error_code == E.INVALID_PRODUCER_EPOCH
    assert world.produce("own", own, 0, version=12)[0] is E.NONE
