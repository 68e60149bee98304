"""The job `audit` has the same findings through Spark as without Spark, for all kinds of sources."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kcore.errors import KcoreError
from kcore.log import LmdbLogEngine
from kcore.log.lmdb_layout import LOG_KEY
from kcore.protocol.records import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcore.spark.audit.finding import Finding
from kcore.spark.audit.frames import finding_of, results_of_logs, results_of_partitions
from kcore.spark.audit.kinds import rank
from kcore.spark.audit.report import SENTENCE_LETTERS, lines, summary
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.events.sources import FolderSource, Part, Source, Span
from kcore.spark.export.exporter import export
from kcore.spark.frames.logs import logs_at
from kcore.spark.jobs import audit as audit_job
from kcore.transaction.states import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT
from kcore_ext.batch import BatchBuilder
from tests.log.batches import key
from tests.spark.audit.test_log_order import batches
from tests.spark.audit.written import Written, found, transaction_log

pytestmark = pytest.mark.spark


class Rows(Source):
    """A source with the rows of the logs that a test has written. A test can export this source."""

    def __init__(self, *logs: Written) -> None:
        self._logs = {(log.topic, log.partition): log for log in logs}

    def parts(self) -> list[Part]:
        return [Part(*place) for place in sorted(self._logs)]

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        for row in self._logs[span.part[:2]].rows:
            assert isinstance(row, EventRow)
            if span.has(row.offset):
                yield row


def planted() -> list[Written]:
    """Returns three logs with faults within and between them."""
    ids = transaction_log()
    offsets, data = Written(clock=ids), Written("t", clock=ids)
    offsets.generation("g", 4, a=[0], b=[0])
    offsets.generation("g", 3, a=[0])
    offsets.commit("g", 10)
    offsets.commit("g", 5)
    for producer_id, name in enumerate(["x", "y", "z"], 1):
        ids.transaction(name, EMPTY, (producer_id, 0))
        ids.transaction(name, ONGOING, (producer_id, 0), [("t", 0)], started_ms=ids.now_ms)
        data.raw(None, b"v", producer=(producer_id, 0), transactional=True)
        if name != "z":  # one hangs
            ids.transaction(name, PREPARE_COMMIT, (producer_id, 0), [("t", 0)])
            if name != "y":  # one has no marker
                data.mark((producer_id, 0), True)
            ids.transaction(name, COMPLETE_COMMIT, (producer_id, 0))
    data.mark((99, 0), False)  # and one marker has no transaction
    ids.wait(200_000)
    ids.transaction("x", EMPTY, (1, 1))
    offsets.next_offset += 5
    offsets.commit("h", 1)
    data.raw(None, b"v")
    return [ids, offsets, data]


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Returns findings in the order of the job's table, the most severe ones first."""
    return sorted(findings, key=lambda one: (rank(one.severity), one.kind, one.topic, one.partition, one.offset))


def table(spark: Any, out: Path) -> list[Finding]:
    rows = spark.read.parquet(str(out / audit_job.TABLE)).collect()
    return [finding_of(row.asDict(recursive=True)) for row in rows]


@pytest.mark.long
def test_spark_and_python_have_the_same_findings(spark: Any, tmp_path: Path) -> None:
    """Covers findings within and across partitions. A second run replaces the output of the first one."""
    logs = planted()
    export(Rows(*logs), tmp_path / "events")
    expected = worst_first(found(*logs))
    kinds = {one.kind for one in expected}
    assert kinds == {
        "generation-decreased",
        "two-owners",
        "offset-decreased",
        "offset-gap",
        "transaction-hangs",
        "marker-missing",
        "marker-without-transaction",
    }
    for _ in range(2):
        audited = audit_job.audit(spark, tmp_path / "events", tmp_path / "out", shown=3)
        assert worst_first(table(spark, tmp_path / "out")) == expected
        assert audited.worst == expected[:3]
        assert sum(audited.counts.values()) == len(expected)
    assert (audited.at_least("error"), audited.at_least("info")) == (len(expected) - 1, len(expected))
    done = json.loads((tmp_path / "out" / audit_job.DONE).read_bytes())
    assert done["logs"] == ["__consumer_offsets-0", "__transaction_state-0", "t-0"]
    assert set(done["findings"]) == kinds


@pytest.mark.long
def test_an_audit_may_be_limited_to_one_topic(spark: Any, tmp_path: Path) -> None:
    logs = planted()
    export(Rows(*logs), tmp_path / "events")
    audit_job.audit(spark, tmp_path / "events", tmp_path / "out", topics=[CONSUMER_OFFSETS])
    expected = worst_first(found(*(log for log in logs if log.topic == CONSUMER_OFFSETS)))
    assert worst_first(table(spark, tmp_path / "out")) == expected


def test_a_dataframe_gives_the_findings_of_its_folder(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """The order of the rows in the DataFrame does not matter, even with duplicates and damage."""
    name = "__transaction_state-0"
    (tmp_path / name).mkdir()
    for path in (kafka_logs / "moment-1" / name).glob("*.log"):
        data = bytearray(path.read_bytes())
        starts = batches(data)
        data[starts[len(starts) // 2] + 70] ^= 1
        (tmp_path / name / path.name).write_bytes(data)
    events = spark.read.format("kcore").option("includeBatches", "true").option("includeFaults", "true")
    frame = events.load(str(tmp_path))
    logs = logs_at(spark, tmp_path)
    direct = results_of_logs(logs, logs.parts())
    assert sorted_results(results_of_partitions(frame.orderBy(frame["offset"].desc()), tasks=1)) == sorted_results(
        direct
    )
    kinds = [row["kind"] for row in direct.where("finding is not null").select("finding.kind").collect()]
    assert kinds == ["corrupt-batch"]
    twice = frame.where("fault is null").unionByName(frame.where("offset between 10 and 20"))
    (again,) = results_of_partitions(twice, tasks=1).where("finding.kind = 'duplicate-offset'").collect()
    assert [one["offset"] for one in again["finding"]["evidence"]] == [10, 20]


def sorted_results(frame: Any) -> list[str]:
    return sorted(repr(row) for row in frame.collect())


def test_a_folder_without_logs_is_an_error(spark: Any, tmp_path: Path) -> None:
    export(Rows(*planted()), tmp_path / "events")
    with pytest.raises(KcoreError, match="contains no logs of elsewhere"):
        audit_job.audit(spark, tmp_path / "events", tmp_path / "out", topics=["elsewhere"])


def test_a_wrong_crc_in_segments_of_a_real_broker_is_found(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """The audit finds a damaged batch in the logs of a real broker. Apart from it, its findings have the severity
    `info`.
    """
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in ("__consumer_offsets-3", "__transaction_state-0"):
        source = kafka_logs / "moment-1" / name
        (folder / name).mkdir()
        for path in source.glob("*.log"):
            data = bytearray(path.read_bytes())
            if name.startswith(TRANSACTION_STATE):
                data[len(data) - 20] ^= 1
            (folder / name / path.name).write_bytes(data)
    audited = audit_job.audit(spark, folder, tmp_path / "out")
    findings = table(spark, tmp_path / "out")
    assert {(one.topic, one.partition) for one in findings if one.kind == "partition-missing"} == {
        (CONSUMER_OFFSETS, partition) for partition in range(3)
    }
    (bad,) = [one for one in findings if one.severity != "info"]
    assert (bad.kind, bad.topic, bad.partition, bad.offset) == ("corrupt-batch", TRANSACTION_STATE, 0, 1155)
    assert audited.at_least("warning") == 1


def rows_around(folder: Path) -> tuple[list[int], list[tuple[str, int, str]]]:
    """Returns the offsets that are read from a data folder, and the faults of the folder."""
    with FolderSource(folder) as source:
        source._keys["t", 0] = key()  # no topic's name is in this folder
        faults: list[LogFault] = []
        rows = [row.offset for row in source.rows(Part("t", 0), on_fault=faults.append)]
    return rows, [(fault.topic, fault.offset, fault.kind) for fault in faults]


def data_folder(folder: Path) -> list[tuple[int, bytes]]:
    """Writes a folder with five batches of two records. Returns the batches."""
    engine = LmdbLogEngine(folder, "os")
    log = engine.open(key())
    for number in range(5):
        builder = BatchBuilder(1 << 20, base_timestamp_ms=1_000)
        for value in (b"one", b"two"):
            assert builder.append(1_000, None, value * 50 + bytes([number]))
        log.append(bytearray(builder.build()), 1)
    engine.commit()
    stored = list(log.batches())
    engine.close()
    return stored


@pytest.mark.parametrize("at", [100, 16])
def test_a_damaged_batch_of_a_data_folder_is_found(tmp_path: Path, at: int) -> None:
    """Damage of the CRC and of the header is reported. The batches after the damage are read."""
    stored = data_folder(tmp_path)
    data = (tmp_path / "data.mdb").read_bytes()
    position = data.index(stored[2][1]) + at
    with open(tmp_path / "data.mdb", "r+b") as file:
        file.seek(position)
        file.write(bytes([data[position] ^ 1]))
    assert rows_around(tmp_path) == ([0, 1, 2, 3, 6, 7, 8, 9], [("t", 4, "corrupt")])


def test_a_missing_batch_of_a_data_folder_is_found(tmp_path: Path) -> None:
    """The audit reports the gap like any other gap."""
    data_folder(tmp_path)
    with lmdb.open(str(tmp_path), max_dbs=8) as env, env.begin(write=True, db=env.open_db(b"log")) as txn:
        assert txn.delete(LOG_KEY.pack(0, 4))
    assert rows_around(tmp_path) == ([0, 1, 2, 3, 6, 7, 8, 9], [])


# ---- output


def test_findings_are_shown_worst_first_and_the_rest_is_counted() -> None:
    findings = worst_first(found(*planted()))
    shown = lines(findings[:2], len(findings))
    assert [line.split()[0] for line in shown] == ["severity", "error", "error", "and"]
    assert shown[-1] == f"and {len(findings) - 2} more: see the table"
    assert "2023-11-14 22:13:20.001" in shown[1]
    assert lines(findings[:1], 1)[-1].startswith("error")
    assert lines([], 0) == []
    counts = {("info", "offset-decreased"): 7, ("error", "two-owners"): 1, ("error", "offset-gap"): 2}
    assert summary(counts) == [
        "error: 3, info: 7",
        "       2  error    offset-gap",
        "       1  error    two-owners",
        "       7  info     offset-decreased",
    ]
    assert summary({}) == ["Nothing was found."]


def test_the_exit_status_reflects_the_severity() -> None:
    parser = argparse.ArgumentParser()
    audit_job.add_arguments(parser)
    assert parser.parse_args(["f", "--out", "o"]).fail_on == "warning"
    audited = audit_job.Audited({("info", "offset-decreased"): 7, ("warning", "duplicate-offset"): 2}, [])
    assert [audited.at_least(one) for one in ("error", "warning", "info")] == [0, 2, 9]
    with pytest.raises(SystemExit) as stopped:
        parser.parse_args(["f", "--out", "o", "--fail-on", "bad"])
    assert stopped.value.code == 2


def test_a_finding_is_one_line_for_any_group_name() -> None:
    """Control characters in a group name are shown as codes, and a name of 30,000 characters is truncated."""
    rough = "Group new\nline\x1b[2J " + "b" * 30_000 + " went back."
    finding = Finding("kind", "error", "__consumer_offsets", 0, 1, -1, "", None, None, None, None, None, (), rough)
    _, line = lines([finding], 1)
    assert line.endswith("Group new\\x0aline\\x1b[2J " + "b" * (SENTENCE_LETTERS - 26) + "…")
