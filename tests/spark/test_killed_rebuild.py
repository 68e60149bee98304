"""A rebuild that is killed leaves whole tables, or tables that are marked as incomplete, and can be repeated."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq
import pytest

from kcore.errors import KcoreError
from kcore.spark.events.sources import SegmentSource
from kcore.spark.export.exporter import export
from kcore.spark.frames.checkpoints import local_checkpoints
from kcore.spark.frames.output import APPEND, INCOMPLETE, PARQUET, REBUILD_DONE, Output
from kcore.spark.frames.views import register_views
from kcore.spark.jobs.rebuild import rebuild, rebuild_with_uncertainties
from kcore.spark.state.table_schemas import TABLES
from tests.spark.processes import RUN_UNTIL, spark_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

JOB_S: Final = 200


class KillPoint(NamedTuple):
    """A point of a run at which the test kills it: right before an operation on a file.

    Attributes:
        event: the audit event of Python.
        path: the end of the file's path.
        since: True if the run continues from checkpoints.
        tables: the tables after the kill: `earlier`, `new`, or None if some are earlier and some new. Such tables must
            be marked as incomplete.
    """

    event: str
    path: str
    since: bool
    tables: str | None


KILL_POINTS: Final = (
    KillPoint("open", f".{REBUILD_DONE}{INCOMPLETE}.tmp", True, "earlier"),
    KillPoint("os.remove", REBUILD_DONE, False, "earlier"),
    KillPoint("os.rename", "out/groups", True, None),
    KillPoint("os.rename", "out/offsets", False, None),
    KillPoint("os.rename", "out/checkpoint", True, None),
    KillPoint("open", f".{REBUILD_DONE}.tmp", False, None),
    KillPoint("os.remove", f"{REBUILD_DONE}{INCOMPLETE}", True, "new"),
)


def tables_in(folder: Path) -> dict[str, list[str]]:
    return {name: sorted(map(repr, pq.read_table(folder / name).to_pylist())) for name in TABLES}


def check_marked(spark: Any, out: Path) -> None:
    """Checks that `out` is marked as incomplete after the job was killed while it replaced the tables.

    Readers and later runs must refuse the folder, because it may contain tables of both runs.
    """
    assert not (out / REBUILD_DONE).exists()
    with pytest.raises(KcoreError, match=r"the tables in .*out are incomplete, because a job writes them or did not"):
        register_views(spark, state=out)
    with (
        pytest.raises(KcoreError, match=r"some tables in .*out may have its rows: replace them with --mode overwrite"),
        Output(spark, out, PARQUET, APPEND).run("source", REBUILD_DONE, "partitions"),
    ):
        pass


@pytest.mark.long
def test_a_killed_rebuild_is_repeated(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """The job is killed over an earlier output, while it replaces the tables. Then it runs again."""
    logs, events, first, out = kafka_logs / "moment-1", tmp_path / "events", tmp_path / "first", tmp_path / "out"
    export(SegmentSource(logs / "__transaction_state-3"), events, stop=400, rows_per_file=100)
    rebuild_with_uncertainties(spark, events, first, checkpoint=True)
    earlier, beginning = tables_in(first), tmp_path / "beginning"
    events.rename(beginning)
    for name in ("__transaction_state-3", "__share_group_state-1"):
        export(SegmentSource(logs / name), events)
    rebuild_with_uncertainties(spark, events, tmp_path / "whole", checkpoint=True)
    new, offsets = tables_in(tmp_path / "whole"), local_checkpoints(tmp_path / "whole").starts
    assert new != earlier
    arguments = [str(events), "--out", str(out), "--checkpoint", "--master", "local[1]"]
    for point in KILL_POINTS:
        rebuild_with_uncertainties(spark, beginning, out, checkpoint=True)
        assert tables_in(out) == earlier
        since = ["--since", str(first)] if point.since else []
        program = [RUN_UNTIL, point.event, point.path, "spark", "rebuild", *arguments, *since]
        with spark_job(program, tmp_path / "output") as job:
            assert job.wait(JOB_S) == -signal.SIGKILL, point
        if point.tables is None:
            check_marked(spark, out)
            if point.event == "os.rename":  # later, all checkpoints are new
                with pytest.raises(KcoreError, match="has no complete checkpoints"):
                    local_checkpoints(out)
        else:
            assert tables_in(out) == {"earlier": earlier, "new": new}[point.tables], point
            register_views(spark, state=out)
        rebuild_with_uncertainties(spark, events, out, checkpoint=True, since=first if point.since else None)
        assert tables_in(out) == new
        assert local_checkpoints(out).starts == offsets
        assert [path.name for path in out.iterdir() if path.name.startswith(".") or INCOMPLETE in path.name] == []


def test_an_output_that_is_not_complete_gets_no_rows(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """A rebuild with --mode append refuses an output that an interrupted run has left incomplete.

    Otherwise it would write again the rows that the interrupted run has written.
    """
    events, out = kafka_logs / "moment-1" / "__transaction_state-0", tmp_path / "out"
    rebuild(spark, events, out)
    Output(spark, out, PARQUET, APPEND).begin(REBUILD_DONE)
    with pytest.raises(KcoreError, match=rf"or delete the file {REBUILD_DONE}{INCOMPLETE} to keep these rows"):
        rebuild(spark, events, Output(spark, out, PARQUET, APPEND))
    with pytest.raises(KcoreError, match="are incomplete, because a job writes them or did not end"):
        register_views(spark, state=out)
    rebuild(spark, events, out)
    register_views(spark, state=out)
