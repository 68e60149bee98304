"""Every recorded scenario of classic groups: the same responses and records as Apache Kafka's."""

from __future__ import annotations

import pytest

from tests.group.golden import differences, scenarios


@pytest.mark.parametrize("name", [*scenarios("classic"), *scenarios("classic_crowd")])
def test_responses_equal_kafkas(name: str) -> None:
    assert differences(name) == []
