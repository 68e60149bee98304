"""Decoding of every record in a real broker's logs, and of rows that cannot be decoded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.spark.decode.columns import decode_batch, decode_record, record_types
from kcore.spark.events.arrow import to_batch, to_batches
from kcore.spark.events.event import EventRow
from kcore.spark.events.segments import find_partitions, read_rows

KEY = OffsetCommitKey(group="g", topic="t", partition=3)
VALUE = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9)


def test_every_record_of_a_broker_is_decoded(kafka_logs: Path) -> None:
    """No row is lost, malformed or unknown, and the record types of all three topics occur."""
    names = tuple(record_types())
    statuses: Counter[str] = Counter()
    types: Counter[str] = Counter()
    count = 0
    for part in find_partitions(kafka_logs / "moment-1"):
        for batch in to_batches(read_rows(part)):
            decoded = decode_batch(batch, names)
            assert decoded.num_rows == batch.num_rows
            assert decoded.column("offset").equals(batch.column("offset"))
            count += batch.num_rows
            statuses.update(decoded.column("status").to_pylist())
            types.update(decoded.column("type").to_pylist())
            for name in names:
                present = decoded.column(name).is_valid().to_pylist()
                assert present == [kind == name for kind in decoded.column("type").to_pylist()]
    assert set(statuses) <= {"ok", "tombstone", "control", "no_record"}
    assert statuses["ok"] + statuses["tombstone"] + statuses["control"] == 29_662
    assert {"OffsetCommit", "GroupMetadata", "TransactionLog", "ShareUpdate", "StreamsGroupTopology"} <= set(types)


def test_all_versions_of_a_value_are_read() -> None:
    for version in range(5):
        head, body = decode_record("__consumer_offsets", KEY.encode_key(), VALUE.encode_value(version))
        assert head == ("ok", None, 1, "OffsetCommit", version)
        assert body is not None
        assert body["key"] == {"group": "g", "topic": "t", "partition": 3}
        assert (body["value"]["offset"], body["value"]["metadata"], body["value"]["leader_epoch"]) == (7, "m", -1)


def test_unreadable_rows_have_a_status() -> None:
    """Unknown types and versions, malformed bytes, and records of other topics give rows with a
    status and all bytes.
    """
    key = KEY.encode_key()
    cases = [
        ("__consumer_offsets", b"\x03\xe7abc", b"x", "unknown_type"),
        ("__consumer_offsets", key, b"\x00\x63" + bytes(3), "unknown_version"),
        ("__consumer_offsets", key[:-1], b"", "malformed"),
        ("__consumer_offsets", key, b"\xff\xff", "unknown_version"),
        ("__consumer_offsets", key, None, "tombstone"),
        ("__consumer_offsets", None, b"x", "malformed"),
        ("orders", b"k", b"v", "other_topic"),
    ]
    rows = [EventRow(key, value, topic, 0, offset, 1) for offset, (topic, key, value, _) in enumerate(cases)]
    rows += [
        EventRow(b"\x00\x00\x00\x01", bytes(6), "__consumer_offsets", 0, len(rows), 1, control=True),
        EventRow(None, None, "__consumer_offsets", 0, len(rows) + 1, 1, batch_only=True),
    ]
    decoded = decode_batch(to_batch(rows), ("OffsetCommit",))
    found = decoded.column("status").to_pylist()

    expected = [status for *_, status in cases]

    assert found == [*expected, "control", "no_record"]
    assert decoded.column("key").to_pylist() == [row.key for row in rows]
    assert decoded.column("value").to_pylist() == [row.value for row in rows]


def test_fast_offset_reader_agrees_with_the_codec(kafka_logs: Path) -> None:
    """Compares every record of a partition field by field."""
    (part,) = [one for one in find_partitions(kafka_logs / "moment-1") if one[:2] == ("__consumer_offsets", 3)]
    (batch,) = to_batches(read_rows(part), 1_000_000)
    decoded = decode_batch(batch, ("OffsetCommit",))
    for row in decoded.to_pylist():
        if row["status"] in ("ok", "tombstone"):
            head, body = decode_record(row["topic"], row["key"], row["value"])
            assert head == tuple(row[name] for name in ("status", "detail", "record_type", "type", "value_version"))
            if row["type"] == "OffsetCommit":
                assert row["OffsetCommit"] == body
