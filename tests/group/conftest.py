"""Fixtures of the group tests."""

from __future__ import annotations

import pytest

from tests.group.context import GroupContext


@pytest.fixture
def context() -> GroupContext:
    """Returns a group shard with Kafka's settings, but without an initial rebalance delay, and with session timeouts of
    any length.
    """
    return GroupContext({"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1})
