"""The log line of a read that fails after the commit of its request."""

from __future__ import annotations

import pytest

from kcore.broker.data.after_commit import complete_with
from kcore.clock import SystemClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.log import MemoryLogEngine
from kcore.log.errors import CorruptLogError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kcore.runtime import Pending
from kcore.runtime.api import RequestContext


@pytest.mark.parametrize("damaged", [True, False], ids=["damage", "defect"])
def test_only_a_failed_read_by_a_defect_has_a_traceback(caplog: pytest.LogCaptureFixture, damaged: bool) -> None:
    """Clients repeat a failed read of damaged data again and again, so these log lines have no traceback."""
    engine = Engine(MemoryLogEngine(), Config.of({}), SystemClock())
    topics = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0)])]
    pending = Pending(
        engine.apis[ApiKey.LIST_OFFSETS],
        RequestContext(7, "client", connection_id=1),
        ListOffsetsRequest(topics=topics),
    )

    def read() -> None:
        raise CorruptLogError("t-0", 3, "magic 46 instead of 2") if damaged else TypeError("a defect")

    complete_with(pending, read)
    assert pending.done
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
            else ", and the client gets UNKNOWN_SERVER_ERROR, because of an internal error of kcore; please report the "
            "error"
        )
    )
    engine.close()
