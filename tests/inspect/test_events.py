"""Events, which are the decoded records of a log: a data folder, an engine and a server give the same events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.errors import DataFolderError
from kcore.inspect import (
    Selection,
    decode_batch,
    folder_events,
    log_ends,
    offset_rows,
    server_events,
)
from kcore.inspect.events import Event, readable, to_builtins
from kcore.protocol.error_codes import code_name
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.protocol.records.metadata import ConfigRecord
from kcore_ext.batch import BatchBuilder, CorruptBatchError, build_control_batch
from tests.kit import QUICK, Target, batch, commit, make_topic, produce, stable_alone

SMALL = {**QUICK, "offsets.topic.num.partitions": "2"}


def populate(target: Target) -> None:
    make_topic(target, "lines", 2)
    for values in ([b"a", b"b"], [b"c"], [b"\xff\xfe", b"tab\there"]):
        target.send(produce("lines", batch(values)), 9)
    target.send(produce("lines", batch([b"other"] * 3), partition=1), 9)
    target.send(commit("readers", {("lines", 0): 2, ("lines", 1): 3}), 9)
    stable_alone(target, "crew")


def test_folder_engine_and_server_have_the_same_events(tmp_path: Path) -> None:
    with kcore.open(tmp_path / "data", config=SMALL) as engine:
        populate(engine)
        served = list(server_events(engine, Selection()))
    stored = [event for event in folder_events(tmp_path / "data", Selection()) if event.topic != "__cluster_metadata"]
    assert served == stored
    lines = [(event.partition, event.offset, event.value) for event in served if event.topic == "lines"]
    assert lines == [
        (0, 0, "a"),
        (0, 1, "b"),
        (0, 2, "c"),
        (0, 3, "0xfffe"),
        (0, 4, "0x7461620968657265"),
        *[(1, n, "other") for n in range(3)],
    ]
    assert {event.type for event in served} == {"record", "OffsetCommit", "GroupMetadata"}
    assert {event.value["offset"] for event in served if event.concerns("readers")} == {2, 3}
    assert not any(event.concerns("nobody") for event in served)


@pytest.mark.parametrize("prefix", ["", "listener.name.internal.", "listener.name.internal.plain."])
@pytest.mark.parametrize(
    ("setting", "value", "shown"),
    [
        ("ssl.keystore.password", "secret", "[hidden]"),
        ("ssl.keystore.key", "-----BEGIN PRIVATE KEY-----", "[hidden]"),
        ("sasl.jaas.config", 'a required password="secret";', "[hidden]"),
        ("ssl.key.password", None, None),
        ("ssl.keystore.location", "key.pem", "key.pem"),
    ],
)
def test_no_event_shows_a_password_or_a_private_key_of_a_setting(
    prefix: str, setting: str, value: str | None, shown: str | None
) -> None:
    record = ConfigRecord(resource_type=4, resource_name="1", name=prefix + setting, value=value)
    assert to_builtins(record) == {
        "resource_type": 4,
        "resource_name": "1",
        "name": prefix + setting,
        "value": shown,
    }


@pytest.mark.parametrize("start", range(6))
@pytest.mark.parametrize("stop", [None, 0, 1, 3, 5, 9])
def test_any_range_of_offsets_is_returned_exactly(start: int, stop: int | None, shared: Any) -> None:
    """The range may begin or end inside of a batch."""
    selection = Selection(("lines",), (0,), start, stop)
    expected = [offset for offset in range(5) if offset >= start and (stop is None or offset < stop)]
    assert [event.offset for event in server_events(shared, selection)] == expected


@pytest.fixture(scope="module")
def shared():  # type: ignore[no-untyped-def]
    with kcore.open(config=SMALL) as engine:
        populate(engine)
        yield engine


def test_a_folder_s_ranges_are_the_same(tmp_path: Path) -> None:
    with kcore.open(tmp_path / "data", config=SMALL) as engine:
        populate(engine)
    for start in range(6):
        for stop in (None, 0, 1, 3, 5, 9):
            selection = Selection(("lines",), (0,), start, stop)
            expected = [offset for offset in range(5) if offset >= start and (stop is None or offset < stop)]
            assert [event.offset for event in folder_events(tmp_path / "data", selection)] == expected


def test_a_missing_folder_is_refused_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(DataFolderError):
        list(folder_events(tmp_path / "no", Selection()))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_closed_when_the_reader_stops(tmp_path: Path) -> None:
    with kcore.open(tmp_path / "data", config=SMALL) as engine:
        populate(engine)
    events = folder_events(tmp_path / "data", Selection(("lines",)))
    assert next(events).offset == 0
    events.close()  # type: ignore[attr-defined]
    with kcore.open(tmp_path / "data", config=SMALL):
        pass


def test_transactions_and_their_ends_are_shown() -> None:
    builder = BatchBuilder(1_000, base_timestamp_ms=5, producer_id=7, producer_epoch=2, transactional=True)
    builder.append(5, b"k", b"v")
    (event,) = decode_batch("t", 0, bytes(builder.build(base_offset=3)))
    assert event == Event("t", 0, 3, 5, "record", "k", "v", 7)
    marker = build_control_batch(1, 0, producer_id=7, producer_epoch=2, timestamp_ms=6)
    (event,) = decode_batch("t", 0, bytes(marker))
    assert (event.type, event.value, event.producer_id) == (
        "marker",
        {"producer_id": 7, "producer_epoch": 2, "end": "commit"},
        7,
    )


def test_records_of_unknown_types_are_shown_as_bytes() -> None:
    builder = BatchBuilder(1_000, base_timestamp_ms=5)
    builder.append(5, b"\x7f\x7fkey", b"value")
    builder.append(5, None, b"value")
    kinds = [
        (event.type, event.key, event.value) for event in decode_batch("__consumer_offsets", 0, bytes(builder.build()))
    ]
    assert kinds == [("unknown", "0x7f7f6b6579", "value"), ("record", None, "value")]


def test_damaged_batches_are_refused() -> None:
    with pytest.raises(CorruptBatchError):
        list(decode_batch("t", 0, batch([b"v"])[:-1]))


@pytest.mark.parametrize(
    ("data", "text"),
    [(None, None), (b"", ""), ("żółw".encode(), "żółw"), (b"\x00", "0x00"), (b"\xff", "0xff"), (b"a\nb", "0x610a62")],
)
def test_printable_bytes_are_text(data: bytes | None, text: str | None) -> None:
    assert readable(data) == text


def test_messages_become_json_values() -> None:
    assert to_builtins(commit("g", {("t", 0): 5})) == {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": [
            {
                "name": "t",
                "topic_id": "0x" + "00" * 16,
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": 5,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            }
        ],
    }


# ---- groups and offsets


def test_groups_offsets_and_ends_are_shown(shared: Any) -> None:
    assert offset_rows(shared, ["readers", "crew"]) == [
        ("readers", "lines", 0, 2, 5, 3, None),
        ("readers", "lines", 1, 3, 3, 0, None),
    ]
    assert offset_rows(shared, []) == []
    assert log_ends(shared, [("lines", 0), ("lines", 9), ("nowhere", 0)]) == {("lines", 0): 5}


def test_offsets_of_a_deleted_topic_are_omitted() -> None:
    with kcore.open(config=SMALL) as engine:
        make_topic(engine, "gone")
        engine.send(commit("g", {("gone", 0): 5}), 9)
        engine.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=1_000))
        assert offset_rows(engine, ["g"]) == []


def test_unknown_codes_of_newer_servers_are_numbers() -> None:
    assert (code_name(25), code_name(12_345)) == ("UNKNOWN_MEMBER_ID", "12345")
