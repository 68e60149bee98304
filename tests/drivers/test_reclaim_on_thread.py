"""Freeing the space of deleted batches on the writing thread."""

from __future__ import annotations

import logging

import pytest

from kcore.drivers.log_threads import Writer, reclaim_on
from kcore.log.errors import FencedWriteError
from tests.kit import wait_until


def test_the_end_of_the_leadership_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A node stops freeing space when it no longer leads the partition. It logs one line without a traceback.

    The leadership ends if, for example, another node has become the controller. The new leader frees the space.
    """
    results: list[bool | Exception] = [True, FencedWriteError("node 1 does not lead t-0", []), True]

    def reclaim() -> bool:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    writer = Writer()
    with caplog.at_level(logging.WARNING):
        reclaim_on(writer, "/data", reclaim)
        wait_until(lambda: len(results) == 1, "the second call")
        writer.stop()
    assert results == [True]
    (record,) = caplog.records
    assert record.exc_info is None
    assert record.getMessage() == (
        "driver: cannot free the space of deleted batches in the log /data now: node 1 does not lead t-0; kcore "
        "tries again when it deletes more batches; if this repeats, check the disk or the database of the log"
    )
