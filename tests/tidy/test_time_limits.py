"""Time limits of tests."""

from __future__ import annotations

import pytest

from tests.conftest import LONG_TIMEOUT_S


@pytest.mark.long
def test_a_long_test_has_a_longer_time_limit(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("timeout")
    assert marker is not None
    assert marker.args == (LONG_TIMEOUT_S,)


@pytest.mark.long
@pytest.mark.timeout(60)
def test_a_long_test_may_name_its_time_limit(request: pytest.FixtureRequest) -> None:
    assert [marker.args for marker in request.node.iter_markers("timeout")] == [(60,)]
