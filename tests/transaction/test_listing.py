"""ListTransactions of many ids runs in slices."""

from __future__ import annotations

import pytest

from kcore.patterns import MAX_MATCH_STEPS, compile_pattern, match_steps
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kcore.runtime import Pending
from kcore.transaction.apis import list_transactions
from kcore.transaction.shard import TransactionShard
from tests.transaction.world import World

IDS = [f"x{number}" for number in range(9)]


def test_ids_are_listed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that is removed between two slices is left out. All others are the same as in one slice."""
    monkeypatch.setattr(list_transactions, "IDS_PER_PART", 2)
    monkeypatch.setattr(list_transactions, "ID_COST_US", 10_000)
    world = World({"transaction.state.log.num.partitions": 1})
    for transactional_id in IDS:
        made = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        assert not world.call(made, 4).error_code
    whole = world.call(ListTransactionsRequest(), 2)
    assert isinstance(whole, ListTransactionsResponse)
    assert [state.transactional_id for state in whole.transaction_states] == IDS

    world.engine.slices.requests.enabled = True
    pending = world.start(ListTransactionsRequest(), 2)
    assert isinstance(pending, Pending)
    steps = 0
    while not pending.done:
        assert world.engine.slices.step() or pending.done
        steps += 1
        if steps == 2:
            (shard,) = world.engine.transactions.shards  # type: ignore[union-attr]
            machine = shard.machine
            assert isinstance(machine, TransactionShard)
            del machine.transactions[IDS[-1]]
    assert steps >= 4
    assert pending.response.transaction_states == list(whole.transaction_states[:-1])


SLOW_PATTERN = "(?:[ab]?){1000}x"
"""A pattern for which RE2 uses its slowest method."""


def listing(ids: list[str]) -> World:
    """Returns a node that has these transactional ids and processes long requests in slices."""
    world = World({"transaction.state.log.num.partitions": 1})
    for transactional_id in ids:
        made = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        assert not world.call(made, 4).error_code
    world.engine.slices.requests.enabled = True
    return world


def test_a_slow_pattern_is_matched_in_slices() -> None:
    """One match of a short pattern can take 10 ms, so a slice has only a few ids."""
    ids = ["a" * 240 + f"{number:02}" for number in range(20)]
    world = listing(ids)
    selection = list_transactions._Selection(ListTransactionsRequest(transactional_id_pattern=SLOW_PATTERN))
    parts = [some for some, _ in selection.divide(ids)]
    assert [each for some in parts for each in some] == ids
    pattern = compile_pattern(SLOW_PATTERN)
    assert max(sum(match_steps(pattern, each) for each in some) for some in parts) <= MAX_MATCH_STEPS

    pending = world.start(ListTransactionsRequest(transactional_id_pattern=SLOW_PATTERN + "?.*"), 2)
    assert isinstance(pending, Pending)
    steps = 0
    while not pending.done:
        world.engine.slices.step()
        steps += 1
    assert steps >= len(parts) - 1
    assert [state.transactional_id for state in pending.response.transaction_states] == ids


def test_a_pattern_that_is_too_slow_for_an_id_is_refused() -> None:
    """One match cannot be divided. A match of an id with 32,000 characters could stop the server for seconds."""
    world = listing(["a" * 32_000])
    response = world.call(ListTransactionsRequest(transactional_id_pattern=SLOW_PATTERN), 2)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    response = world.call(ListTransactionsRequest(transactional_id_pattern="a.*"), 2)
    assert len(response.transaction_states) == 1


def test_the_steps_of_a_match_count_bytes() -> None:
    pattern = compile_pattern(".*")
    assert match_steps(pattern, "é") == 2 * match_steps(pattern, "e")
