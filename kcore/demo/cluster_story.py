"""The Spark demonstration on a cluster of two workers: compares the results of its jobs with those of local jobs.

The cluster's jobs read and write S3. During a job, the demonstration kills an executor of the cluster. The results must
still be equal.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kcore.broker.metadata.names import INTERNAL_TOPICS
from kcore.demo.show import Show
from kcore.demo.spark import SPARK_SETTINGS, STORM, SparkStory
from kcore.demo.spark_cluster import Cluster, in_environment, moto_command, s3_jars
from kcore.errors import ConfigError
from kcore.printable import counted
from kcore.spark.jobs.session import check_java

BUCKET: Final = "kcore-demo"
JOB_S: Final = 900
RUN: Final = "import sys; from kcore.cli import main; sys.exit(main())"
TABLES: Final = {"rebuild": "state", "audit": "audit", "timeline": "timeline"}
"""Mapping from the name of each Spark job to the name of the folder with its tables."""


class ClusterStory(SparkStory):
    """One run of the Spark demonstration on a cluster.

    Args:
        folder: the folder for all output.
        seed: the seed of the random traffic.
        seconds: the duration of the traffic in seconds.
        show: prints the progress.
        jars: the packages for S3.
    """

    def __init__(self, folder: Path, seed: int, seconds: float, show: Show, jars: Sequence[Path]) -> None:
        super().__init__(folder, seed, seconds, show)
        self._jars = jars

    def run(self) -> bool:
        """Runs every job locally and on the cluster. Returns True if all succeeded with equal results."""
        check_java()
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("data", "events", "cluster", *TABLES.values()):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        data, events = self.folder / "data", self.folder / "events"
        middle_ms = self._make_history(data)
        self._export(data, str(events))
        moment = ("--as-of-ms", str(middle_ms))
        more: dict[str, tuple[str, ...]] = {"rebuild": (), "audit": (), "timeline": STORM}
        for job, arguments in more.items():
            self._spark(job, str(events), str(self.folder / TABLES[job]), arguments, "local[2]", {})
        self._spark("restore-plan", str(events), str(self.folder / "local.json"), moment, "local[2]", {})

        self._run_on_cluster(data, more, moment)
        return self._end()

    def _run_on_cluster(self, data: Path, more: Mapping[str, tuple[str, ...]], moment: tuple[str, ...]) -> None:
        """Runs the jobs on the cluster, and compares their results with the results of the local jobs."""
        (self.folder / "cluster").mkdir()
        with Cluster(self.folder / "cluster", self._jars) as cluster, in_environment(cluster.environment()):
            self.show.say("cluster", f"{cluster.master}: a master and two workers; S3 at {cluster.endpoint}")
            cluster.create_bucket(BUCKET)
            self._export_to(data, cluster.arrow_uri(f"{BUCKET}/events"))
            place, settings = f"s3a://{BUCKET}", cluster.settings()
            for job, arguments in more.items():
                killed = cluster if job == "rebuild" else None
                out = f"{place}/{TABLES[job]}"
                self._spark(job, f"{place}/events", out, arguments, cluster.master, settings, killed)
                self._compare(cluster, TABLES[job], TABLES[job])
            self._continue(cluster, place, moment)
            plan = str(self.folder / "cluster.json")
            self._spark("restore-plan", f"{place}/events", plan, moment, cluster.master, settings)
            self._compare_plans()

    def _continue(self, cluster: Cluster, place: str, moment: tuple[str, ...]) -> None:
        """Runs two jobs that rebuild the state of the groups.

        The first job stops at a point in time. The second job continues from its checkpoints to the end of the log.
        """
        for out, arguments in (("middle", (*moment, "--checkpoint")), ("continued", ("--since", f"{place}/middle"))):
            self._spark("rebuild", f"{place}/events", f"{place}/{out}", arguments, cluster.master, cluster.settings())
        self._compare(cluster, TABLES["rebuild"], "continued")

    def _export_to(self, data: Path, uri: str) -> None:
        """Exports the event log of a data folder to S3 without Spark, and verifies the export."""
        from kcore.spark.events.sources import open_source  # noqa: PLC0415
        from kcore.spark.export.exporter import export, verify  # noqa: PLC0415

        self.show.command(["kcore", "export", str(data), "--out", uri])
        with open_source(data) as source:
            report = export(source, uri, topic_filter=INTERNAL_TOPICS.__contains__)
        findings = verify(uri)
        print(f"{counted(report.rows, 'rows')} in {counted(report.files, 'files')}")
        print("\n".join(findings) or "the export is complete")
        self.statuses.append((f"export --out {uri}", len(findings)))

    def _spark(
        self,
        job: str,
        events: str,
        out: str,
        arguments: tuple[str, ...],
        master: str,
        settings: Mapping[str, str],
        killed: Cluster | None = None,
    ) -> None:
        """Runs a job in a separate process. If `killed` is a cluster, kills one of its executors during the job."""
        command = ["spark", job, events, "--out", out, *arguments, "--master", master]
        self.show.command(["kcore", *command, *(["--conf", "…"] if settings else [])])
        for name, value in {**SPARK_SETTINGS, **settings}.items():
            command += ["--conf", f"{name}={value}"]
        with subprocess.Popen([sys.executable, "-c", RUN, *command]) as process:
            if killed is not None:
                executor = killed.kill_executor(lambda: process.poll() is None)
                self.show.say("cluster", f"executor {executor} is killed during the job")
                self.statuses.append(("the death of an executor during a job", int(executor is None)))
            status = process.wait(JOB_S)
        # A job that reports findings ends with status 1, locally and on the cluster: the results are compared.
        self.statuses.append((f"spark {job} on {master}", int(status not in (0, 1))))

    def _compare(self, cluster: Cluster, name: str, stored: str) -> None:
        """Compares the tables of a local run with the tables of a run on the cluster.

        Args:
            cluster: the Spark cluster, which reads its own tables.
            name: the folder of the local tables.
            stored: the folder of the tables on S3.
        """
        from pyarrow import dataset, fs  # noqa: PLC0415

        storage, root = fs.FileSystem.from_uri(cluster.arrow_uri(f"{BUCKET}/{stored}"))
        tables = sorted(path.name for path in (self.folder / name).iterdir() if path.is_dir())
        different = []
        rows = 0
        for table in tables:
            here = dataset.dataset(self.folder / name / table, format="parquet").to_table()
            try:
                there = dataset.dataset(f"{root.rstrip('/')}/{table}", filesystem=storage, format="parquet").to_table()
            except FileNotFoundError:
                there = None
            rows += len(here)
            if there is None or _rows(here) != _rows(there):
                different.append(table)
        text = f"{rows} rows in {len(tables)} tables of {stored} are equal to those of the local run"
        self.show.say("compare", f"{stored}: different tables: {', '.join(different)}" if different else text)
        self.statuses.append((f"comparison of {stored}", len(different) + (not tables)))

    def _compare_plans(self) -> None:
        local, there = (json.loads((self.folder / f"{name}.json").read_text()) for name in ("local", "cluster"))
        same = {**local, "source": ""} == {**there, "source": ""}
        self.show.say("compare", f"{len(local['rows'])} rows of the plan are {'' if same else 'not '}equal")
        self.statuses.append(("comparison of restore-plan", int(not same)))


def _rows(table: Any) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def run(folder: Path, seed: int, seconds: float, jars: Path | None) -> bool:
    """Runs the demonstration. Raises ConfigError if a dependency is not installed."""
    for name in ("confluent_kafka", "pyspark", "pyarrow"):
        try:
            __import__(name)
        except ImportError as error:
            raise ConfigError(f"the Spark demonstration needs {name}: pip install 'kcore[demo,spark]'") from error
    check_java()
    moto_command()
    return ClusterStory(folder, seed, seconds, Show(), s3_jars(jars)).run()
