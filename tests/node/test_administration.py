"""Administration by the client API: many topics and groups at a time, users, and the states of transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

import kcore
from kcore import errors
from kcore.client.aio.broker import Broker
from kcore.inspect.groups import OffsetRow, all_offset_rows
from kcore.node.types import (
    GroupDescription,
    OffsetAndMetadata,
    PartitionDescription,
    ProducerState,
    SharePosition,
    TransactionDescription,
    TransactionListing,
)
from kcore.protocol.messages.metadata import MetadataResponse
from kcore.protocol.schema import Request
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.batch import iter_records, split_batches
from tests.kit import wait_until
from tests.node.conftest import SETTINGS
from tests.node.share_offsets import set_start_offset
from tests.nodes import TargetTransport
from tests.transaction.world import Identity, produce_request

R = TypeVar("R")


def test_topics_are_described_with_their_leaders_and_offsets(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 2, config={"retention.ms": 60_000})
    topic.append_many(["a", "b"], partition=1)
    (described,) = node.topics.describe([name])
    leader = described.partitions[0].leader
    assert leader is not None
    assert described.partitions == tuple(PartitionDescription(n, leader, (leader,), (leader,)) for n in (0, 1))
    assert (described.name, described.id, described.internal) == (name, topic.describe().id, False)
    assert described in node.topics.describe()
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        node.topics.describe([name, f"{name}-missing"])
    assert node.topics.describe([name, f"{name}-missing"], missing_ok=True) == [described]
    topic_partitions = [(name, 0), (name, 1), (name, 2), (f"{name}-missing", 0)]
    assert node.topics.end_offsets(topic_partitions) == {(name, 0): 0, (name, 1): 2}
    assert node.topics.start_offsets(topic_partitions) == {(name, 0): 0, (name, 1): 0}
    assert node.topics.end_offsets([]) == {}
    assert topic.config(own=True) == {"retention.ms": "60000"}
    assert len(topic.config()) > 10


def test_encoded_batches_are_returned_whole(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1)
    topic.append_many(["a", "b"])
    topic.append("c")
    data = topic.read_batches(0, 1)
    spans = split_batches(data).batches
    values = [[record.value for record in iter_records(data[start : start + size])] for start, size in spans]
    assert values == [[b"a", b"b"], [b"c"]], "the first batch begins before the offset"
    assert topic.read_batches(0, 3) == b""
    with pytest.raises(errors.OffsetOutOfRangeError):
        topic.read_batches(0, 4)


def test_groups_of_several_types_are_described_at_once(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    idle, modern, missing = f"{name}-idle", f"{name}-modern", f"{name}-missing"
    node.group(idle).commit({(name, 0): OffsetAndMetadata(3, "note")})
    with node.group(modern).join(name) as member:
        next(event for event in member.events() if event.partitions)
        found = node.groups.describe([idle, modern, missing])
        assert set(found) == {idle, modern, missing}
        assert found[idle] == GroupDescription(idle, "classic", "Empty")
        described = found[modern]
        assert isinstance(described, GroupDescription)
        assert (described.type, described.state, described.assignment_epoch) == ("consumer", "Stable", described.epoch)
        (row,) = described.members
        assert (row.member_id, row.assignment, row.target, row.classic) == (
            member.member_id,
            (TopicPartition(name, 0),),
            (TopicPartition(name, 0),),
            False,
        )
        assert isinstance(found[missing], errors.GroupIdNotFoundError)
    assert node.groups.committed([idle, missing]) == {
        idle: {TopicPartition(name, 0): OffsetAndMetadata(3, "note")},
        missing: {},
    }
    assert node.groups.describe([]) == {}


def test_a_classic_member_is_described_with_its_partitions(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    with node.group(name).join(name, protocol="classic", assignors=["range"]) as member:
        next(event for event in member.events() if event.partitions)
        (row,) = node.group(name).describe().members
    assert (row.assignment, row.assignment_decoded, row.topics) == ((TopicPartition(name, 0),), True, (name,))
    assert row.raw_assignment != b""


def test_share_groups_have_start_offsets_and_lags(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1).append_many(list("abc"))
    group = node.group(name)
    assert group.share_positions() == {}, "the group does not exist"
    group.set_config({"share.auto.offset.reset": "earliest"})
    assert group.config(own=True) == {"share.auto.offset.reset": "earliest"}
    set_start_offset(node, name, name, 1)
    name_and_index = TopicPartition(name, 0)
    assert group.share_positions() == {name_and_index: SharePosition(1, 2)}
    assert all_offset_rows(node, [name]) == [OffsetRow(name, name, 0, 1, 3, 2, None)]


def test_users_are_added_changed_and_removed(node: kcore.Node, name: str) -> None:
    def expect(mechanisms: dict[str, int] | None) -> None:
        """Waits until the broker has the change. Kafka's controller acknowledges a change before brokers apply it."""
        wait_until(lambda: node.users.list().get(name) == mechanisms, f"the user has {mechanisms}")

    assert name not in node.users.list()
    node.users.set_password(name, "secret")
    expect({"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096})
    node.users.set_password(name, "other", mechanisms=["SCRAM-SHA-512"], iterations=5000)
    expect({"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 5000})
    node.users.remove(name, ["SCRAM-SHA-256"])
    expect({"SCRAM-SHA-512": 5000})
    node.users.remove(name)
    expect(None)
    with pytest.raises(errors.ResourceNotFoundError):
        node.users.remove(name)
    with pytest.raises(errors.UnacceptableCredentialError):
        node.users.set_password(name, "secret", iterations=1)
    with pytest.raises(errors.UnacceptableCredentialError, match="too many"):  # such a count would take hours
        node.users.set_password(name, "secret", iterations=10**9)
    with pytest.raises(ValueError, match=r"'PLAIN' does not exist; valid: 'SCRAM-SHA-256', 'SCRAM-SHA-512'$"):
        node.users.set_password(name, "secret", mechanisms=["PLAIN"])


def test_an_open_transaction_is_listed_and_described(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    name_and_index = TopicPartition(name, 0)
    begin = datetime.now(UTC)
    with node.transaction(name, timeout=30.0) as transaction:
        transaction.append(name, "x" * 600_000)  # so large that it is sent at once
        (producer,) = node.transactions.producers([name_and_index])
        assert producer == ProducerState(
            name_and_index, producer.producer_id, producer.producer_epoch, 0, producer.last_timestamp_ms, -1, 0
        )
        assert producer.last_timestamp.timestamp() * 1000 == producer.last_timestamp_ms
        listed = TransactionListing(name, producer.producer_id, "Ongoing")
        assert listed in node.transactions.list()
        assert listed in node.transactions.list(states=["Ongoing"], producer_ids=[producer.producer_id])
        assert listed not in node.transactions.list(longer_than=600.0)
        described = node.transactions.describe([name, f"{name}-missing"])
        state = described[name]
        assert isinstance(state, TransactionDescription)
        assert state.started is not None
        assert begin - timedelta(seconds=5) <= state.started <= datetime.now(UTC) + timedelta(seconds=5)
        assert (state.timeout, state.partitions, state.state) == (30.0, (name_and_index,), "Ongoing")
        assert isinstance(described[f"{name}-missing"], errors.TransactionalIdNotFoundError)
    # Kafka's coordinator writes the marker after it has acknowledged the commit.
    wait_until(
        lambda: node.topics.end_offsets([name_and_index]) == {name_and_index: 2},
        "the record and the marker are visible",
    )

    wait_until(
        lambda: name in [row.transactional_id for row in node.transactions.list(states=["CompleteCommit"])],
        "the end of the transaction",
    )
    ended = node.transactions.describe([name])[name]
    assert isinstance(ended, TransactionDescription)
    assert ended == TransactionDescription(
        name, ended.producer_id, ended.producer_epoch, "CompleteCommit", 30.0, started=None, partitions=()
    )
    with pytest.raises(ValueError, match="'Sleeping' does not exist; valid: 'Empty', 'Ongoing', "):
        node.transactions.list(states=["Sleeping"])
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        node.transactions.producers([(name, 7)])


def test_only_force_aborts_a_transaction_of_a_coordinator_in_one_partition(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    name_and_index = TopicPartition(name, 0)
    with node.transaction(name) as transaction:
        transaction.append(name, "x" * 600_000)
        (producer,) = node.transactions.producers([name_and_index])
        with pytest.raises(errors.KcoreError, match=f"with transactional id '{name}'"):
            node.transactions.abort(producer)
        assert node.transactions.producers([name_and_index]) == [producer]
        node.transactions.abort(producer, force=True)
        (after,) = node.transactions.producers([name_and_index])
        assert (after.transaction_start, after.producer_id) == (None, producer.producer_id)
        assert node.topics.end_offsets([name_and_index]) == {name_and_index: 2}, "the record and the marker"
    assert node.topics[name].read(0, 0) == []


def test_a_hanging_transaction_is_found_and_aborted() -> None:
    clock = kcore.ManualClock()
    with kcore.open(clock=clock, config={"transaction.partition.verification.enable": False}) as node:
        node.topics.create("jobs", 2)
        topic_partitions = [TopicPartition("jobs", number) for number in range(2)]
        # An unverified batch, as before KIP-890: no coordinator knows its transaction.
        request = produce_request("lost", Identity(9_999, 3), 0, b"a", b"b", topic="jobs", wall_ms=clock.wall_ms())
        assert not node.send(request, 11).responses[0].partition_responses[0].error_code
        with node.transaction("living") as transaction:
            transaction.append("jobs", "c", partition=1)
            transaction.flush()
            assert node.transactions.hanging(topic_partitions) == []  # the producer has written just now
            (hanging,) = node.transactions.hanging(topic_partitions, idle=0)
            assert (hanging.partition, hanging.producer_id, hanging.transaction_start) == (
                topic_partitions[0],
                9_999,
                0,
            )
        node.advance(899_000)
        assert node.transactions.hanging(topic_partitions) == []
        node.advance(1_000)
        assert node.transactions.hanging(topic_partitions) == [hanging]
        assert node.transactions.hanging(topic_partitions[1:]) == []
        node.transactions.abort(hanging)
        assert node.transactions.hanging(topic_partitions) == []
        assert node.topics.end_offsets(topic_partitions[:1]) == {topic_partitions[0]: 3}, (
            "the records and the marker are visible"
        )


def test_a_transaction_that_ends_during_the_search_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    with kcore.open() as node:
        node.topics.create("jobs", 1)
        transactions = node.transactions
        listed = transactions.list
        with node.transaction("living") as transaction:
            transaction.append("jobs", "a")
            transaction.flush()

            def ending(**filters: Any) -> Any:
                transaction.commit()
                return listed(**filters)

            monkeypatch.setattr(transactions, "list", ending)
            assert transactions.hanging([("jobs", 0)], idle=0) == []


async def test_groups_transactions_and_users_are_administered_on_a_loop(anode: kcore.AsyncNode, name: str) -> None:
    await anode.topics.create(name, 1)
    await anode.group(name).commit({(name, 0): 3})
    assert await anode.groups.committed([name]) == {name: {TopicPartition(name, 0): OffsetAndMetadata(3)}}
    assert await anode.groups.describe([name]) == {name: GroupDescription(name, "classic", "Empty")}
    assert await anode.group(name).pending_offsets([(name, 0)]) == set()
    async with anode.transaction(name) as transaction:
        await transaction.commit_offsets(anode.group(name), {(name, 0): 5})
        assert await anode.group(name).pending_offsets([(name, 0)]) == {TopicPartition(name, 0)}
        assert [row.state for row in await anode.transactions.list() if row.transactional_id == name] == ["Ongoing"]
    await anode.users.set_password(name, "secret", mechanisms=["SCRAM-SHA-256"])
    await anode.users.remove(name, ["SCRAM-SHA-256"])
    with pytest.raises(errors.ResourceNotFoundError):
        await anode.users.remove(name, ["SCRAM-SHA-256"])
    assert await anode.cluster_id() == await anode.cluster_id() != ""


class TwoBrokers(TargetTransport):
    """A cluster of two brokers, each of which is an engine. Names that end in "b" belong to the second broker."""

    def __init__(self, engines: Sequence[Any]) -> None:
        super().__init__(engines[0])
        self.brokers_of = {Broker(number, "localhost", 9092 + number): engine for number, engine in enumerate(engines)}

    def _of(self, name: str) -> Broker:
        return list(self.brokers_of)[name.endswith("b")]

    def send(
        self,
        request: Request[R],
        version: int | None = None,
        *,
        at_most: int | None = None,
        broker: Broker | None = None,
        channel: str = "",
        timeout_s: float | None = None,
    ) -> R:
        """Sends a request to `broker`. If it is None, sends the request to the coordinator of the request's first
        transactional id.
        """
        if broker is None:
            broker = self._of((getattr(request, "transactional_ids", None) or ["a"])[0])
        response: R = self.brokers_of[broker].send(request, at_most if version is None else version)
        return response

    def metadata(self, topics: Iterable[str] | None, create: bool = False) -> MetadataResponse:
        """Requests the metadata of each topic from the broker to which the topic belongs."""
        names = None if topics is None else list(topics)
        response = MetadataResponse(topics=[])
        for broker, engine in self.brokers_of.items():
            own = None if names is None else [name for name in names if self._of(name) == broker]
            rows = TargetTransport(engine).metadata(own).topics
            response.topics = [*response.topics, *rows]
        return response

    def by_leader(self, partitions: Sequence[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Groups partitions by the broker to which their topics belong."""
        grouped: dict[Broker, list[TopicPartition]] = {}
        for partition in partitions:
            grouped.setdefault(self._of(partition.topic), []).append(partition)
        return list(grouped.items())

    def coordinator(self, key_type: int, key: str) -> Broker:
        """Returns the broker to which a name belongs."""
        TargetTransport(self.brokers_of[self._of(key)]).coordinator(key_type, key)
        return self._of(key)

    def brokers(self) -> list[Broker]:
        """Returns both brokers of the cluster."""
        return list(self.brokers_of)


@pytest.fixture
def halves() -> Iterator[tuple[kcore.Node, kcore.EmbeddedNode, kcore.EmbeddedNode]]:
    with kcore.open(config=SETTINGS) as first, kcore.open(config=SETTINGS) as second:
        yield kcore.Node(TwoBrokers([first, second]), local=True), first, second


def test_each_request_goes_to_the_broker_of_its_group_partition_and_transaction(
    halves: tuple[kcore.Node, kcore.EmbeddedNode, kcore.EmbeddedNode],
) -> None:
    """Calls with names of both brokers succeed, because the client sends each part of a call to the right broker."""
    node, *engines = halves
    for letter, engine in zip("ab", engines, strict=True):
        engine.topics.create(f"topic-{letter}", 1).append_many(list("xy"))
        engine.group(f"group-{letter}").commit({(f"topic-{letter}", 0): 1})
        with engine.transaction(f"tx-{letter}") as transaction:
            transaction.append(f"topic-{letter}", "z")
    assert [group.group_id for group in node.groups.list()] == ["group-a", "group-b"]
    assert node.groups.describe(["group-b", "group-a"]) == {
        name: GroupDescription(name, "classic", "Empty") for name in ("group-a", "group-b")
    }
    assert all_offset_rows(node, []) == [
        OffsetRow("group-a", "topic-a", 0, 1, 4, 3, None),
        OffsetRow("group-b", "topic-b", 0, 1, 4, 3, None),
    ]
    assert [row.transactional_id for row in node.transactions.list()] == ["tx-a", "tx-b"]
    states = node.transactions.describe(["tx-b", "tx-a"]).values()
    assert [state.state for state in states if isinstance(state, TransactionDescription)] == ["CompleteCommit"] * 2
    producers = node.transactions.producers([("topic-b", 0), ("topic-a", 0)])
    assert [state.partition.topic for state in producers] == ["topic-a", "topic-b"]


def test_a_loading_coordinator_gets_the_request_again(
    halves: tuple[kcore.Node, kcore.EmbeddedNode, kcore.EmbeddedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the coordinator of a group loads or moves, the client repeats the request, so the result has no error."""
    node, first, _ = halves
    first.topics.create("t", 1)
    first.group("group-a").commit({("t", 0): 1})
    transport: Any = node._calls.transport
    send = transport.send
    codes = [errors.ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, errors.ErrorCode.NOT_COORDINATOR]

    def loading(request: Any, *args: Any, **options: Any) -> Any:
        response = send(request, *args, **options)
        if type(request).__name__ == "DescribeGroupsRequest" and codes:
            response.groups[0].error_code = codes.pop(0)
        return response

    monkeypatch.setattr(transport, "send", loading)
    assert node.groups.describe(["group-a"]) == {"group-a": GroupDescription("group-a", "classic", "Empty")}
    assert codes == []
