"""The compiled encoder of record type 15 gives the same bytes and errors as the codec."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.group.share.partitions import StatePartitions, StateTopic, StateValue, from_value, to_value
from kcore.protocol.records.share_group_state_partition_metadata import ShareGroupStatePartitionMetadataValue
from kcore_ext.group.share_state import encode_state

IDS = st.binary(min_size=16, max_size=16)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
PARTITIONS = st.frozensets(st.integers(-(2**31), 2**31 - 1), max_size=200)
TOPICS = st.dictionaries(IDS, st.builds(StateTopic, NAMES, PARTITIONS), max_size=20)
STATES = st.builds(StatePartitions, TOPICS, TOPICS, st.dictionaries(IDS, NAMES, max_size=20))
ID = b"i" * 16


@given(STATES)
def test_the_bytes_equal_the_bytes_of_the_codec(state: StatePartitions) -> None:
    encoded = StateValue(state).encode_value(0)
    assert encoded == to_value(state).encode_value(0)
    assert from_value(ShareGroupStatePartitionMetadataValue.decode_value(encoded)) == state


def test_lists_of_many_topics_and_partitions_are_encoded() -> None:
    """The lengths of these lists are varints of more than one byte."""
    topics = {number.to_bytes(16, "big"): StateTopic(f"t{number}", frozenset(range(3))) for number in range(20_000)}
    wide = {ID: StateTopic("n" * 249, frozenset(range(70_000)))}
    state = StatePartitions(wide, topics, dict.fromkeys(topics, "name"))
    assert StateValue(state).encode_value(0) == to_value(state).encode_value(0)


class WrongLengthSet(frozenset[int]):
    """A set whose length is wrong."""

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(
    ("topic_id", "topic"),
    [
        (b"short", ("t", frozenset())),
        (None, ("t", frozenset())),
        (ID, (None, frozenset())),
        (ID, (7, frozenset())),
        (ID, ("n" * 40_000, frozenset())),
        (ID, ("\ud800", frozenset())),
        (ID, ("t", frozenset({2**31}))),
        (ID, ("t", frozenset({"0"}))),
        (ID, ("t", None)),
        (ID, ("t", WrongLengthSet(range(3)))),
        (ID, ("t", WrongLengthSet(range(1)))),
    ],
)
def test_invalid_contents_are_refused(topic_id: Any, topic: Any) -> None:
    for lists in (({topic_id: topic}, {}, {}), ({}, {topic_id: topic}, {})):
        with pytest.raises((ValueError, OverflowError, TypeError)):
            encode_state(*lists)


@pytest.mark.parametrize("name", ["n" * 40_000, "\ud800", None])
def test_the_codec_names_the_field_that_is_invalid(name: Any) -> None:
    """A topic name that no record can contain raises a ValueError. The error names the field, and the server's log
    shows it.
    """
    for state in (StatePartitions({}, {ID: StateTopic(name, frozenset({0}))}, {}), StatePartitions({}, {}, {ID: name})):
        with pytest.raises(ValueError, match="topic_name"):
            StateValue(state).encode_value(0)
