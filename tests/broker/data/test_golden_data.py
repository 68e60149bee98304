"""The scenarios of area `data`: the data plane in virtual time responds like Apache Kafka."""

from __future__ import annotations

import pytest

from tests.broker.data.golden_server import Server, golden, recorded, run, scenarios

SCENARIOS = scenarios("data")


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_responses_to_a_scenario_equal_kafkas(name: str) -> None:
    """Compares whole responses, request by request."""
    steps = run(SCENARIOS[name], Server())
    assert golden.compare(recorded("data", name), steps) == []


def test_every_recording_has_its_scenario() -> None:
    """Every recording is compared."""
    files = (golden.HERE / "recorded" / "data").glob("*.json")
    assert {file.stem for file in files} == set(SCENARIOS)
