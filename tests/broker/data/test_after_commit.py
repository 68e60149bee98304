"""The log line and the response of a read that fails after the commit of its request."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.broker.data.after_commit import complete_with
from kcore.clock import SystemClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.log import MemoryLogEngine
from kcore.log.errors import CorruptLogError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kcore.runtime import Pending, failed_requests
from kcore.runtime.api import RequestContext

DAMAGE = CorruptLogError("t-0", 3, "magic 46 instead of 2")


def complete(engine: Engine, error: Exception) -> Pending:
    """Completes a ListOffsets request whose read raises `error`."""
    topics = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0)])]
    pending = Pending(
        engine.apis[ApiKey.LIST_OFFSETS],
        RequestContext(7, "client", connection_id=1),
        ListOffsetsRequest(topics=topics),
    )

    def read() -> None:
        raise error

    complete_with(pending, read)
    return pending


@pytest.mark.parametrize("damaged", [True, False], ids=["damage", "defect"])
def test_only_a_failed_read_by_a_defect_has_a_traceback(caplog: pytest.LogCaptureFixture, damaged: bool) -> None:
    """Clients repeat a failed read of damaged data again and again, so these log lines have no traceback."""
    engine = Engine(MemoryLogEngine(), Config.of({}), SystemClock())
    assert complete(engine, DAMAGE if damaged else TypeError("a defect")).done
    (record,) = caplog.records
    assert (record.exc_info is None) == damaged
    assert record.getMessage() == (
        "ListOffsets of client 'client': the data cannot be read"
        + (
            (
                ": t-0 at offset 3: magic 46 instead of 2; the client gets KAFKA_STORAGE_ERROR; if this repeats, check "
                "the log with `kcore log verify`"
            )
            if damaged
            else ", and the client gets UNKNOWN_SERVER_ERROR; please report the error"
        )
    )
    engine.close()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DAMAGE, ErrorCode.KAFKA_STORAGE_ERROR),
        (TypeError("a defect"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (MemoryError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["damage", "defect", "memory"],
)
def test_a_failed_read_has_a_response_without_memory_for_a_log_line(
    error: Exception, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(MemoryLogEngine(), Config.of({}), SystemClock())
    names = []

    def fail(*arguments: Any) -> str:
        names.append(arguments)
        raise MemoryError

    monkeypatch.setattr(failed_requests, "request_name", fail)
    pending = complete(engine, error)
    assert len(names) == 1
    assert [part.error_code for topic in pending.response.topics for part in topic.partitions] == [code]
    engine.close()
