"""`tools.request_costs` on a small node: the node is filled, and a request is measured."""

from __future__ import annotations

import asyncio
import sys

import pytest

from kcore.protocol.api_keys import ApiKey
from tools.request_costs import large_state
from tools.request_costs.__main__ import converse
from tools.request_costs.large_cases import LargeCases

SMALL = {
    "TOPICS": 100,
    "WIDE_PARTITIONS": 20,
    "GROUPS": 10,
    "TRANSACTIONS": 10,
    "PRODUCERS": 10,
    "ACLS": 10,
    "BOMB_BYTES": 16_000,
    "AT_ONCE": 50,
    "LARGE_BATCH": 100,
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> large_state.LargeState:
    """Returns a `LargeState` of `tools.request_costs`, reduced to a small size."""
    for name, value in SMALL.items():
        monkeypatch.setattr(large_state, name, value)
    return large_state.LargeState()


@pytest.mark.skipif(sys.platform != "linux", reason="the tool reads /proc")
def test_loading_of_large_share_states_is_measured(small: large_state.LargeState) -> None:
    (case,) = (case for case in LargeCases(small).work() if case.key is ApiKey.SHARE_FETCH)
    costs = asyncio.run(converse(small, case))
    assert not costs["closed"]
    assert costs["response"] > 0
    assert 0 < costs["slice_ms"] <= costs["cpu_ms"]
