"""A rebuild reports a log as incomplete if and only if the loss can be detected."""

from __future__ import annotations

import shutil
from pathlib import Path

import lmdb
import pytest

import kcore
from kcore.spark.audit.finding import Finding
from kcore.spark.audit.frames import results_of_part
from kcore.spark.audit.kinds import ERROR, INFO, WARNING
from kcore.spark.events.batches import check
from kcore.spark.events.event import LogFault
from kcore.spark.events.sources import open_source
from kcore.spark.export.exporter import export
from kcore.spark.frames.folders import rebuilt_of
from kcore.spark.state.partition_state import COORDINATOR_TOPICS
from kcore.spark.state.rebuild import END, AsOf
from tests import kit
from tests.log.batches import split

PartitionTuple = tuple[str, int]


def incomplete(folder: Path, as_of: AsOf = END) -> set[PartitionTuple]:
    """Returns the partitions whose rebuilt state may lack records.

    Checks that a rebuild from rows and a rebuild from record batches agree.
    """
    found: dict[bool, set[PartitionTuple]] = {True: set(), False: set()}
    with open_source(folder) as source:
        for part in (part for part in source.parts() if part.topic in COORDINATOR_TOPICS):
            for with_records, partitions in found.items():
                state, cut, _ = rebuilt_of(source, part, as_of, with_records)
                if not state.completeness.is_complete(state.last_stable_offset, cut):
                    partitions.add(part[:2])
    assert found[True] == found[False]
    return found[False]


@pytest.fixture
def logs(kafka_logs: Path, tmp_path: Path) -> Path:
    """Copies a log whose older half is compacted, and two logs that were never compacted."""
    for name in ("__consumer_offsets-3", "__transaction_state-0", "__share_group_state-0"):
        shutil.copytree(kafka_logs / "moment-4" / name, tmp_path / "logs" / name)
    (tmp_path / "whole").symlink_to(kafka_logs / "moment-4" / "__consumer_offsets-0")
    return tmp_path / "logs"


OFFSETS, TRANSACTIONS, SHARES = ("__consumer_offsets", 3), ("__transaction_state", 0), ("__share_group_state", 0)


def segment(logs: Path, partition: PartitionTuple, number: int) -> Path:
    """Returns a segment file by its index in the log."""
    return sorted((logs / f"{partition[0]}-{partition[1]}").iterdir())[number]


def damage(path: Path, share: float) -> None:
    """Flips a bit in a file."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * share)] ^= 1
    path.write_bytes(data)


def cut_out(path: Path) -> None:
    """Removes the batches in the middle of a segment."""
    data = memoryview(path.read_bytes())
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + check(data, starts[-1]).size_bytes)
    third = len(starts) // 3
    path.write_bytes(bytes(data[: starts[third]]) + bytes(data[starts[2 * third] :]))


def findings(folder: Path, severity: str) -> list[tuple[str, str]]:
    """Audits each partition of a folder. Returns (kind, text) of the findings of a severity.

    Leaves out findings about the groups `orphan-share-N`, for which a script wrote random delivery states.
    """
    with open_source(folder) as source:
        results = [one for part in source.parts() for one in results_of_part(source, part)]
    found = [one for one in results if isinstance(one, Finding) and one.severity == severity]
    return [(one.kind, one.sentence) for one in found if not (one.group_id or "").startswith("orphan-share-")]


def errors(folder: Path) -> list[str]:
    """Returns the kinds of the errors among the findings."""
    return [kind for kind, _ in findings(folder, ERROR)]


def faults(folder: Path) -> dict[PartitionTuple, list[tuple[int, str, str]]]:
    """Returns the faults of a rebuild by partition."""
    with open_source(folder) as source:
        states = {part[:2]: rebuilt_of(source, part, END, False).state for part in source.parts()}
    return {partition: [one[2:] for one in state.faults] for partition, state in states.items() if state.faults}


def test_compacted_log_is_complete_at_its_end(logs: Path, tmp_path: Path) -> None:
    assert incomplete(logs) == set()
    with open_source(logs) as source:
        export(source, tmp_path / "events")
    assert incomplete(tmp_path / "events") == set()


def test_a_log_with_a_missing_front_is_incomplete(logs: Path, tmp_path: Path) -> None:
    """The first records of a log are missing. The rebuild reports this as a loss, except in a log of share states,
    where the states begin again with each snapshot.
    """
    segment(logs, OFFSETS, 0).unlink()
    shares = segment(logs, SHARES, 0)
    shares.rename(shares.with_name(f"{3:020d}.log"))
    assert incomplete(logs) == {OFFSETS}
    sentence = "the log begins at offset 9590: earlier records are missing"
    assert faults(logs) == {OFFSETS: [(9_590, "front", sentence)]}
    assert findings(logs, WARNING) == [("log-front-missing", f"__consumer_offsets-3: {sentence}.")]
    with open_source(logs) as source:
        export(source, tmp_path / "events")
    assert faults(tmp_path / "events") == faults(logs)
    assert findings(tmp_path / "events", WARNING) == findings(logs, WARNING)


def test_an_export_with_a_late_start_is_incomplete(logs: Path, tmp_path: Path) -> None:
    """An export starts at offset 30, so earlier records are missing. A resumed export reports this, and so does an
    export of this export.

    The report includes share states, although these begin again with each snapshot.
    """
    for start in (30, 30, 0):
        with open_source(logs) as source:
            report = export(source, tmp_path / "events", start=start)
        assert report.begun_late == (
            [] if start else [(*partition, 30) for partition in (OFFSETS, SHARES, TRANSACTIONS)]
        )
        assert incomplete(tmp_path / "events") == {OFFSETS, SHARES, TRANSACTIONS}
    sentence = "the log begins at offset 30, as requested: earlier records are missing"
    partitions = (OFFSETS, SHARES, TRANSACTIONS)
    assert faults(tmp_path / "events") == {partition: [(30, "front", sentence)] for partition in partitions}
    assert {kind for kind, _ in findings(tmp_path / "events", WARNING)} == {"log-front-missing"}
    with open_source(tmp_path / "events") as source:
        export(source, tmp_path / "again")
    assert faults(tmp_path / "again") == faults(tmp_path / "events")


def test_a_missing_segment_between_others_is_found(logs: Path, tmp_path: Path) -> None:
    """A segment in the compacted part of a log is missing. Only its remaining `.index` file shows the loss. If the
    broker has renamed the segment to `.deleted`, there is no loss.
    """
    partition = ("__consumer_offsets", 0)
    shutil.copytree(logs.parent / "whole", logs / "__consumer_offsets-0")
    missing = segment(logs, partition, 1)
    missing.with_suffix(".index").touch()
    missing.rename(missing.with_suffix(".log.deleted"))
    assert incomplete(logs) == set()
    with open_source(logs) as source:
        (part,) = (part for part in source.parts() if part[:2] == partition)
        state, _, _ = rebuilt_of(source, part, END, False)
    assert state.completeness.holes_to == 41_117
    missing.with_suffix(".log.deleted").unlink()
    assert incomplete(logs) == {partition}
    sentence = f"{31_001:020d}.log is missing, but {31_001:020d}.index exists"
    assert faults(logs) == {partition: [(31_001, "missing", sentence)]}
    assert findings(logs, ERROR) == [("segment-missing", f"__consumer_offsets-0: {sentence}.")]
    with open_source(logs) as source:
        (part,) = (part for part in source.parts() if part[:2] == partition)
        for start, stop, expected in [(0, 31_001, 0), (0, 31_002, 1), (41_116, None, 1), (41_117, None, 0)]:
            found: list[LogFault] = []
            list(source.rows(part, start, stop, found.append))
            assert len(found) == expected, (start, stop)
        export(source, tmp_path / "events")
    assert faults(tmp_path / "events") == faults(logs)
    assert incomplete(tmp_path / "events") == {partition}


def test_leftover_files_are_reported(logs: Path) -> None:
    """The job does not read leftover files of the log cleaner, such as `.cleaned` and `.deleted`, and reports their
    names.

    If a segment is missing but its `.swap` file exists, the job reports a missing segment.
    """
    middle = segment(logs, OFFSETS, 1)
    shutil.copy(middle, middle.with_suffix(".log.swap"))
    for number in range(5):
        middle.with_name(f"{middle.stem[:-1]}{number}.log.deleted").touch()
    middle.with_suffix(".log.cleaned").touch()
    names = [f"{9_590 + number:020d}.log.deleted" for number in range(5)]
    names[:1] = [middle.with_suffix(suffix).name for suffix in (".log.cleaned", ".log.deleted", ".log.swap")]
    sentence = f"__consumer_offsets-3: not read: {', '.join(names[:5])} and 2 more."
    assert ("leftover-files", sentence) in findings(logs, INFO)
    assert (incomplete(logs), faults(logs)) == (set(), {})
    middle.unlink()
    missed = f"{middle.name} is missing, but {middle.name}.swap exists"
    assert faults(logs) == {OFFSETS: [(9_590, "missing", missed)]}
    for path in (logs / "__consumer_offsets-3").glob("*.log"):
        path.unlink()
    assert incomplete(logs) == {OFFSETS}


def test_a_gap_above_the_compaction_point_is_a_loss(logs: Path, tmp_path: Path) -> None:
    cut_out(segment(logs, OFFSETS, 1))
    assert incomplete(logs) == {OFFSETS}
    with open_source(logs) as source:
        export(source, tmp_path / "events")
    assert incomplete(tmp_path / "events") == {OFFSETS}


@pytest.mark.parametrize("checkpoint", [9_590, *(pytest.param(each, marks=pytest.mark.long) for each in (0, 10**9))])
def test_a_wrong_compaction_checkpoint_is_not_trusted(logs: Path, tmp_path: Path, checkpoint: int) -> None:
    """The broker's compaction checkpoint is too low, as while the cleaner runs, or too high for the files. Rebuild and
    audit infer from the log itself up to which offset it was compacted.
    """
    as_of = AsOf(offset=9_000)
    assert incomplete(logs, as_of) == {OFFSETS}
    (logs / "cleaner-offset-checkpoint").write_text(f"0\n1\n__consumer_offsets 3 {checkpoint}\n")
    assert incomplete(logs, as_of) == {OFFSETS}
    assert errors(logs) == []
    cut_out(segment(logs, OFFSETS, 1))
    with open_source(logs) as source:
        export(source, tmp_path / "events")
    for folder in (logs, tmp_path / "events"):
        assert incomplete(folder) == {OFFSETS}
        assert errors(folder) == ["offset-gap"]


def test_a_missing_batch_of_a_data_folder_is_found(tmp_path: Path) -> None:
    """The compaction offset in a data folder is exact: records that are missing above it were not removed by
    compaction.
    """
    with kcore.open(tmp_path, config={**kit.QUICK, "offsets.topic.num.partitions": "1"}) as engine:
        kit.make_topic(engine, "orders", 2)
        for group in range(6):
            engine.send(kit.commit(f"group-{group}", {("orders", 0): 7}), kit.COMMIT_VERSION)
    assert incomplete(tmp_path) == set()
    with lmdb.open(str(tmp_path), max_dbs=8) as env, env.begin(write=True, db=env.open_db(b"log")) as txn:
        ((key, value),) = [(key, value) for key, value in txn.cursor() if b"group-3" in value]
        assert txn.delete(key)
        for batch in split(value):
            if b"group-3" not in batch:
                assert txn.put(key[:4] + batch[:8], batch)  # partition number and base offset
    assert incomplete(tmp_path) == {(OFFSETS[0], 0)}
    assert errors(tmp_path) == ["offset-gap"]


@pytest.mark.parametrize("partition", [OFFSETS, TRANSACTIONS, SHARES])
def test_damage_before_the_requested_moment_is_a_loss(logs: Path, partition: PartitionTuple) -> None:
    damage(segment(logs, partition, 0), 0.5)
    assert incomplete(logs) == {partition}


def test_damage_after_the_requested_moment_is_no_loss(logs: Path) -> None:
    damage(segment(logs, TRANSACTIONS, 0), 0.5)
    assert TRANSACTIONS not in incomplete(logs, AsOf(offset=10))


def test_only_the_newest_segment_may_end_half_written(logs: Path) -> None:
    """A half-written batch or trailing zeros at the end of the newest segment are no loss, but a truncated earlier
    segment is.
    """
    newest = segment(logs, OFFSETS, -1)
    newest.write_bytes(newest.read_bytes()[:-7])
    reserved = segment(logs, TRANSACTIONS, 0)
    reserved.write_bytes(reserved.read_bytes() + bytes(5_000))
    assert incomplete(logs) == set()
    first = segment(logs, OFFSETS, 0)
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 2])
    assert incomplete(logs) == {OFFSETS}
