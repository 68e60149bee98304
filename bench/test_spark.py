"""Replay of a log of committed offsets, in rows per second on one core; Spark is not involved."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.spark.events.event import EventRow
from kcore.spark.state.rebuild import rebuild

ROWS = 20_000


@pytest.fixture(scope="module")
def rows() -> list[EventRow]:
    """Returns offsets of 100 groups and 20 partitions, as current brokers write them."""
    rows_ = []
    for offset in range(ROWS):
        key = OffsetCommitKey(group=f"group-{offset % 100}", topic="orders", partition=offset % 20).encode_key()
        value = OffsetCommitValue(offset=offset, commit_timestamp=1_700_000_000_000 + offset).encode_value(4)
        rows_.append(EventRow(key, value, "__consumer_offsets", 0, offset, 1_700_000_000_000 + offset))
    return rows_


def test_replay(benchmark: Any, rows: list[EventRow]) -> None:
    """Measures the rebuild of a partition's state from rows of committed offsets."""
    benchmark.extra_info["rows"] = ROWS
    result = benchmark(lambda: rebuild("__consumer_offsets", 0, rows))
    assert result.state.records == ROWS
