"""The compiled decoder, the pure Python decoder and the engine's codec agree on every record, intact or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.protocol.records import RecordKey
from kcore.protocol.records.consumer_group_member_metadata import ConsumerGroupMemberMetadataKey
from kcore.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from kcore.spark.decode.columns import decode_batch, decode_record, decoder, record_types
from kcore.spark.decode.compiled import CompiledDecoder
from kcore.spark.decode.pure import PureDecoder
from tests.spark import records as known
from tests.spark.records import Record

ALL = tuple(record_types())
HEADS = ("status", "detail", "record_type", "type", "value_version")
KEY = TransactionLogKey(transactional_id="t").encode_key()


def frame(found: list[Record], **more: list[Any]) -> pa.RecordBatch:
    """Returns records as an Arrow batch, in the columns that the data sources yield."""
    topics, keys, values = zip(*found, strict=True) if found else ((), (), ())
    size = len(found)
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(topics, pa.string()),
        "partition": pa.array([0] * size, pa.int32()),
        "offset": pa.array(range(size), pa.int64()),
        "timestamp": pa.array([0] * size, pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(columns | {name: pa.array(of, pa.bool_()) for name, of in more.items()})


def expected(found: list[Record], names: tuple[str, ...] = ALL) -> list[dict[str, Any]]:
    """Returns the codec's result for the rows."""
    rows = []
    for head, body in (known.by_codec(*record) for record in found):
        rows.append(dict(zip(HEADS, head, strict=True)) | {n: body if n == head[3] else None for n in names})
    return rows


def rows_of(batch: pa.RecordBatch, using: Any, names: tuple[str, ...] = ALL) -> list[dict[str, Any]]:
    """Returns the result of a decoder after checking the layout of its arrays."""
    decoded = decode_batch(batch, names, using)
    for column in decoded.columns:
        column.validate(full=True)
    return decoded.select([*HEADS, *names]).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("cls", record_types().values(), ids=list(record_types()))
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_both_decoders_read_records_of_every_type_and_version(cls: type[RecordKey], data: st.DataObject) -> None:
    """Compares all fields; no record may be malformed."""
    found = data.draw(st.lists(known.whole_records(cls), min_size=1, max_size=8))
    for using in (CompiledDecoder(ALL), PureDecoder(ALL)):
        rows = rows_of(frame(found), using)
        assert rows == expected(found)
        assert {row["status"] for row in rows} <= {"ok", "tombstone"}


@settings(max_examples=30, deadline=None)
@given(st.lists(known.records(), max_size=12), st.lists(st.sampled_from(ALL), unique=True, max_size=4))
def test_both_decoders_agree_on_any_records(found: list[Record], names: list[str]) -> None:
    """Both decoders and the codec give the same status, detail and fields for any records: damaged, random, or of
    unknown types and versions.

    Each decoder decodes two batches, because the first batch must not affect the second.
    """
    for wanted in (ALL, tuple(names)):
        rows = expected(found, wanted)
        for using in (CompiledDecoder(wanted), PureDecoder(wanted)):
            assert rows_of(frame(found), using, wanted) == rows
            assert rows_of(frame(found[::-1]), using, wanted) == rows[::-1]


def test_slices_and_large_arrow_types_are_decoded() -> None:
    """Covers slices of longer batches, and Arrow's large types, which Spark may pass."""
    found: list[Record] = [
        ("orders", b"k", b"v"),
        (None, None, None),
        ("__transaction_state", KEY, TransactionLogValue(producer_id=7).encode_value(1)),
        ("__transaction_state", KEY, None),
        ("__transaction_state", b"", b""),
        ("__consumer_offsets", b"\x00\x02\x00\x01g", b"\x00\x03"),
    ]
    whole = frame(found, control=[False, None, False, False, True, False], batch_only=[None] * 5 + [True])
    rows = expected(found)
    nothing = {**dict.fromkeys(HEADS), **dict.fromkeys(ALL)}
    rows[4:] = [nothing | {"status": "control"}, nothing | {"status": "no_record"}]
    large = whole.set_column(0, "key", whole.column("key").cast(pa.large_binary()))
    large = large.set_column(2, "topic", whole.column("topic").cast(pa.large_string()))
    for using in (CompiledDecoder(ALL), PureDecoder(ALL)):
        for begin in range(len(found)):
            assert rows_of(whole.slice(begin, 3), using) == rows[begin : begin + 3]
        assert rows_of(large, using) == rows
        assert rows_of(frame([]), using) == []


def test_the_last_occurrence_of_a_repeated_tag_counts() -> None:
    """A tagged field that occurs twice has its last value. If the second occurrence is malformed, the row has no
    values.
    """
    whole = TransactionLogValue(producer_id=7).encode_value(1)
    twice = whole[:-1] + b"\x03" + b"\x00\x08" + bytes(8) + b"\x00\x08" + bytes(7) + b"\x05" + b"\x63\x01x"
    half = whole[:-1] + b"\x02" + b"\x00\x08" + bytes(8) + b"\x01\x07" + bytes(8)
    found: list[Record] = [("__transaction_state", KEY, value) for value in (half, twice, half, whole, twice)]
    for using in (CompiledDecoder(ALL), PureDecoder(ALL)):
        rows = rows_of(frame(found), using)
        assert rows == expected(found)
        assert [row["status"] for row in rows] == ["malformed", "ok", "malformed", "ok", "ok"]
        values = [row["TransactionLog"]["value"] for row in rows]
        assert [value and value["previous_producer_id"] for value in values] == [None, 5, None, -1, 5]


MEMBERS = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m").encode_key()
TEXT = b"\x00\x00\x01\x01\x01\x01\x01\x00"
"""The start of a member's metadata: its version, four empty texts, no topics, no pattern."""


@pytest.mark.parametrize(
    ("topic", "key", "value", "status"),
    [
        ("__consumer_offsets", MEMBERS, TEXT + bytes(4) + b"\x00" + b"\x00", "ok"),
        ("__consumer_offsets", MEMBERS, TEXT + bytes(4) + b"\x00" + b"\x80\x80\x80\x80\x00", "ok"),
        ("__consumer_offsets", MEMBERS, TEXT + bytes(4) + b"\x00" + b"\x80\x80\x80\x80\x70", "ok"),
        ("__consumer_offsets", MEMBERS, TEXT + bytes(4) + b"\x00" + b"\x80\x80\x80\x80\x80\x00", "malformed"),
        ("__consumer_offsets", MEMBERS, TEXT + bytes(4) + b"\x00" + b"\x01\x00\x01\x00", "ok"),  # no struct in tag 0
        ("__consumer_offsets", MEMBERS, TEXT + bytes(4) + b"\x00" + b"\x01\x00\x02\x01\x00", "malformed"),
        ("__consumer_offsets", MEMBERS, TEXT + bytes(4) + b"\x00" + b"\x01\x00\x07\x01", "malformed"),
        ("__consumer_offsets", MEMBERS, TEXT + bytes(4) + b"\x00" + b"\x7f\x00", "malformed"),
        ("__consumer_offsets", MEMBERS, b"\x00\x00" + b"\x81\x80\x02" + bytes(32_768), "malformed"),  # 32768 bytes
        ("__consumer_offsets", MEMBERS, b"\x00\x00" + b"\x80\x80\x02" + bytes(32_767), "malformed"),  # cut off
        ("__consumer_offsets", MEMBERS, b"\x00\x00\x00\x00\x00", "malformed"),  # a null that is not allowed
        ("__consumer_offsets", MEMBERS, b"\x00\x00\x01\x01\x01\x01\x7f\x00", "malformed"),  # 126 topics
        ("__consumer_offsets", MEMBERS, b"\x00\x00\x04\xed\xa0\x80\x03\xc3\x28" + TEXT[4:] + bytes(6), "ok"),
        ("__consumer_offsets", MEMBERS, b"\x00\x09" + TEXT[2:] + bytes(6), "ok"),  # KIP-915
        ("__consumer_offsets", MEMBERS, b"\x00\x09" + TEXT[2:] + bytes(3), "unknown_version"),
        ("__consumer_offsets", MEMBERS[:-2], TEXT, "malformed"),
        ("__consumer_offsets", MEMBERS + b"more", None, "tombstone"),
        ("__consumer_offsets", b"\x00\x02\x80\x00g", None, "malformed"),
        ("__consumer_offsets", b"\xff\xff", b"", "unknown_type"),
        ("__consumer_offsets", b"\x00\x02\x00\x01g", bytes(8) + b"\xff" * 4 + b"\x7f\xff\xff\xff", "malformed"),
        ("__transaction_state", KEY, bytes(17) + b"\xff" * 4 + bytes(16), "ok"),  # a null array
    ],
)  # fmt: skip
def test_both_decoders_agree_at_limits_and_on_errors(topic: str, key: bytes, value: bytes | None, status: str) -> None:
    """Covers limits and errors that random records rarely reach."""
    rows = expected([(topic, key, value)] * 2)
    assert rows[0]["status"] == status
    for using in (CompiledDecoder(ALL), PureDecoder(ALL)):
        assert rows_of(frame([(topic, key, value)] * 2), using) == rows


def test_a_single_record_is_decoded_like_a_batch() -> None:
    """The function for a single record agrees with the decoders."""
    value = TransactionLogValue(producer_id=7).encode_value(0)
    for record in (("__transaction_state", KEY, value), ("__transaction_state", KEY, value[:-1]), ("orders", b"", b"")):
        assert decode_record(*record) == known.by_codec(*record)


def test_the_numbers_of_wire_types_equal_the_codecs() -> None:
    from kcore.protocol import pure
    from kcore_ext.codec import plan

    assert (pure.WIRE_KINDS, pure.ARRAY, pure.STRUCT) == (
        plan.WIRE_KINDS,
        plan.ARRAY,
        plan.STRUCT,
    )


def test_a_wrong_name_is_refused() -> None:
    from kcore.errors import KcoreError

    with pytest.raises(KcoreError, match="OffsetCommits: unknown record type; known types: OffsetCommit, "):
        decoder(["OffsetCommits"])


WITHOUT_EXTENSION = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "kcore_ext":
            raise ModuleNotFoundError(f"no module named {name}", name=name)

sys.meta_path.insert(0, Missing())
"""


def without_extension(program: str, *arguments: str) -> str:
    """Runs a program in a process without kcore_ext. Returns the output."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTENSION + program, *arguments],
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


DECODING = """
import pyarrow as pa
from kcore.errors import KcoreError
from kcore.spark.decode import columns as decode
from kcore.spark.events.datasource import KcoreReader, Range
from kcore.spark.events.sources import open_source

assert not decode.HAS_EXTENSION
names = tuple(decode.record_types())
for path in sys.argv[1:3]:
    reader = KcoreReader(path, Range(batches=True), {"rowsPerPartition": "1000"})
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    found = [decode.decode_batch(batch, names) for batch in found]
    with pa.ipc.new_file(path + ".rows", found[0].schema) as writer:
        for batch in found:
            writer.write(batch)
try:
    open_source(sys.argv[3])
except KcoreError as error:
    print(error)
assert not any(name.startswith("kcore_ext") for name in sys.modules)
"""


def test_an_executor_reads_and_decodes_without_the_extension(kafka_logs: Path, tmp_path: Path) -> None:
    """The executor reads segments and exports of a real broker's topics, and gives the same rows as with the extension.
    A data folder is refused with an error message.
    """
    from kcore.spark.events.sources import SegmentSource
    from kcore.spark.export.exporter import export

    folder, events, data = tmp_path / "logs", tmp_path / "events", tmp_path / "data"
    folder.mkdir()
    data.mkdir()
    (data / "data.mdb").touch()
    for name in ("__consumer_offsets-0", "__transaction_state-1", "__share_group_state-3"):
        (folder / name).symlink_to(kafka_logs / "moment-1" / name)
    source = SegmentSource(folder)
    export(source, events)
    output = without_extension(DECODING, str(folder), str(events), str(data))
    assert output == (
        f"{data} is a data folder, and only kcore's compiled extension can read it: export the folder with `kcore "
        "export` and read the export\n"
    )
    own = [decode_batch(batch, ALL) for part in source.parts() for batch in source.batches(part)]
    expected = [row for batch in own for row in batch.to_pylist()]
    assert len(expected) > 2_000
    for path in (folder, events):
        with pa.ipc.open_file(path.with_name(f"{path.name}.rows")) as reader:
            assert reader.read_all().to_pylist() == expected
