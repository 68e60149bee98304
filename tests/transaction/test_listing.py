"""ListTransactions of many ids runs in slices."""

from __future__ import annotations

import pytest

from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kcore.runtime import Pending
from kcore.transaction.apis import list_transactions
from kcore.transaction.shard import TransactionShard
from tests.transaction.world import World

IDS = [f"x{number}" for number in range(9)]


def test_ids_are_listed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that is removed between two slices is left out. All others are the same as in one slice."""
    monkeypatch.setattr(list_transactions, "IDS_PER_STEP", 2)
    monkeypatch.setattr(list_transactions, "ID_COST", 10_000)
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
