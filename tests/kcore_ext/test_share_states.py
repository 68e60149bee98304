"""The table of the states of share partitions."""

from __future__ import annotations

import gc
import random
import sys

import pytest

from kcore.share.state import SharePartitionKey, key_of
from kcore_ext.share.states import ShareState, ShareStates

TOPICS = [bytes([number]) * 16 for number in range(3)]


def test_the_table_is_a_mapping_by_share_partition() -> None:
    chance = random.Random(15)
    states: ShareStates = ShareStates()
    expected: dict[SharePartitionKey, ShareState] = {}
    for _ in range(20_000):
        key = SharePartitionKey(f"g{chance.randrange(4)}", chance.choice(TOPICS), chance.randrange(60))
        if key in expected and chance.random() < 0.6:
            states.discard(key)
            assert expected.pop(key).group_id is None
        elif key not in expected:
            expected[key] = state = ShareState()
            states.put(key, state)
        assert states.get(key) is expected.get(key)
        assert (key in states) == (key in expected)
    assert len(states) == len(expected) > 100
    assert {key_of(state): state for state in states.values()} == expected
    for key in list(expected):
        states.discard(key)
    assert (len(states), states.values(), states.lowest_offset()) == (0, [], -1)


def test_a_state_belongs_to_one_share_partition() -> None:
    states: ShareStates = ShareStates()
    state = ShareState()
    states.put(SharePartitionKey("g", TOPICS[0], 0), state)
    with pytest.raises(ValueError, match="already in a table"):
        states.put(SharePartitionKey("g", TOPICS[0], 1), state)
    with pytest.raises(ValueError, match="already has a state"):
        states.put(SharePartitionKey("g", TOPICS[0], 0), ShareState())
    assert states.values() == [state]


def test_a_table_frees_its_states() -> None:
    state = ShareState()
    references = sys.getrefcount(state)
    states: ShareStates = ShareStates()
    states.put(SharePartitionKey("g", TOPICS[0], 0), state)
    del states
    assert sys.getrefcount(state) == references


def test_a_state_is_small_and_unknown_to_the_garbage_collector() -> None:
    state = ShareState()
    assert (gc.is_tracked(state), gc.is_tracked(ShareStates())) == (False, False)
    assert sys.getsizeof(state) <= 128


def test_restored_fields_equal_the_dumped_ones() -> None:
    state, restored = ShareState(), ShareState()
    state.put_snapshot(7, 1, 2, 3, 4, 5, ((4, 5, 2, 1),), 8, 9)
    state.put_update(1, 6, 5, 4, ((5, 5, 2, 1),))
    restored.restore(*state.dump())
    assert restored.dump() == state.dump() == (7, 1, 2, 6, 5, 4, ((5, 5, 2, 1),), 8, 9, 2, 6, 1)
