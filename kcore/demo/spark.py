"""The Spark demonstration: a real server and real clients produce a history, and Spark jobs analyse its log."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from pathlib import Path
from typing import Final

from kcore.broker.metadata.names import INTERNAL_TOPICS
from kcore.demo.show import Show
from kcore.demo.traffic import SETTINGS, Traffic
from kcore.errors import ConfigError
from kcore.printable import counted
from kcore.spark.jobs import submit
from kcore.spark.jobs.session import check_java, prepare_local_workers
from kcore.testing import ServerProcess

SPARK_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Settings for a small log on a small machine: few partitions, no web page, no log, and a JVM that compiles quickly."""

STORM: Final = ("--storm-count", "4", "--storm-window-ms", "8000", "--gap-ms", "3000")
MASTER: Final = "local[2]"


class SparkStory:
    """One run of the Spark demonstration.

    Args:
        folder: the output folder of data, export, tables and report; replaces the results of an earlier run.
        seed: the seed of the traffic.
        seconds: the duration of the traffic, in seconds.
        show: prints the progress.
    """

    def __init__(self, folder: Path, seed: int, seconds: float, show: Show) -> None:
        self.folder = folder
        self.seed = seed
        self.seconds = seconds
        self.show = show
        self.statuses: list[tuple[str, int]] = []

    def run(self) -> bool:
        """Produces the history and runs the jobs. Returns True if every command succeeded."""
        check_java()
        _use_spark_settings()
        data = self.folder / "data"
        for name in ("data", "events", "state", "audit", "timeline"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        middle_ms = self._make_history(data)
        events = str(self.folder / "events")
        self._export(data, events)
        self._job("rebuild", events, "--out", str(self.folder / "state"))
        self._job("audit", events, "--out", str(self.folder / "audit"))
        self._job(
            "timeline", events, "--out", str(self.folder / "timeline"), *STORM,
            "--session-timeout-ms", SETTINGS["group.consumer.session.timeout.ms"],
        )  # fmt: skip
        plan = str(self.folder / "plan.json")
        self._job("restore-plan", events, "--out", plan, "--as-of-ms", str(middle_ms), "--data", str(data))
        return self._end()

    def _make_history(self, data: Path) -> int:
        """Runs a server and the traffic; returns the middle of this period, in ms since the epoch."""
        self.show.say("seed", f"{self.seed} (kcore demo --spark --seed {self.seed} plays the same script)")
        with ServerProcess(data, SETTINGS) as server:
            self.show.say("server", f"kcore serve listens on {server.bootstrap}, data in {data}")
            begun_ms = time.time_ns() // 1_000_000
            traffic = Traffic(server.bootstrap, self.seed, self.show.say)
            traffic.play(self.seconds)
            self.show.say("server", f"stops; {traffic.produced} records were produced, all members have left")
        return (begun_ms + time.time_ns() // 1_000_000) // 2

    def _export(self, data: Path, events: str) -> None:
        """Runs `kcore export` and verifies the export."""
        from kcore.spark.events.sources import open_source  # noqa: PLC0415
        from kcore.spark.export.exporter import export, verify  # noqa: PLC0415

        self.show.command(["kcore", "export", str(data), "--out", events])
        with open_source(data) as source:
            report = export(source, events, topic_filter=INTERNAL_TOPICS.__contains__)
        print(f"{counted(report.rows, 'rows')} in {counted(report.files, 'files')}")
        self.statuses.append(("export", len(report.faults)))
        self.show.command(["kcore", "export", "verify", events])
        findings = verify(events)
        print("\n".join(findings) or "the export is complete")
        self.statuses.append(("export verify", len(findings)))

    def _job(self, job: str, *arguments: str) -> None:
        """Runs `kcore spark JOB` in this process. All jobs use the same JVM, but each job has its own Spark session."""
        command = [job, *arguments, "--master", MASTER]
        self.show.command(["kcore", "spark", *command])
        self.statuses.append((f"spark {job}", submit.main(command)))

    def _end(self) -> bool:
        wrong = [f"{command} ended with status {status}" for command, status in self.statuses if status]
        report = self.folder / "timeline" / "timeline.html"
        whole = not wrong and report.is_file()
        text = "\n".join(wrong) if wrong else f"{len(self.statuses)} commands, {self.show.elapsed_s:.0f} s"
        self.show.panel("result", f"{text}\neverything is in {self.folder}", "green" if whole else "red")
        if report.is_file():
            self.show.console.print(f"the report: {report.resolve()}", soft_wrap=True)
        return whole


def _use_spark_settings() -> None:
    """Sets the environment of the JVM, which the first job starts, and of its Python workers."""
    prepare_local_workers()
    if "PYSPARK_SUBMIT_ARGS" not in os.environ:
        arguments: list[str] = []
        for name, value in SPARK_SETTINGS.items():
            arguments += ["--conf", f"{name}={value}"]
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])


def run(folder: Path, seed: int, seconds: float) -> bool:
    """Runs the demonstration. Raises ConfigError if a dependency is not installed."""
    for name in ("confluent_kafka", "pyspark", "pyarrow"):
        try:
            __import__(name)
        except ImportError as error:
            raise ConfigError(f"the Spark demonstration needs {name}: pip install 'kcore[demo,spark]'") from error
    return SparkStory(folder, seed, seconds, Show()).run()
