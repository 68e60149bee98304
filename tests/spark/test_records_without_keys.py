"""Every job reports a record of an internal topic without a key as malformed, because Kafka cannot load such a log."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.protocol.records.share_snapshot import ShareSnapshotKey, ShareSnapshotValue
from kcore.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from kcore.spark.audit.finding import Evidence, finding
from kcore.spark.audit.partition import audit
from kcore.spark.decode.columns import decode_batch
from kcore.spark.events.arrow import to_batch
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.state.batch_replay import rebuild_batches
from kcore.spark.state.rebuild import rebuild
from kcore.spark.timeline.history import History, HistoryOptions

RECORDS: dict[str, tuple[bytes, bytes]] = {
    CONSUMER_OFFSETS: (
        OffsetCommitKey(group="g", topic="t", partition=0).encode_key(),
        OffsetCommitValue(offset=7, metadata="", commit_timestamp=1).encode_value(3),
    ),
    TRANSACTION_STATE: (
        TransactionLogKey(transactional_id="tx").encode_key(),
        TransactionLogValue(producer_id=5, transaction_status=0).encode_value(0),
    ),
    SHARE_GROUP_STATE: (
        ShareSnapshotKey(group_id="g", topic_id=bytes(range(16)), partition=0).encode_key(),
        ShareSnapshotValue(snapshot_epoch=1, state_epoch=1, leader_epoch=1, start_offset=0).encode_value(0),
    ),
}
"""A key and a value of each internal topic."""


@pytest.mark.parametrize("value", [b"\0\0", None], ids=["value", "neither"])
@pytest.mark.parametrize("topic", RECORDS)
def test_a_record_without_a_key_is_malformed_in_every_job(topic: str, value: bytes | None) -> None:
    """The record between two others changes no state. Before, only the decoding reported it."""
    key, body = RECORDS[topic]
    rows = [EventRow(*pair, topic, 0, offset, 10 + offset) for offset, pair in enumerate([(key, body), (None, value)])]
    rows.append(EventRow(key, body, topic, 0, 2, 12))

    decoded: Any = decode_batch(to_batch(rows), ())
    assert decoded.column("status").to_pylist() == ["ok", "malformed", "ok"]
    assert decoded.column("detail").to_pylist() == [None, "a record without a key", None]

    for rebuilt in (rebuild(topic, 0, rows), rebuild_batches(topic, 0, [to_batch(rows)])):
        state = rebuilt.state
        assert state.faults == [LogFault(topic, 0, 1, "decode", "a record without a key")]
        assert (state.records, state.unknown, state.fault_count, state.completeness.lost) == (2, 0, 1, False)

    sentence = f"The record at offset 1 of {topic}-0 cannot be decoded: a record without a key."
    assert list(audit(topic, 0, rows)) == [finding("undecodable-record", [Evidence(topic, 0, 1, 11)], sentence)]

    history = History(topic, 0, HistoryOptions())
    list(history.events(rows))
    assert history.faults == 1


def test_an_audit_does_not_report_records_of_users_without_keys() -> None:
    assert list(audit("orders", 0, [EventRow(None, b"v", "orders", 0, offset, 1) for offset in range(3)])) == []
