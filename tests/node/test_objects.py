"""The objects of the client API as Python objects: their `repr`, copies, and `with` blocks of listeners."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.errors import ConnectionClosedError, MessageTooLargeError
from tests.node.conftest import SETTINGS


def test_the_repr_of_a_node_has_its_address_and_its_end(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    with kcore.open(folder, config=SETTINGS) as stored, kcore.open(config=SETTINGS) as memory:
        assert (repr(stored), repr(memory)) == (f"EmbeddedNode({folder!r})", "EmbeddedNode('memory')")
        listening = memory.listen()
        with kcore.connect(listening.bootstrap) as connected:
            assert repr(connected) == f"Node({listening.bootstrap!r})"
        assert repr(connected) == f"Node({listening.bootstrap!r}, closed)"
        assert repr(listening) == f"Listening({listening.bootstrap!r})"
    assert repr(memory) == "EmbeddedNode('memory', closed)"


@pytest.mark.parametrize("name", ["acls", "brokers", "groups", "quotas", "topics", "transactions", "users"])
def test_the_repr_of_a_nodes_part_has_the_address_of_the_node(name: str) -> None:
    """Before, it was Python's default, with the path of a private module."""
    with kcore.open(config=SETTINGS) as node:
        assert repr(getattr(node, name)) == f"{name.capitalize()}('memory')"


async def test_the_repr_of_an_asynchronous_node_has_its_address_and_its_end() -> None:
    async with kcore.open_async(config=SETTINGS) as node, await node.listen() as listening:
        address = listening.bootstrap
        async with kcore.connect_async([address, "localhost:1"]) as connected:
            assert repr(connected) == f"AsyncNode('{address},localhost:1')"
        assert repr(node) == "AsyncEmbeddedNode('memory')"
        assert repr(listening) == f"AsyncListening({address!r})"
    assert (repr(node), repr(listening)) == (
        "AsyncEmbeddedNode('memory', closed)",
        f"AsyncListening({address!r}, closed)",
    )


@pytest.mark.filterwarnings("ignore::kcore.errors.ImplausibleTimeWarning")  # the record must wait
def test_the_repr_of_an_object_has_its_name_and_its_state(node: kcore.Node, name: str) -> None:
    consumer = node.group(name).consume(name)
    assert repr(consumer) == f"Consumer({name!r}, {consumer.member.member_id!r}, Unsubscribed)"
    transaction = node.transaction(name)
    assert repr(transaction) == f"Transaction({name!r}, not open)"
    with transaction:
        assert repr(transaction) == f"Transaction({name!r}, open)"
    node.topics.create(name, 1)
    with node.producer(linger=60.0) as producer:
        assert repr(producer) == "Producer(open)"
        delivery = producer.append(name, "v")
        assert repr(delivery) == f"Delivery({name}-0, not stored yet)"
    assert (repr(producer), repr(delivery)) == ("Producer(closed)", f"Delivery({name}-0, offset 0)")


def test_the_repr_of_a_failed_delivery_has_the_error(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1, config={"max.message.bytes": 100})
    with node.producer() as producer:
        delivery = producer.append(name, "x" * 1_000)
        with pytest.raises(MessageTooLargeError) as raised:
            delivery.result()
        with pytest.raises(MessageTooLargeError):
            producer.flush()
    assert repr(delivery) == f"Delivery({name}-0, failed: {raised.value!r})"


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy])
def test_an_object_of_a_node_cannot_leave_its_process(node: kcore.Node, name: str, duplicate: Any) -> None:
    """A program may pass a node to a pool of processes, or to functions of a Spark job. Before, the error was that a
    lock, or an extension type without a default __reduce__, cannot be pickled.
    """
    objects = [node, node.topics, node.topics[name], node.group(name), node.group(name).join(name), node.producer()]
    for each in objects:
        with pytest.raises(TypeError, match=r"belong to one process: open or connect a node in each process$"):
            duplicate(each)


def test_a_block_closes_its_listener() -> None:
    with kcore.open(config=SETTINGS) as node:
        with node.listen() as listening:
            kcore.connect(listening.bootstrap).close()
        with pytest.raises(ConnectionClosedError):
            kcore.connect(listening.bootstrap)
        assert repr(listening) == f"Listening({listening.bootstrap!r}, closed)"
        assert list(node._calls.resources) == []  # the node keeps no listener that is closed


async def test_a_block_closes_its_asynchronous_listener() -> None:
    async with kcore.open_async(config=SETTINGS) as node:
        async with await node.listen() as listening:
            await (await kcore.connect_async(listening.bootstrap)).close()
        with pytest.raises(ConnectionClosedError):
            await kcore.connect_async(listening.bootstrap)
        assert (list(node._calls.resources), node._listening) == ([], [])
