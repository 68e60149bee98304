"""Steps of a node that raise an exception, such as MemoryError: later steps do not wait for the failed one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kcore.broker.cluster.forwarding import RETRY_FOR_MS, Forwarder
from kcore.broker.cluster.leadership import LeadershipKeeper
from kcore.broker.cluster.membership import run_inline
from kcore.broker.cluster.producer_ids import SharedProducerIds
from kcore.broker.metadata.brokers import leader_record
from kcore.cluster.memory_store import MemoryClusterStore
from kcore.engine import Engine
from kcore.errors import EngineInterruptedError
from kcore.log.errors import StoreUnavailableError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_topics import CreateTopicsRequest
from kcore.protocol.messages.envelope import EnvelopeResponse
from kcore.runtime import RequestContext
from tests.cluster.world import PRODUCE_VERSION, TIMING, Client, ClusterWorld, Node, check
from tests.kit import batch, create, produce

FILES = ("broker/cluster/leadership.py", "broker/cluster/handover.py", "runtime/shards.py", "data/shared_partitions.py")
PARTITIONS = 6


class Injector:
    """A trace function that raises MemoryError before one line of `FILES`.

    It does so in the first call of `LeadershipKeeper.apply` that has changes to apply.
    """

    def __init__(self, line: int, node_id: int) -> None:
        self.line = line
        self.node_id = node_id
        self.raised = False
        self.active = False
        self._count = 0

    def apply(self, keeper: LeadershipKeeper, apply: Callable[[LeadershipKeeper], None]) -> None:
        if self.active or self.raised or not keeper._changed or keeper._membership.lease.holder != self.node_id:
            apply(keeper)
            return
        self.active = True
        sys.settrace(self._trace)
        try:
            apply(keeper)
        finally:
            sys.settrace(None)
            self.active = False

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if self.raised:
            return None
        if event == "line" and frame.f_code.co_filename.endswith(FILES):
            self._count += 1
            if self._count == self.line:
                self.raised = True
                raise MemoryError("the test has no memory")
        return self._trace


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("gains", [True, False])
def test_a_partition_is_served_after_any_line_of_its_move_failed(
    monkeypatch: pytest.MonkeyPatch, gains: bool, step: int
) -> None:
    """An odd step alternates between the two topics."""
    world = ClusterWorld()
    world.start()
    client = Client(world)
    client.create("t", PARTITIONS)
    injector = Injector(0, -1)
    apply = LeadershipKeeper.apply
    monkeypatch.setattr(LeadershipKeeper, "apply", lambda keeper: injector.apply(keeper, apply))
    unreached = 0
    line = 0
    while unreached < 2:  # for both topics
        line += step
        controller = world.controller.engine
        assert controller is not None
        machine = controller.control.shard.machine
        topic = machine.image.by_name(("t", "__consumer_offsets")[line % 2])
        assert topic is not None
        partition = line // 2 % PARTITIONS
        leader = machine.image.leader(topic.topic_id, partition)
        assert leader is not None
        heir = leader.node_id % len(world.nodes) + 1
        records = [leader_record(topic.topic_id, partition, heir, [heir])]
        injector = Injector((line + 1) // 2, heir if gains else leader.node_id)
        controller.control.shard.perform(lambda machine=machine, records=records: machine.outcome(records))
        world.advance(1_500)
        unreached = 0 if injector.raised else unreached + 1
        check(world)
        for index in range(PARTITIONS):
            _produce(client, index)
        for group in range(PARTITIONS):
            client.commit(f"g{group}", line)
    assert line > 20, "the lines were reached"
    world.close()


def _produce(client: Client, partition: int) -> None:
    request = produce("t", batch([b"value"]), partition)
    client.retried(
        lambda: client.leader("t", partition).send(request, PRODUCE_VERSION),
        lambda response: response.responses[0].partition_responses[0].error_code,
        3_000,
    )


@pytest.fixture
def world() -> ClusterWorld:
    made = ClusterWorld()
    made.start()
    return made


def follower(world: ClusterWorld) -> Node:
    return next(node for node in world.up if node is not world.controller)


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
def test_a_node_whose_calls_cannot_start_renews_and_polls_when_they_can(
    world: ClusterWorld, error: type[Exception]
) -> None:
    node = follower(world)
    assert node.engine is not None
    membership = node.engine.membership
    failed = []

    def run(call: Callable[[], Any], done: Callable[[Any], None]) -> None:
        failed.append(1)
        raise error("no thread can start")

    membership.run = run
    before = len(node.engine.wheel)
    world.advance(TIMING.renew_ms + 1_000)
    assert len(failed) > TIMING.renew_ms // TIMING.poll_ms
    assert len(node.engine.wheel) == before, "a failed step arms no second timer"
    membership.run = run_inline
    world.advance(2 * TIMING.ttl_ms)
    assert not membership.fenced
    assert membership.is_serving()
    world.close()


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
def test_a_controller_whose_renewals_cannot_start_decides_again_when_they_can(
    world: ClusterWorld, error: type[Exception]
) -> None:
    controller = world.controller
    assert controller.engine is not None
    membership = controller.engine.membership
    failed = []

    def run(call: Callable[[], Any], done: Callable[[Any], None]) -> None:
        failed.append(1)
        raise error("no thread can start")

    membership.run_renewal = run
    before = len(controller.engine.wheel)
    world.advance(TIMING.controller_ttl_ms - TIMING.controller_margin_ms)
    assert len(failed) >= TIMING.controller_ttl_ms // TIMING.controller_renew_ms - 1
    assert len(controller.engine.wheel) <= before, "a failed step arms no second timer"
    assert not controller.engine.may_decide()
    membership.run_renewal = run_inline
    world.advance(TIMING.controller_ttl_ms)
    assert world.controller.engine is not None, "one of the nodes is the controller"
    assert not membership.fenced
    world.close()


def test_a_fencing_that_cannot_start_is_repeated(world: ClusterWorld) -> None:
    controller, victim = world.controller.engine, follower(world)
    assert controller is not None
    run = controller.controller.run
    calls = []

    def fail_once(call: Callable[[], Any], done: Callable[[Any], None]) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("no thread can start")
        run(call, done)

    controller.controller.run = fail_once
    victim.kill()
    world.advance(3 * TIMING.ttl_ms)
    assert len(calls) > 1
    assert all(leader.leader != victim.node_id for leader in world.open_store().leaders())
    world.close()


def test_a_request_for_producer_ids_that_cannot_be_sent_is_repeated(world: ClusterWorld) -> None:
    engine = follower(world).engine
    assert engine is not None
    ids = engine.control.producer_ids
    assert isinstance(ids, SharedProducerIds)
    peers, sent = engine.peers, []

    class Failing:
        def send(self, node_id: int, request: Any, version: int, done: Any) -> None:
            sent.append(request)
            raise MemoryError

    engine.peers = Failing()
    with pytest.raises(MemoryError):
        ids.next_id()
    engine.peers = peers
    assert len(sent) == 1
    assert ids.next_id() is None
    world.advance(500)
    assert ids.next_id() is not None
    world.close()


def test_an_unreadable_response_of_the_controller_is_an_error_for_the_client(world: ClusterWorld) -> None:
    engine = follower(world).engine
    assert engine is not None

    class Damaging:
        def send(self, node_id: int, request: Any, version: int, done: Any) -> None:
            done(EnvelopeResponse(response_data=b"\0" * 5))

    api = engine.apis[CreateTopicsRequest.API_KEY]
    forwarder = Forwarder(engine.cluster, Damaging(), engine.wheel, engine.now)
    pending = forwarder.forward(api, RequestContext(7, client_host="/127.0.0.1"), create("t"))
    world.advance(RETRY_FOR_MS + 200)
    assert pending.done
    assert pending.response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    world.close()


def test_removed_partitions_are_reclaimed_after_an_outage_during_their_search(world: ClusterWorld) -> None:
    client = Client(world)
    client.create("t", 2)
    _produce(client, 0)
    controller = world.controller.engine
    assert controller is not None
    log = controller.log
    while log.reclaim(1_000):
        continue
    log._sweeps = True
    outages = [1]

    def intercept(operation: str, node_id: int, stored: bool) -> None:
        if operation == "removed_numbers" and outages:
            outages.pop()
            raise StoreUnavailableError("the test cuts the node off")

    world.store.intercept = intercept
    with pytest.raises(StoreUnavailableError):
        log.reclaim(1_000)
    assert log._sweeps, "the next call searches again"
    log.reclaim(1_000)
    assert not log._sweeps
    world.close()


@pytest.mark.parametrize("ends", ["close", "abandon"])
def test_a_node_that_cannot_end_in_order_closes_its_store(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    node = follower(world)
    engine = node.engine
    assert engine is not None
    closed = []

    def close(store: MemoryClusterStore) -> None:
        closed.append(store)

    monkeypatch.setattr(MemoryClusterStore, "close", close)

    def fail(*arguments: object) -> None:
        raise EngineInterruptedError

    monkeypatch.setattr(Engine, "commit" if ends == "close" else "abandon", fail)
    with pytest.raises(EngineInterruptedError):
        getattr(engine, ends)()
    assert engine.store in closed
    node.engine = None
    monkeypatch.undo()
    world.close()
