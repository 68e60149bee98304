"""Exports contain every row once despite interruptions, and `kcore export verify` finds every deviation."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kcore
from kcore.errors import KcoreError
from kcore.spark.events.arrow import from_batch, to_batch, to_batches
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.events.sources import FolderSource, Part, SegmentSource, ServerSource, Source, Span, open_source
from kcore.spark.export.exporter import ExportSource, export, open_export, verify
from kcore.spark.export.manifest import JOURNAL, Manifest
from kcore.spark.frames.folders import rebuilt_of
from kcore.spark.state.rebuild import END
from kcore.spark.state.tables import table_rows
from tests import kit
from tests.seeds import SEED


def everything(source: Source) -> dict[tuple[str, int], list[EventRow]]:
    """Returns every row of a source."""
    return {part[:2]: list(source.rows(part)) for part in source.parts()}


@pytest.fixture(scope="module")
def small(kafka_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a log folder with two partitions of a real broker."""
    folder = tmp_path_factory.mktemp("small")
    for name in ("__consumer_offsets-0", "__share_group_state-3"):
        (folder / name).symlink_to(kafka_logs / "moment-1" / name)
    return folder


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_export_equals_the_log(small: Path, tmp_path: Path, form: str) -> None:
    source = SegmentSource(small)
    written_paths: list[str] = []
    report = export(
        source, tmp_path, form=form, rows_per_file=1_000, on_file=lambda written: written_paths.append(written.path)
    )
    assert report.faults == []
    assert sorted(written_paths) == [
        path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.glob("topic=*/*/*"))
    ]
    assert verify(tmp_path) == []
    found = everything(open_source(tmp_path))
    assert found == everything(source)
    assert report.rows == sum(map(len, found.values()))
    assert report.files == sum(-(-len(rows) // 1_000) for rows in found.values())
    again = export(source, tmp_path, form=form)
    assert again[:2] == (0, 0), "exported rows are not exported again"


@pytest.mark.parametrize("start", [0, 1_000])
@pytest.mark.parametrize("stop", [None, 5_000])
def test_rows_and_arrow_of_segments_are_the_same(kafka_logs: Path, start: int, stop: int | None) -> None:
    """Reads every partition of a real broker row by row and as Arrow batches. Both have the same rows, for any range of
    offsets.
    """
    source = SegmentSource(kafka_logs / "moment-1")
    for part in source.parts():
        rows = list(source.rows(part, start, stop))
        batches = list(source.batches(part, start, stop))
        assert [row for batch in batches for row in from_batch(batch)] == rows
        for batch in batches:
            batch.validate(full=True)
            assert batch.equals(to_batch(list(from_batch(batch))))


class StoppedError(Exception):
    """Raised in place of killing the process."""


class StoppingSource(SegmentSource):
    """A source that stops after a number of rows."""

    left = 0

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        for row in super().read_rows(span):
            if not self.left:
                raise StoppedError
            self.left -= 1
            yield row

    def read_batches(self, span: Span) -> Iterator[pa.RecordBatch]:
        return to_batches(self.read_rows(span), 50)


@pytest.mark.seeded
def test_an_export_continues_after_a_stop_anywhere(small: Path, tmp_path: Path) -> None:
    seed = SEED
    print("seed", seed)
    chance = random.Random(seed)
    source = StoppingSource(small)
    for _ in range(8):
        source.left = chance.randrange(2_000)
        try:
            export(source, tmp_path, rows_per_file=chance.choice([100, 700]))
        except StoppedError:
            (tmp_path / "topic=__consumer_offsets" / "partition=0").mkdir(parents=True, exist_ok=True)
            stray = tmp_path / "topic=__consumer_offsets" / "partition=0" / "00000000000000099999.parquet"
            stray.write_bytes(b"half")
            assert len(verify(tmp_path)) >= 1 if (tmp_path / "manifest.json").exists() else True
    export(SegmentSource(small), tmp_path)
    assert verify(tmp_path) == []
    assert everything(ExportSource(tmp_path)) == everything(SegmentSource(small))


def test_verify_finds_changed_files(small: Path, tmp_path: Path) -> None:
    export(SegmentSource(small), tmp_path, rows_per_file=500)
    first, second, third, *_ = sorted(tmp_path.glob("topic=__consumer_offsets/*/*"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    changed = bytearray(third.read_bytes())
    changed[len(changed) // 2] ^= 1
    third.write_bytes(changed)
    (tmp_path / "topic=__consumer_offsets" / "partition=0" / "more").write_bytes(b"")
    names = [path.relative_to(tmp_path).as_posix() for path in (first, second, third)]
    assert verify(tmp_path) == [
        f"{names[0]}: is missing",
        f"{names[1]}: has {second.stat().st_size} bytes, not {second.stat().st_size + 1}",
        f"{names[2]}: was changed: its checksum differs",
        "topic=__consumer_offsets/partition=0/more: is not in the manifest",
    ]
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(KcoreError, match="cannot be read"):
        verify(tmp_path)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_verify_checks_counts_and_offsets_too(small: Path, tmp_path: Path, form: str) -> None:
    """The verification detects an edited manifest even if all files are unchanged."""
    export(SegmentSource(small), tmp_path, form=form, topic_filter=lambda topic: topic == "__share_group_state")
    path = tmp_path / "manifest.json"
    document = json.loads(path.read_text())
    (part,) = document["partitions"]
    (file,) = part["files"]
    last, count = file["last_offset"], file["count"]
    file["last_offset"], file["count"], part["next_offset"] = last + 5, 3, last + 6
    path.write_text(json.dumps(document))
    held = f"has {count} rows of offsets {file['first_offset']} to {last}"
    message = f"the manifest says 3 of {file['first_offset']} to {last + 5}"
    assert verify(tmp_path) == [f"{file['path']}: {held}, and {message}"]


@pytest.mark.parametrize(
    ("where", "name", "value", "message"),
    [
        ("part", "next_offset", "soon", "next_offset is 'soon', but must be int"),
        ("part", "cleaned_to", [], r"cleaned_to is \[\], but must be int | None"),
        ("part", "files", 7, "int"),
        ("file", "count", None, "count is None, but must be int"),
        ("file", "path", "topic=a/../../../b", "is outside of the export"),
        ("file", "path", "/etc/hostname", "is outside of the export"),
        ("all", "format", "xml", "format 'xml'; valid: parquet, jsonl"),
        ("all", "version", 2, "the manifest has version 2; supported is version 1"),
    ],
)
def test_an_impossible_manifest_is_an_error(
    small: Path, tmp_path: Path, where: str, name: str, value: object, message: str
) -> None:
    """All readers refuse the manifest: they open no file outside of the export, and append nothing to it."""
    export(SegmentSource(small), tmp_path)
    path = tmp_path / "manifest.json"
    document = json.loads(path.read_text())
    part = document["partitions"][0]
    {"all": document, "part": part, "file": part["files"][0]}[where][name] = value
    path.write_text(json.dumps(document))
    for read in (verify, ExportSource, lambda folder: export(SegmentSource(small), folder)):
        with pytest.raises(KcoreError, match=message):
            read(tmp_path)


def test_ranges_and_topics_are_chosen(small: Path, tmp_path: Path) -> None:
    export(SegmentSource(small), tmp_path, topic_filter=lambda topic: topic == "__share_group_state", start=20, stop=40)
    (rows,) = everything(ExportSource(tmp_path)).values()
    assert [row.offset for row in rows] == list(range(20, 40))
    with pytest.raises(KcoreError, match="contains an export in the format parquet"):
        export(SegmentSource(small), tmp_path, form="jsonl")


HEADERS = (("trace", b"1"), ("none", None), ("trace", b"2"), ("größe", b""))


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_headers_timestamps_and_all_other_fields_are_read_back(tmp_path: Path, form: str) -> None:
    """Covers null and empty keys, repeated header names, and the earliest timestamps."""
    rows = [
        EventRow(b"k", b"v", "orders", 0, 0, 1_000, 0, HEADERS, 7, 1, 5, True),
        EventRow(None, None, "orders", 0, 3, -1, 0, ()),
        EventRow(b"", b"", "orders", 0, 4, 0, 1, (("", None),), 7, 1, 6, True, True),
        EventRow(None, None, "orders", 0, 9, 5, 0, (), 7, 1, 7, False, False, True),
    ]
    found = FixedSource(rows)
    export(found, tmp_path, form=form, rows_per_file=3)
    assert everything(ExportSource(tmp_path)) == {("orders", 0): rows}
    (part,) = (source := ExportSource(tmp_path)).parts()
    assert list(source.rows(part, 3, 9)) == rows[1:3]
    assert [batch.column("offset").to_pylist() for batch in source.batches(part, 4)] == [[4], [9]]


class FixedSource(Source):
    """A source with rows of one partition."""

    def __init__(self, rows: list[EventRow], **fields: Any) -> None:
        self._rows = rows
        self._part = Part(rows[0].topic, rows[0].partition, **fields)

    def parts(self) -> list[Part]:
        return [self._part]

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        return (row for row in self._rows if span.has(row.offset))


def test_an_export_of_share_states_continues_after_the_deleted_front(kafka_logs: Path, tmp_path: Path) -> None:
    """Between two exports, the share coordinator deletes records that the first export did not read. The second export
    continues after this gap.

    A rebuild from the export has the same complete state as a rebuild from the remaining log.
    """
    (part,) = SegmentSource(kafka_logs / "moment-1" / "__share_group_state-3").parts()
    rows = list(SegmentSource(kafka_logs / "moment-1" / "__share_group_state-3").rows(part))
    start = rows[200].offset
    rest = FixedSource(rows[200:], log_start=start)
    (part,) = rest.parts()
    export(FixedSource(rows[:100]), tmp_path)
    export(rest, tmp_path)
    source = ExportSource(tmp_path)
    assert everything(source) == {part[:2]: rows[:100] + rows[200:]}
    (exported,) = source.parts()
    assert (exported.start, exported.log_start, exported.requested_start) == (rows[0].offset, start, 0)
    found = rebuilt_of(source, exported, END, False)
    whole = rebuilt_of(rest, part, END, False)
    assert list(table_rows(found.state, found.cut)) == list(table_rows(whole.state, whole.cut))
    assert not found.state.completeness.lost


def test_an_export_is_not_continued_with_another_log(tmp_path: Path) -> None:
    """An export refuses to continue with a recreated topic, or with a log that ends before the exported records.

    The export of the other partitions continues.
    """
    first, other = (EventRow(None, b"value", topic, 0, 0, 1, 0, ()) for topic in ("orders", "other"))
    for rows in ([first], [other]):
        export(FixedSource(rows, end=1, topic_id="aa"), tmp_path)
    more = [first._replace(offset=1)]
    with pytest.raises(KcoreError) as raised:
        export(FixedSource(more, end=2, topic_id="bb"), tmp_path)
    assert str(raised.value) == "orders-0 has the topic id bb, and the export aa: export to another folder"
    with pytest.raises(KcoreError) as raised:
        export(FixedSource(more, end=0, topic_id="aa"), tmp_path)
    assert str(raised.value) == "orders-0 ends at 0, before the export at 1: export to another folder"

    both = (FixedSource(more, end=2, topic_id="bb"), FixedSource([other._replace(offset=1)], end=2))
    with pytest.raises(KcoreError, match="orders-0 has the topic id"):
        export(Sources(both), tmp_path)
    exported = everything(ExportSource(tmp_path))
    assert {key: [row.offset for row in rows] for key, rows in exported.items()} == {
        ("orders", 0): [0],
        ("other", 0): [0, 1],
    }
    export(FixedSource(more, end=2), tmp_path)  # without an id
    assert [(part.topic, part.end, part.topic_id) for part in ExportSource(tmp_path).parts()] == [
        ("orders", 2, "aa"),
        ("other", 2, "aa"),
    ]


class Sources(Source):
    """Several sources as one."""

    def __init__(self, sources: Sequence[FixedSource]) -> None:
        self._sources = {part[:2]: source for source in sources for part in source.parts()}

    def parts(self) -> list[Part]:
        return [part for source in self._sources.values() for part in source.parts()]

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        return self._sources[span.part[:2]].read_rows(span)


def test_each_source_has_the_ids_of_topics(tmp_path: Path) -> None:
    with kcore.open(tmp_path / "data") as node:
        node.topics.create("orders")
        topic_id = node.topics.describe(["orders"])[0].id.hex()
        found = {"server": {part.topic: part.topic_id for part in ServerSource(node).parts()}}
    with FolderSource(tmp_path / "data") as source:
        found["folder"] = {part.topic: part.topic_id for part in source.parts()}
        export(source, tmp_path / "events")
    found["export"] = {part.topic: part.topic_id for part in ExportSource(tmp_path / "events").parts()}
    assert {name: ids["orders"] for name, ids in found.items()} == dict.fromkeys(found, topic_id)
    assert found["server"].items() <= found["folder"].items() == found["export"].items()

    segments = tmp_path / "kafka" / "orders-0"
    segments.mkdir(parents=True)
    (segments / "00000000000000000000.log").touch()
    assert [part.topic_id for part in SegmentSource(segments).parts()] == [None]
    (segments / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n")
    assert [part.topic_id for part in SegmentSource(segments).parts()] == [bytes(range(16)).hex()]


def test_a_file_without_a_column_is_damaged(small: Path, tmp_path: Path) -> None:
    export(SegmentSource(small / "__consumer_offsets-0"), tmp_path)
    (path,) = tmp_path.glob("topic=__consumer_offsets/*/*")
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["control", "value"]), path)
    source, faults = ExportSource(tmp_path), []
    (part,) = source.parts()
    assert list(source.rows(part, on_fault=faults.append)) == []
    detail = f"{path.relative_to(tmp_path).as_posix()}: the file lacks the columns value, control"
    assert [(fault.offset, fault.kind, fault.detail) for fault in faults] == [(part.start, "corrupt", detail)]
    assert list(source.batches(part, columns=["key", "offset"]))


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_intact_parts_of_damaged_exports_are_read(small: Path, tmp_path: Path, form: str) -> None:
    """An export has a truncated file, a missing file, and files that its manifest does not name. All intact rows are
    read once, and the truncated and the missing file are reported.
    """
    export(SegmentSource(small / "__consumer_offsets-0"), tmp_path, form=form, rows_per_file=500)
    whole = everything(ExportSource(tmp_path))["__consumer_offsets", 0]
    first, second, third, *_ = sorted(tmp_path.glob("topic=__consumer_offsets/*/*"))
    first.with_name(f"00000000000000000001.{form}").write_bytes(first.read_bytes())  # a copy that no manifest names
    first.with_name(f".{first.name}.tmp").write_bytes(first.read_bytes()[:100])  # half written
    third.unlink()
    second.write_bytes(second.read_bytes()[: second.stat().st_size // 2])
    source, faults = ExportSource(tmp_path), []
    (part,) = source.parts()
    rows = list(source.rows(part, on_fault=faults.append))
    names = [path.relative_to(tmp_path).as_posix() for path in (second, third)]
    assert [fault.kind for fault in faults] == ["corrupt", "corrupt"]
    assert [fault.detail.partition(": ")[0] for fault in faults] == names
    assert [fault.offset for fault in faults] == [whole[500].offset, whole[1_000].offset]
    lost = len(whole) - len(rows)
    assert rows == whole[: 1_500 - lost] + whole[1_500:]
    assert lost == 1_000 if form == "parquet" else 500 < lost < 1_000, "in JSON the lines before the cut are complete"


def test_running_server_gives_the_rows_of_its_folder(tmp_path: Path) -> None:
    """Fetching from the running server gives the same rows as reading the closed folder."""
    with kcore.open(tmp_path / "data", config=kit.QUICK) as engine:
        kit.make_topic(engine, "orders", 2)
        for group in range(20):
            engine.send(kit.commit(f"group-{group}", {("orders", 0): group, ("orders", 1): 7}), kit.COMMIT_VERSION)
        kit.stable_alone(engine, "workers")
        server = ServerSource(engine)
        export(server, tmp_path / "one", topic_filter=lambda topic: topic == "__consumer_offsets")
    with FolderSource(tmp_path / "data") as folder:
        export(folder, tmp_path / "two", topic_filter=lambda topic: topic == "__consumer_offsets")
        assert "__cluster_metadata" in {part.topic for part in folder.parts()}
    one, two = everything(ExportSource(tmp_path / "one")), everything(ExportSource(tmp_path / "two"))
    assert sum(map(len, one.values())) >= 41
    assert one == two


def test_intact_parts_of_damaged_segments_are_read(kafka_logs: Path, tmp_path: Path) -> None:
    """With half-written tails, duplicates and a damaged batch, all other rows are read once."""
    source = kafka_logs / "moment-1" / "__consumer_offsets-0"
    (whole,) = everything(SegmentSource(source)).values()
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    first, last = sorted(source.glob("*.log"))
    (folder / first.name).write_bytes(first.read_bytes())
    (folder / last.name).write_bytes(last.read_bytes()[:-10])
    between = int(last.stem) - 1
    (folder / f"{between:020d}.log").write_bytes(last.read_bytes()[:5_000])
    faults: list[Any] = []
    found = SegmentSource(tmp_path)
    (part,) = found.parts()
    rows = list(found.rows(part, on_fault=faults.append))
    assert rows == whole[: len(rows)]
    assert len(whole) - 40 < len(rows) < len(whole)
    assert [fault.kind for fault in faults] == ["truncated", "duplicate", "truncated"]
    assert faults[1].offset == int(last.stem)
    damaged = bytearray(first.read_bytes())
    damaged[70] ^= 1
    (folder / first.name).write_bytes(damaged)
    rest = list(islice(SegmentSource(tmp_path).rows(part, on_fault=faults.append), 5))
    assert faults[-1].kind == "corrupt"
    assert rest[0].offset > whole[0].offset


def damaged_copy(kafka_logs: Path, folder: Path) -> Path:
    """Writes a partition that has a damaged batch, two duplicate batches, and a half-written end."""
    source = kafka_logs / "moment-1" / "__consumer_offsets-0"
    target = folder / "logs" / source.name
    target.mkdir(parents=True)
    first, last = (path.read_bytes() for path in sorted(source.glob("*.log")))
    damaged = bytearray(first)
    damaged[len(first) // 2] ^= 1
    names = [path.name for path in sorted(source.glob("*.log"))]
    (target / names[0]).write_bytes(damaged)
    (target / f"{int(names[1][:20]) - 1:020d}.log").write_bytes(last[:5_000])
    (target / names[1]).write_bytes(last[:-10])
    return folder / "logs"


def faults_of(source: Source) -> list[tuple[int, LogFault]]:
    """Returns the faults of a source. Each has the number of rows that the source returned before the fault."""
    found: list[tuple[int, LogFault]] = []
    rows: list[EventRow] = []
    (part,) = source.parts()
    rows.extend(source.rows(part, on_fault=lambda fault: found.append((len(rows), fault))))
    return found


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_faults_stay_recorded(kafka_logs: Path, tmp_path: Path, form: str) -> None:
    """Readers get the faults at their positions, once in every range. `kcore export verify` reports them."""
    logs, events = damaged_copy(kafka_logs, tmp_path), tmp_path / "events"
    expected = faults_of(SegmentSource(logs))
    assert [fault.kind for _, fault in expected] == ["corrupt", "truncated", "duplicate", "truncated"]
    report = export(SegmentSource(logs), events, form=form, rows_per_file=700)
    assert report.faults == [fault for _, fault in expected]
    assert {one for one in faults_of(ExportSource(events)) if one[1].kind != "duplicate"} == {
        one for one in expected if one[1].kind != "duplicate"
    }
    assert verify(events) == [
        f"__consumer_offsets-0@{fault.offset}: {fault.kind} at export: {fault.detail}" for _, fault in expected
    ]
    source = ExportSource(events)
    (part,) = source.parts()
    assert part.end is not None
    ranges = [*range(part.start, part.end, 1_000), part.end]
    found: list[LogFault] = []
    for start, stop in pairwise(ranges):
        assert list(source.batches(part, start, stop, found.append, ["offset"]))
    assert sorted(found) == sorted(fault for _, fault in expected)


def test_the_fault_of_a_partly_written_end_is_removed_once_it_is_complete(kafka_logs: Path, tmp_path: Path) -> None:
    """An export reports a fault for a half-written batch at the end of a log. A later export, after the batch is
    complete, removes this fault and keeps the faults of earlier damage.
    """
    logs, events = damaged_copy(kafka_logs, tmp_path), tmp_path / "events"
    held = open_export(events, "parquet")
    report = export(SegmentSource(logs), events, rows_per_file=700, manifest=held)
    for _ in range(2):
        saved = (events / "manifest.json").stat().st_mtime_ns
        again = export(SegmentSource(logs), events, manifest=held)
        assert (again.rows, again.faults) == (0, report.faults[-1:])
        assert (events / "manifest.json").stat().st_mtime_ns == saved, "the manifest is written although nothing is new"
    last = sorted((kafka_logs / "moment-1" / "__consumer_offsets-0").glob("*.log"))[-1]
    (logs / "__consumer_offsets-0" / last.name).write_bytes(last.read_bytes())
    rest = export(SegmentSource(logs), events, manifest=held)
    assert (rest.rows > 0, rest.faults) == (True, [])
    assert sorted(fault for _, fault in faults_of(ExportSource(events))) == sorted(report.faults[:-1])
    assert Manifest.load(events) == held


def test_new_files_are_added_to_a_journal_of_the_manifest(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export appends new files to the journal, and rewrites the manifest only sometimes.

    Readers read the manifest and then the journal, whose last line may be incomplete.
    """
    monkeypatch.setattr("kcore.spark.export.manifest.MOST_NOTED", 5)
    saved: list[int] = []
    save = Manifest.save
    monkeypatch.setattr(Manifest, "save", lambda self, folder: (saved.append(1), save(self, folder))[1])
    held = open_export(tmp_path, "parquet")
    whole = everything(SegmentSource(small))
    for stop in range(100, 3_000, 100):
        export(SegmentSource(small), tmp_path, stop=stop, manifest=held)
        assert verify(tmp_path) == []
        cut = {key: [row for row in rows if row.offset < stop] for key, rows in whole.items()}
        assert everything(ExportSource(tmp_path)) == cut
    files = len(list(tmp_path.glob("topic=*/*/*")))
    assert files > 30
    assert len(saved) < files / 3
    assert (tmp_path / JOURNAL).exists()
    known = Manifest.load(tmp_path)
    assert known == held
    with open(tmp_path / JOURNAL, "ab") as file:
        file.write(b'{"topic": "__consumer_offsets", "part')
    assert Manifest.load(tmp_path) == held
    export(SegmentSource(small), tmp_path)
    assert not (tmp_path / JOURNAL).exists()
    assert verify(tmp_path) == []
    assert everything(ExportSource(tmp_path)) == whole


def test_the_journal_of_the_manifest_is_applied_once(small: Path, tmp_path: Path) -> None:
    """A process may stop after it has merged the journal into the manifest, but before it removes the journal.

    Readers then ignore the journal's entries, which the manifest already contains.
    """
    held = open_export(tmp_path, "parquet")
    for stop in (100, 200, 300):
        export(SegmentSource(small), tmp_path, stop=stop, manifest=held)
    journal = (tmp_path / JOURNAL).read_bytes()
    held.save(tmp_path)
    (tmp_path / JOURNAL).write_bytes(journal)
    assert Manifest.load(tmp_path) == held
    assert verify(tmp_path) == []
