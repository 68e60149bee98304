"""The logs of a shared store: creation by the controller, adoption, fencing, unknown outcomes, and followers."""

from __future__ import annotations

import pytest

from kcore.cluster.store import METADATA, ClusterStore, Lease, PartitionLeader
from kcore.log.errors import (
    FencedWriteError,
    LogClosedError,
    LogError,
    PartitionDroppedError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.storage import Leadership
from tests.cluster.conftest import TTL_MS, SharedStore, description
from tests.log.batches import batch, contents, fill, key, stamped


def become_controller(store: ClusterStore, lease: Lease, engine: SharedLogEngine) -> Lease:
    taken = store.take_controller(lease, TTL_MS)
    assert taken is not None
    engine.adopt([Leadership(METADATA, taken.epoch)])
    return taken


def record(engine: SharedLogEngine) -> None:
    """Stages a batch of the metadata log. Every change of the controller includes such a batch."""
    engine.open(METADATA).append(batch(), engine.controller_epoch)


def create(engine: SharedLogEngine, leaders: dict[int, int]) -> None:
    """Creates partitions of the topic of this module. `leaders` maps a partition to its leader."""
    record(engine)
    for partition, leader in leaders.items():
        engine.create(key(partition), leader, 0)
    engine.commit()


@pytest.fixture
def nodes(shared: SharedStore) -> dict[int, SharedLogEngine]:
    """Two nodes: node 1 is the controller and leads partition 0, and node 2 leads partitions 1 and 2."""
    store, lease, engine = shared.node(1)
    become_controller(store, lease, engine)
    _, _, other = shared.node(2)
    create(engine, {0: 1, 1: 2, 2: 2})
    return {1: engine, 2: other}


def test_a_node_begins_with_no_partition(shared: SharedStore) -> None:
    _, lease, engine = shared.node(1)
    assert engine.partitions() == []
    assert engine.node_epoch == lease.epoch
    with pytest.raises(LogError, match="is not led by this node"):
        engine.open(key())


def test_partitions_are_created_with_their_record_and_adopted(nodes: dict[int, SharedLogEngine]) -> None:
    [log] = nodes[2].adopt([Leadership(key(1), 0)])
    stored = fill(log, nodes[2], 3)
    assert contents(log) == stored
    assert nodes[2].partitions() == [key(1)]
    assert log.high_watermark == 3


def test_a_node_adopts_only_partitions_that_it_leads_in_the_epoch(nodes: dict[int, SharedLogEngine]) -> None:
    with pytest.raises(FencedWriteError) as refused:
        nodes[2].adopt([Leadership(key(1), 0), Leadership(key(0), 0), Leadership(key(2), 1)])
    assert refused.value.partitions == (key(0), key(2))
    assert nodes[2].partitions() == []


def test_only_the_controller_creates_partitions(nodes: dict[int, SharedLogEngine], shared: SharedStore) -> None:
    nodes[2].adopt([Leadership(key(1), 0)])[0].append(batch(), 0)
    nodes[2].create(key(9), 2, 0)
    with pytest.raises(FencedWriteError) as refused:
        nodes[2].commit()
    assert refused.value.partitions == (METADATA,)
    assert shared.stored_end(key(9)) is None
    log = nodes[2].get(key(1))
    assert log is not None
    assert log.end_offset == 0


def test_a_change_of_leaders_needs_a_record(nodes: dict[int, SharedLogEngine]) -> None:
    nodes[1].move(key(1), 1, 1, 0)
    with pytest.raises(LogError, match="need their record"):
        nodes[1].commit()
    assert not nodes[1].dirty


def test_a_moved_partition_fences_its_old_leader(nodes: dict[int, SharedLogEngine], shared: SharedStore) -> None:
    [old, other] = nodes[2].adopt([Leadership(key(1), 0), Leadership(key(2), 0)])
    stored = fill(old, nodes[2], 2)
    record(nodes[1])
    nodes[1].move(key(1), 1, 1, 0)
    nodes[1].commit()
    old.append(batch(), 0)
    other.append(batch(), 0)
    with pytest.raises(FencedWriteError) as refused:
        nodes[2].commit()
    assert refused.value.partitions == (key(1),)
    assert (old.end_offset, other.end_offset) == (2, 0)
    nodes[2].release(key(1))
    with pytest.raises(LogClosedError):
        old.append(batch(), 0)
    assert len(fill(other, nodes[2], 1)) == 1
    [new] = nodes[1].adopt([Leadership(key(1), 1)])
    stored += fill(new, nodes[1], 1, leader_epoch=1)
    assert contents(new) == stored


def test_a_handle_with_staged_changes_is_not_released(nodes: dict[int, SharedLogEngine]) -> None:
    [log] = nodes[2].adopt([Leadership(key(1), 0)])
    log.append(batch(), 0)
    with pytest.raises(LogError, match="not committed"):
        nodes[2].release(key(1))
    nodes[2].rollback()
    nodes[2].release(key(1))
    assert nodes[2].get(key(1)) is None


def test_a_fenced_node_stores_nothing(nodes: dict[int, SharedLogEngine], shared: SharedStore) -> None:
    [log] = nodes[2].adopt([Leadership(key(1), 0)])
    log.append(batch(), 0)
    store = shared.open()
    assert store.fence(store.nodes()[1].lease, None, force=True)
    with pytest.raises(FencedWriteError) as refused:
        nodes[2].commit()
    assert refused.value.node
    assert shared.stored_end(key(1)) == 0


def test_a_new_incarnation_fences_the_earlier_one(nodes: dict[int, SharedLogEngine], shared: SharedStore) -> None:
    [log] = nodes[2].adopt([Leadership(key(1), 0)])
    log.append(batch(), 0)
    shared.advance(TTL_MS)
    shared.node(2)
    with pytest.raises(FencedWriteError):
        nodes[2].commit()


def test_a_follower_sees_the_end_that_the_leader_committed(nodes: dict[int, SharedLogEngine]) -> None:
    followed = nodes[2].follow(METADATA)
    assert followed is not None
    assert followed.high_watermark == 1
    first = contents(followed)
    record(nodes[1])
    nodes[1].commit()
    assert contents(followed) == first
    assert nodes[2].follow(METADATA) is followed
    assert contents(followed) == contents(nodes[1].open(METADATA))
    assert nodes[2].follow(key(77)) is None


def test_a_follower_cannot_write(nodes: dict[int, SharedLogEngine]) -> None:
    followed = nodes[2].follow(METADATA)
    assert followed is not None
    followed.append(batch(), 9)
    with pytest.raises(FencedWriteError):
        nodes[2].commit()


def test_a_follower_becomes_the_leader_with_the_same_handle(
    nodes: dict[int, SharedLogEngine], shared: SharedStore
) -> None:
    followed = nodes[2].follow(METADATA)
    shared.advance(TTL_MS)
    store = shared.open()
    store.register(2, description(2), TTL_MS)
    engine = SharedLogEngine(store.storage())
    followed = engine.follow(METADATA)
    become_controller(store, store.nodes()[1].lease, engine)
    assert engine.open(METADATA) is followed
    create(engine, {3: 2})
    assert store.leaders()[-1] == PartitionLeader(4, key(3), 2, 0)
    record(nodes[1])
    with pytest.raises(FencedWriteError):
        nodes[1].commit()


def test_a_removed_partition_is_reclaimed_by_the_controller(
    nodes: dict[int, SharedLogEngine], shared: SharedStore
) -> None:
    [log] = nodes[2].adopt([Leadership(key(1), 0)])
    fill(log, nodes[2], 5)
    record(nodes[1])
    nodes[1].remove(key(1))
    nodes[1].commit()
    log.append(batch(), 0)
    with pytest.raises(FencedWriteError):
        nodes[2].commit()
    nodes[2].drop(key(1))
    with pytest.raises(PartitionDroppedError):
        log.read(0, 100)
    assert nodes[1].shared.removed_numbers() == ([2], 4)
    while nodes[1].reclaim(2):
        pass
    assert nodes[1].shared.removed_numbers() == ([], 4)


def test_a_released_partition_is_left_to_its_new_leader(nodes: dict[int, SharedLogEngine]) -> None:
    [log, other] = nodes[2].adopt([Leadership(key(1), 0), Leadership(key(2), 0)])
    for each in (log, other):
        fill(each, nodes[2], 5)
        each.delete_before(3)
    nodes[2].commit()
    record(nodes[1])
    nodes[1].move(key(1), 1, 1, 0)
    nodes[1].commit()
    with pytest.raises(FencedWriteError):
        nodes[2].reclaim(10)
    nodes[2].release(key(1))
    assert not nodes[2].reclaim(10)
    assert len(contents(other)) == 2


def test_a_moved_partition_is_not_reclaimed_by_its_old_leader(nodes: dict[int, SharedLogEngine]) -> None:
    [log] = nodes[2].adopt([Leadership(key(1), 0)])
    fill(log, nodes[2], 5)
    log.delete_before(3)
    nodes[2].commit()
    record(nodes[1])
    nodes[1].move(key(1), 1, 1, 0)
    nodes[1].commit()
    with pytest.raises(FencedWriteError):
        nodes[2].reclaim(10)
    [new] = nodes[1].adopt([Leadership(key(1), 1)])
    assert not nodes[1].reclaim(10)
    assert new.log_start_offset == 3


@pytest.mark.parametrize("stored", [False, True])
def test_an_uncertain_write_is_resolved_by_reading(
    nodes: dict[int, SharedLogEngine], shared: SharedStore, stored: bool
) -> None:
    [log] = nodes[2].adopt([Leadership(key(1), 0)])
    expected = fill(log, nodes[2], 1)
    down = True

    def intercept(operation: str, node_id: int, after: bool) -> None:
        if operation == "write" and after is stored and down:
            raise UnknownOutcomeError("the connection was lost")
        if operation == "resolve_write" and down:
            raise StoreUnavailableError("the store cannot be reached")

    shared.memory.intercept = intercept
    data = batch()
    log.append(data, 0)
    with pytest.raises(StoreUnavailableError):
        nodes[2].commit()
    assert nodes[2].uncertain
    down = False
    nodes[2].recover()
    if stored:
        expected.append(stamped(data, 1, 0))
    assert contents(log) == expected
    assert log.end_offset == len(expected)
    assert fill(log, nodes[2], 1)


def test_an_unavailable_store_loses_nothing(nodes: dict[int, SharedLogEngine], shared: SharedStore) -> None:
    [log] = nodes[2].adopt([Leadership(key(1), 0)])

    def intercept(operation: str, node_id: int, after: bool) -> None:
        raise StoreUnavailableError("the store cannot be reached")

    shared.memory.intercept = intercept
    log.append(batch(), 0)
    with pytest.raises(StoreUnavailableError):
        nodes[2].commit()
    shared.memory.intercept = None
    assert contents(log) == []
    assert len(fill(log, nodes[2], 1)) == 1


def test_a_controller_that_could_not_read_the_next_number_adopts_nothing(
    nodes: dict[int, SharedLogEngine], shared: SharedStore
) -> None:
    """A new controller cannot read the next free partition number from the store, and does not adopt the metadata log.

    With an old number, the controller would give a new partition the number of an existing one, whose batches would be
    lost.
    """
    assert len(fill(nodes[2].adopt([Leadership(key(1), 0)])[0], nodes[2], 2)) == 2
    shared.advance(2 * TTL_MS)
    store, lease, engine = shared.node(3)
    taken = store.take_controller(lease, TTL_MS)
    assert taken is not None

    def intercept(operation: str, node_id: int, after: bool) -> None:
        if operation == "removed_numbers":
            raise StoreUnavailableError("the store cannot be reached")

    shared.memory.intercept = intercept
    with pytest.raises(StoreUnavailableError):
        engine.adopt([Leadership(METADATA, taken.epoch)])
    shared.memory.intercept = None
    assert engine.controller_epoch == -1
    engine.adopt([Leadership(METADATA, taken.epoch)])
    create(engine, {3: 3})
    numbers = [meta.number for meta in shared.memory.data._keys.values()]
    assert len(set(numbers)) == len(numbers)
