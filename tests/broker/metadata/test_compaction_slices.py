"""Compaction of the metadata log in slices: changes, crashes and failed commits between two slices lose nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kcore.broker.acl.entries import Acl
from kcore.broker.metadata import image_parts as module
from kcore.broker.metadata.image import ConfigType
from kcore.broker.metadata.machine import METADATA_PARTITION
from kcore.broker.metadata.partition_range import MetadataBlock
from kcore.broker.metadata.records import (
    acl_record,
    acl_removal_record,
    config_record,
    partition_records,
    removal_records,
    scram_record,
    scram_removal_record,
    topic_records,
)
from kcore.security.scram import ScramCredential, ScramMechanism
from tests.broker.context import NODE_ID, BrokerContext
from tests.seeds import SEED, first_of

KINDS = ("topic", "topic", "grow", "grow", "delete", "config", "config", "group", "acl", "acl", "scram")


class ChangingNode:
    """A node with state of every kind, which changes at random between the slices of a compaction."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.node = BrokerContext()
        self._number = 0
        for _ in range(60):
            self.change()
        self.commit()

    def commit(self) -> None:
        self.node.pipeline.commit()

    def state(self) -> Any:
        """Returns all durable state except the feature epoch, which is the offset of a record."""
        image = self.node.topics.image
        state = list(self.node.durable_state())
        del state[5]
        users = {user: dict(credentials) for user, credentials in image.scram.items()}
        return state, dict(image.acls.by_id), users

    def decide(self, records: list[Any]) -> None:
        machine = self.node.machine
        assert self.node.shard.perform(lambda: machine.outcome(records)) is None

    def change(self) -> None:
        """Decides one random change that is valid now."""
        rng, image = self.rng, self.node.topics.image
        self._number += 1
        name, value = f"n{rng.randrange(12)}", str(self._number)
        topic = image.by_name(name)
        kind = rng.choice(
            ["topic", "topic", "grow", "grow", "delete", "config", "config", "group", "acl", "acl", "scram"]
        )
        if topic is None and kind in {"topic", "grow", "delete", "config"}:
            own = {"retention.ms": value} if rng.random() < 0.5 else {}
            self.decide([*topic_records(name, rng.randbytes(16), own, [(NODE_ID,)] * rng.randint(1, 7))])
        elif topic is not None and kind == "grow":
            self.decide(partition_records(topic.topic_id, topic.partitions, [(NODE_ID,)] * rng.randint(1, 4)))
        elif topic is not None and kind == "delete":
            self.decide(removal_records([topic.topic_id]))
        elif topic is not None and kind == "config":
            removed = rng.random() < 0.3
            self.decide([config_record(ConfigType.TOPIC, name, "retention.ms", None if removed else value)])
        elif kind == "acl":
            known = list(image.acls.by_id)
            if known and rng.random() < 0.5:
                self.decide([acl_removal_record(rng.choice(known))])
            else:
                self.decide([acl_record(rng.randbytes(16), Acl(2, name, 3, f"User:{value}", "*", 3, 3))])
        elif kind == "scram":
            mechanism = ScramMechanism.SCRAM_SHA_256
            if mechanism in image.scram.get(name, {}):
                self.decide([scram_removal_record(name, mechanism)])
            else:
                self.decide([scram_record(name, ScramCredential(mechanism, b"s" * 8, b"k" * 32, b"v" * 32, 4096))])
        else:
            removed = rng.random() < 0.3
            setting = "consumer.heartbeat.interval.ms"
            self.decide([config_record(ConfigType.GROUP, name, setting, None if removed else value)])

    def compact(self) -> None:
        """Queues a compaction."""
        self.node.machine.context.in_slices(self.node.machine._compaction())

    @property
    def start(self) -> int:
        return self.node.engine.open(METADATA_PARTITION).log_start_offset


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits each part of the image to a few records, so that a small image has many parts."""
    monkeypatch.setattr(module, "PART_ITEMS", 4)
    monkeypatch.setattr(module, "PART_PARTITIONS", 3)


@pytest.mark.seeded
@pytest.mark.parametrize("number", first_of(range(40), 12))
def test_changes_between_slices_survive(number: int) -> None:
    """The node makes and commits changes between the slices of a compaction. A restart gives the same state as before,
    although the log was truncated.
    """
    changing = ChangingNode(random.Random(f"{SEED}-{number}"))
    rng, node = changing.rng, changing.node
    for _ in range(2):
        end = node.engine.open(METADATA_PARTITION).end_offset
        changing.compact()
        slices = 0
        while node.slices:
            node.slices.step()
            slices += 1
            for _ in range(rng.randrange(3)):
                changing.change()
            if rng.random() < 0.6:
                changing.commit()
        changing.commit()
        changing.commit()
        assert slices > 5
        assert changing.start >= end > 0
        before = changing.state()
        node.restart()
        assert changing.state() == before
        for _ in range(10):
            changing.change()
        changing.commit()
        before = changing.state()
        node.restart()
        assert changing.state() == before


@pytest.mark.seeded
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("stop", range(1, 16, 2))
def test_a_crash_or_failed_commit_at_any_slice_leaves_the_older_records(stop: int, fails: bool) -> None:
    changing = ChangingNode(random.Random(f"{SEED}-{stop}"))
    node = changing.node
    changing.compact()
    for _ in range(stop):
        node.slices.step()
        changing.change()
        changing.commit()
    start, before = changing.start, changing.state()
    node.slices.step()
    if fails:
        node.fail_next_commit()
        node.slices.step()
        changing.change()
        changing.commit()
        node.slices.finish()
    else:
        node.restart()
    assert changing.state() == before
    assert changing.start == start
    node.restart()
    assert changing.state() == before


@pytest.mark.seeded
def test_no_part_is_long() -> None:
    """The number of records in a part is bounded, even for a topic with many partitions. All parts together form the
    image.
    """
    changing = ChangingNode(random.Random(SEED))
    topic_id = bytes(range(16))
    changing.decide([*topic_records("wide", topic_id, {}, [(NODE_ID,)] * 50)])
    parts = [list(MetadataBlock(part)) for part in module.image_parts(changing.node.topics.image, NODE_ID)]
    assert max(map(len, parts)) < 4 + 8 + 3
    assert sum(map(len, parts)) == module.image_size(changing.node.topics.image)
