"""Placement of leaders over nodes and racks."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.broker.cluster.balance import Placement
from kcore.runtime.cluster import Leader

Topics = dict[str, list[int]]
"""Topic -> the leaders of its partitions, in order."""


class Image:
    """The part of the metadata that a placement reads."""

    def __init__(self, racks: dict[int, str | None], topics: Topics) -> None:
        self.brokers = {node: SimpleNamespace(rack=rack) for node, rack in racks.items()}
        self.topics = topics
        self.successors: dict[bytes, dict[int, int]] = {}
        self.replicas = {name.encode(): [(leader,) for leader in leaders] for name, leaders in topics.items()}

    def all(self) -> list[Any]:
        return [
            SimpleNamespace(topic_id=name.encode(), name=name, partitions=len(leaders))
            for name, leaders in self.topics.items()
        ]

    def leader(self, topic_id: bytes, partition: int) -> Leader | None:
        node = self.topics[topic_id.decode()][partition]
        return None if node < 0 else Leader(node, 1)

    def leading_nodes(self, topic_id: bytes) -> list[int]:
        return list(self.topics[topic_id.decode()])


def placement(racks: dict[int, str | None], topics: Topics) -> Placement:
    image: Any = Image(racks, topics)
    return Placement(image, racks)


def evened(racks: dict[int, str | None], topics: Topics) -> Topics:
    """Applies the moves that the placement decides, until it decides no more moves. Returns the leaders."""
    topics = {name: list(leaders) for name, leaders in topics.items()}
    for _ in range(100):
        moves = list(placement(racks, topics).evened())
        if not moves:
            return topics
        for topic, partition, leader, _ in moves:
            topics[topic.name][partition] = leader
    raise AssertionError("the leaders move forever")


def in_racks(racks: dict[int, str | None], leaders: list[int]) -> Counter[str | None]:
    return Counter(racks[node] for node in leaders)


@pytest.mark.parametrize(
    ("racks", "leaders", "expected"),
    [
        ({1: "a", 2: "a", 3: "b"}, [1, 2], {"a": 1, "b": 1}),
        ({1: "a", 2: "a", 3: "b", 4: "b"}, [1, 2, 1, 2], {"a": 2, "b": 2}),
        ({1: "a", 2: "a", 3: "b"}, [1] * 6, {"a": 4, "b": 2}),
        ({1: "a", 2: "b", 3: "c"}, [1, 1, 1], {"a": 1, "b": 1, "c": 1}),
        ({1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "b"}, [1, 2, 3], {"a": 2, "b": 1}),
    ],
)
def test_leaders_are_spread_over_racks(
    racks: dict[int, str | None], leaders: list[int], expected: dict[str, int]
) -> None:
    after = evened(racks, {"t": leaders})["t"]
    assert in_racks(racks, after) == expected


def test_nodes_without_racks_are_racks_of_their_own() -> None:
    after = evened({1: None, 2: None, 3: None}, {"t": [1, 1, 2, 2, 1]})["t"]
    assert sorted(Counter(after).values()) == [1, 2, 2]


def test_a_partition_without_a_leader_goes_to_the_rack_that_leads_the_fewest() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    one = placement(racks, {"t": [1, -1], "u": [3, 4, 3, 4]})
    [move] = one.leaderless({1, 2, 3, 4})
    assert (move.topic.name, move.partition, move.leader) == ("t", 1, 3)


def test_total_numbers_are_not_evened_against_the_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b"}
    topics = {"t": [1], "u": [1], "v": [1], "w": [2]}
    assert sorted(Counter(node for leaders in evened(racks, topics).values() for node in leaders).values()) == [2, 2]


nodes = st.dictionaries(st.integers(1, 7), st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=6)


@given(nodes, st.data())
def test_the_placement_is_even_and_final(racks: dict[int, str | None], data: st.DataObject) -> None:
    """For each topic, the numbers of partitions per node differ by at most one. No swap within a topic makes the racks
    more even.
    """
    owners = st.sampled_from(sorted(racks))
    topics = data.draw(st.dictionaries(st.sampled_from("tuv"), st.lists(owners, max_size=12), max_size=3))
    for leaders in evened(racks, topics).values():
        counts = Counter(dict.fromkeys(racks, 0))
        counts.update(leaders)
        assert max(counts.values()) - min(counts.values()) < 2
        of_rack: Counter[Any] = Counter()
        for node, count in counts.items():
            of_rack[racks[node] or node] += count
        for most in racks:
            for least in racks:
                if counts[most] > counts[least]:
                    assert of_rack[racks[most] or most] - of_rack[racks[least] or least] < 2
