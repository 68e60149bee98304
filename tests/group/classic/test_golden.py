"""Every recorded scenario of classic groups: the same answers and the same records as Apache Kafka's."""

from __future__ import annotations

import pytest

from tests.group.golden import differences, scenarios


@pytest.mark.parametrize("name", [*scenarios("classic"), *scenarios("classic_crowd")])
def test_answers_as_kafka_did(name: str) -> None:
    assert differences(name) == []
