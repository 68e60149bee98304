"""The compiled fetch reader and its Python definition give the same responses to the same requests."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kcore.runtime import Pending
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_produce import request, transactional
from tests.reference.fetch_reader import ReferenceReader
from tests.seeds import first_of

TOPICS = ("a", "b", "later")
STEPS = 150


class Denies:
    """An authorizer that denies reads of some topics."""

    def __init__(self) -> None:
        self.denied: set[str] = set()

    def allowed(self, context: Any, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return name not in self.denied


class Pair:
    """Two data planes that get the same requests: one has the compiled reader, the other the Python reader."""

    def __init__(self, rng: random.Random, authorized: bool) -> None:
        self.rng = rng
        self.denies = Denies() if authorized else None
        config = {"transaction.partition.verification.enable": "false"}
        self.planes = [DataPlane(config=config, authorizer=self.denies) for _ in range(2)]
        self.planes[1].fetch_api.reader = ReferenceReader()
        self.waiting: list[tuple[Any, Any]] = []
        self.sequences: dict[tuple[str, int], int] = {}
        self.sessions: dict[tuple[int, int], int] = {}
        self.each(lambda plane: plane.topic("a", 3))
        self.each(lambda plane: plane.topic("b", 2))

    def each(self, do: Any) -> Any:
        first, second = [do(plane) for plane in self.planes]
        return first, second

    def same(self, responses: tuple[Any, Any], version: int) -> Any:
        """Compares both responses as a client decodes them. Parked responses are compared once they are complete."""
        first, second = responses
        assert isinstance(first, Pending) == isinstance(second, Pending)
        if isinstance(first, Pending):
            assert (first.done, first.parked) == (second.done, second.parked)
            if not first.done:
                self.waiting.append((responses, version))
                return None
            first, second = first.response, second.response
        read = [type(one).decode(one.encode(version), version) for one in (first, second)]
        assert read[0] == read[1]
        return read[0]

    def settle(self) -> None:
        """Compares the responses that both brokers have completed since the last call."""
        waiting, self.waiting = self.waiting, []
        for responses, version in waiting:
            self.same(responses, version)

    # ---- events

    def append(self) -> None:
        topic, index = self.rng.choice((("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)))
        if topic not in self.planes[0].topics:
            return
        batch = batch_of(*[b"v" * self.rng.randrange(200)] * self.rng.randrange(1, 4))
        acks = self.rng.choice((-1, -1, 0)) if self.denies is None else -1
        self.each(lambda plane: plane.send(request((topic, index, batch), acks=acks), 11))

    def transact(self) -> None:
        """Writes a record of a transaction, or ends the transaction."""
        index = self.rng.randrange(2)
        if self.rng.random() < 0.5:
            sequence = self.sequences.get(("b", index), 0)
            self.sequences["b", index] = sequence + 1
            batch = transactional(sequence)
            self.each(lambda plane: plane.send(request(("b", index, batch), tid="tid"), 11))
        else:
            commit = self.rng.random() < 0.5
            if self.planes[0].partition("b", index).producers.first_unstable_offset() is not None:
                self.each(lambda plane: plane.partition("b", index).append_marker(7, 0, 0, commit, plane.now.wall_ms))

    def commit(self) -> None:
        self.each(lambda plane: plane.commit())

    def fail(self) -> None:
        self.each(lambda plane: plane.fail_next_commit() if plane.pipeline.dirty else None)
        self.commit()

    def advance(self) -> None:
        ms = self.rng.randrange(1, 60)
        self.each(lambda plane: plane.advance(ms))

    def trim(self) -> None:
        index = self.rng.randrange(3)
        self.commit()
        self.each(lambda plane: plane.partition("a", index).delete_before(plane.partition("a", index).high_watermark))

    def remake(self) -> None:
        """Deletes and recreates topic `a`, or deletes or creates topic `later`. A new topic has a new id."""
        self.commit()
        name = self.rng.choice(("a", "later"))
        if name in self.planes[0].topics and name != "a":
            self.each(lambda plane: plane.partitions.on_topic_deleted(plane.topics.pop(name)))
        elif name == "a":
            self.each(lambda plane: plane.partitions.on_topic_deleted(plane.topics.pop("a")))
            self.each(lambda plane: plane.topic("a", 3))
        else:
            self.each(lambda plane: plane.topic(name, 1))

    def deny(self) -> None:
        if self.denies is not None:
            self.denies.denied ^= {self.rng.choice(TOPICS)}

    # ---- fetches

    def entry(self, topic: str, version: int) -> FetchPartition:
        rng = self.rng
        found = self.planes[0].partitions.get(topic, index := rng.randrange(4))
        end = 0 if found is None else found.end_offset
        return FetchPartition(
            partition=index,
            fetch_offset=rng.choice((0, end, end, max(end - 1, 0), rng.randrange(end + 2), -1)),
            partition_max_bytes=rng.choice((0, 1, 150, 1 << 20)),
            current_leader_epoch=rng.choice((-1, -1, self.planes[0].partitions.leader_epoch, 0, 99)),
            last_fetched_epoch=-1
            if version < 12
            else rng.choice((-1,) * 4 + (self.planes[0].partitions.leader_epoch, 9)),
        )

    def topic(self, version: int) -> FetchTopic:
        name = self.rng.choice(TOPICS)
        known = self.planes[0].topics.get(name)
        topic_id = bytes(15) + b"?" if known is None else known.topic_id
        entries = [self.entry(name, version) for _ in range(self.rng.randrange(4))]
        return FetchTopic(topic=name, topic_id=topic_id, partitions=entries)

    def fetch(self) -> None:
        rng = self.rng
        version = rng.choice((4, 7, 11, 12, 13, 16, 17))
        session = rng.choice(list(self.sessions)) if self.sessions and rng.random() < 0.6 else None
        if session is not None:
            version = session[1]
        topics = [self.topic(version) for _ in range(rng.randrange(0 if session else 1, 4))]
        named = {(topic.topic, entry.partition): None for topic in topics for entry in topic.partitions}
        requested = FetchRequest(
            max_wait_ms=rng.choice((0, 0, 50)),
            min_bytes=rng.choice((0, 1, 1, 300)),
            max_bytes=rng.choice((0, 1, 200, 1 << 20)),
            isolation_level=rng.randrange(2),
            session_id=0,
            session_epoch=rng.choice((-1, 0)),
            topics=topics,
        )
        if session is not None:
            requested.session_id, requested.session_epoch = session[0], self.sessions[session]
            self.sessions[session] += 1
            if named and rng.random() < 0.3:
                name, index = rng.choice(list(named))
                topic_id = next(topic.topic_id for topic in topics if topic.topic == name)
                requested.forgotten_topics_data = [ForgottenTopic(topic=name, topic_id=topic_id, partitions=[index])]
        requested = FetchRequest.decode(requested.encode(version), version)  # without fields that the version lacks
        response = self.same(self.each(lambda plane: plane.send(requested, version)), version)
        if response is not None and version >= 7 and response.session_id and session is None:
            self.sessions[response.session_id, version] = 1


@pytest.mark.parametrize("authorized", [False, True])
@pytest.mark.parametrize("seed", first_of(range(30), 10))
def test_both_readers_give_the_same_responses(seed: int, authorized: bool) -> None:
    """Random appends, commits and their failures, transactions, deletions, denials and fetches of every kind."""
    print("seed", seed)
    rng = random.Random(seed)
    pair = Pair(rng, authorized)
    acts = [pair.append] * 5 + [pair.transact] * 2 + [pair.commit] * 4 + [pair.fetch] * 12
    acts += [pair.fail, pair.advance, pair.trim, pair.remake, pair.deny]
    for _ in range(STEPS):
        rng.choice(acts)()
        pair.settle()
    pair.commit()
    pair.each(lambda plane: plane.advance(60))
    pair.settle()
    assert pair.waiting == []
    assert [(len(plane.purgatory), sum(p.watched for p in plane.partitions)) for plane in pair.planes] == [(0, 0)] * 2
