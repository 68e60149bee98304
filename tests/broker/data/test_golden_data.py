"""What Apache Kafka answered to the scenarios of area `data`, answered by the data plane alone in virtual time."""

from __future__ import annotations

import pytest

from tests.broker.data.golden_server import Server, golden, recorded, run, scenarios

SCENARIOS = scenarios("data")


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_scenario_is_answered_as_kafka_did(name: str) -> None:
    """Whole responses, request by request."""
    steps = run(SCENARIOS[name], Server())
    assert golden.compare(recorded("data", name), steps) == []


def test_every_recording_has_its_scenario() -> None:
    """No recording is left out."""
    files = (golden.HERE / "recorded" / "data").glob("*.json")
    assert {file.stem for file in files} == set(SCENARIOS)
