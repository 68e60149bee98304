"""A shared store: registration of nodes, leases of nodes and of the controller, fencing of nodes."""

from __future__ import annotations

import pytest

from kcore.cluster.store import METADATA, Endpoint, NodeDescription, PartitionLeader, RegisteredNode
from kcore.log.errors import FencedWriteError, NodeAliveError
from tests.cluster.conftest import CLUSTER_ID, TTL_MS, SharedStore, description


def test_a_description_survives_its_encoding() -> None:
    described = NodeDescription(
        (Endpoint("INTERNAL", "SASL_SSL", "10.0.0.1", 9093), Endpoint("PUBLIC", "SSL", "kafka.example", 443)),
        "rack-1",
        "INTERNAL",
    )
    assert NodeDescription.decode(described.encode()) == described


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"endpoints": [{}], "rack": null}', b"\xff"])
def test_other_bytes_are_refused_as_a_description(data: bytes) -> None:
    with pytest.raises(ValueError, match="are not the description of a node"):
        NodeDescription.decode(data)


def test_a_node_registers_and_the_others_see_it(shared: SharedStore) -> None:
    store = shared.open()
    assert store.cluster_id() == CLUSTER_ID
    lease = store.register(7, description(7, "a"), TTL_MS)
    assert lease == ("node/7", 7, 1, TTL_MS)
    shared.advance(1_000)
    assert shared.open().nodes() == [
        RegisteredNode(7, lease._replace(remaining_ms=TTL_MS - 1_000), False, False, description(7, "a"))
    ]


def test_a_node_id_in_use_is_refused_until_its_lease_expires(shared: SharedStore) -> None:
    shared.open().register(7, description(), TTL_MS)
    shared.advance(TTL_MS - 1)
    other = shared.open()
    with pytest.raises(NodeAliveError) as refused:
        other.register(7, description(), TTL_MS)
    assert refused.value.remaining_ms == 1
    shared.advance(1)
    assert other.register(7, description(), TTL_MS).epoch == 2


def test_a_repeated_registration_of_the_same_process_succeeds(shared: SharedStore) -> None:
    store = shared.open()
    first = store.register(7, description(), TTL_MS)
    again = store.register(7, description(), TTL_MS)
    assert again.epoch == first.epoch + 1
    assert store.renew([first, again], TTL_MS) == [False, True]


def test_a_renewal_extends_the_lease_by_the_stores_clock(shared: SharedStore) -> None:
    store = shared.open()
    lease = store.register(7, description(), TTL_MS)
    shared.advance(TTL_MS - 1)
    assert store.renew([lease], TTL_MS) == [True]
    assert store.nodes()[0].lease.remaining_ms == TTL_MS


def test_an_expired_lease_that_was_not_taken_can_be_renewed(shared: SharedStore) -> None:
    store = shared.open()
    lease = store.register(7, description(), TTL_MS)
    shared.advance(TTL_MS + 1)
    assert store.renew([lease], TTL_MS) == [True]


def test_one_node_at_a_time_is_controller(shared: SharedStore) -> None:
    one, first, _ = shared.node(1)
    two, second, _ = shared.node(2)
    taken = one.take_controller(first, TTL_MS)
    assert taken == ("controller", 1, 1, TTL_MS)
    assert two.take_controller(second, TTL_MS) is None
    assert one.leaders() == [PartitionLeader(0, METADATA, 1, 1)]
    shared.advance(TTL_MS)
    assert two.take_controller(second, TTL_MS) == ("controller", 2, 2, TTL_MS)
    assert one.leaders() == [PartitionLeader(0, METADATA, 2, 2)]
    assert taken is not None
    assert one.renew([taken], TTL_MS) == [False]


def test_a_released_controller_lease_can_be_taken_at_once(shared: SharedStore) -> None:
    one, first, _ = shared.node(1)
    two, second, _ = shared.node(2)
    taken = one.take_controller(first, TTL_MS)
    assert taken is not None
    one.release_controller(taken)
    assert two.take_controller(second, TTL_MS) == ("controller", 2, 2, TTL_MS)
    one.release_controller(taken)  # the lease of another node
    assert two.controller() == ("controller", 2, 2, TTL_MS)


def test_a_fenced_node_cannot_take_the_controller(shared: SharedStore) -> None:
    store, lease, _ = shared.node(1)
    assert shared.open().fence(lease, None, force=True)
    with pytest.raises(FencedWriteError) as refused:
        store.take_controller(lease, TTL_MS)
    assert refused.value.node


def test_only_an_expired_lease_is_fenced(shared: SharedStore) -> None:
    one, first, _ = shared.node(1)
    two, second, _ = shared.node(2)
    controller = one.take_controller(first, TTL_MS)
    assert controller is not None
    assert not one.fence(second, controller)
    shared.advance(TTL_MS - 1)
    assert one.renew([first, controller], TTL_MS) == [True, True]
    shared.advance(1)
    assert one.fence(second, controller)
    assert [(node.node_id, node.fenced) for node in one.nodes()] == [(1, False), (2, True)]
    assert two.renew([second], TTL_MS) == [False]
    assert not one.fence(second, controller)  # that incarnation has ended


def test_a_controller_without_its_lease_fences_no_node(shared: SharedStore) -> None:
    one, first, _ = shared.node(1)
    _, second, _ = shared.node(2)
    controller = one.take_controller(first, TTL_MS)
    shared.advance(TTL_MS)
    with pytest.raises(FencedWriteError):
        one.fence(second, controller)
    assert not one.nodes()[1].fenced


def test_an_unregistered_node_ends_both_leases(shared: SharedStore) -> None:
    one, first, _ = shared.node(1)
    two, second, _ = shared.node(2)
    assert one.take_controller(first, TTL_MS)
    one.unregister(first)
    one.unregister(first)
    assert [(node.fenced, node.lease.remaining_ms) for node in two.nodes()] == [(True, 0), (False, TTL_MS)]
    assert two.take_controller(second, TTL_MS) == ("controller", 2, 2, TTL_MS)
    assert shared.open().register(1, description(), TTL_MS).epoch == 2


def test_draining_is_a_flag_of_a_known_node(shared: SharedStore) -> None:
    store, _, _ = shared.node(1)
    assert not store.set_draining(2, True)
    assert store.set_draining(1, True)
    assert store.nodes()[0].draining
    assert store.set_draining(1, False)
    assert not store.nodes()[0].draining


def test_changes_of_nodes_notify_the_others(shared: SharedStore) -> None:
    calls = []
    store, lease, _ = shared.node(1)
    store.listen(lambda: calls.append("changed"))
    shared.open().register(2, description(2), TTL_MS)
    assert calls == ["changed"]
    store.take_controller(lease, TTL_MS)
    assert calls == ["changed", "changed"]
