"""The recorded scenarios about offsets: the same responses as Apache Kafka's, request by request."""

from __future__ import annotations

import pytest

from tests.group.offsets.virtual_golden import GOLDEN, differences, golden

SCENARIOS = dict(golden.scenarios(GOLDEN, ["offsets", "offsets_expiry"]))


@pytest.mark.parametrize("name", SCENARIOS)
def test_responses_and_records_equal_kafkas(name):
    assert differences(name, SCENARIOS[name]) == []


def test_all_recordings_are_covered():
    recorded = {
        f"{area}/{path.stem}"
        for area in ("offsets", "offsets_expiry")
        for path in (GOLDEN / "recorded" / area).glob("*.json")
    }
    assert recorded == set(SCENARIOS)
    assert len(recorded) >= 29
