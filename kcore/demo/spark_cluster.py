"""A standalone Spark cluster and an S3 server on this machine: a master, and workers with separate folders."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import kcore
from kcore.errors import ConfigError, KcoreError

HOST: Final = "127.0.0.1"
WORKERS: Final = 2
START_S: Final = 120.0
POLL_S: Final = 0.1
KEY: Final = "kcore"
"""Access key and secret key for the S3 server, which accepts any keys."""
AWS: Final = {
    "bundle": ("software.amazon.awssdk", "aws-java-sdk-v2.version"),
    "analyticsaccelerator-s3": (
        "software.amazon.s3.analyticsaccelerator",
        "amazon-s3-analyticsaccelerator-s3.version",
    ),
}
"""Mapping from each package that hadoop-aws needs to its Maven group and a property name.

This property of Hadoop's project file contains the version of the package.
"""


def s3_jars(folder: Path | None = None) -> list[Path]:
    """Finds the packages that Spark needs for `s3a:` and that its distribution lacks.

    Maven downloads missing packages (700 MB) to its local repository, unless a folder is given.

    Args:
        folder: the folder to search; None: Maven's local repository.

    Raises:
        ConfigError: a package is missing, and Maven cannot download it.
    """
    import pyspark  # noqa: PLC0415

    jars = Path(pyspark.__file__).parent / "jars"
    version = next((jar.stem.rpartition("-")[2] for jar in sorted(jars.glob("hadoop-client-api-*.jar"))), "")
    if folder is not None:
        return [_newest(folder, name) for name in (f"hadoop-aws-{version}.jar", *(f"{name}-*.jar" for name in AWS))]
    found = [maven_file("org.apache.hadoop", "hadoop-aws", version)]
    project = maven_file("org.apache.hadoop", "hadoop-project", version, "pom").read_text()
    for name, (group, setting) in AWS.items():
        match = re.search(rf"<{re.escape(setting)}>([^<]+)<", project)
        if match is None:
            raise ConfigError(f"the project file of hadoop-aws {version} does not name the version of {name}")
        found.append(maven_file(group, name, match[1]))
    return found


def _newest(folder: Path, pattern: str) -> Path:
    matches = sorted(folder.rglob(pattern))
    if not matches:
        raise ConfigError(f"{folder} lacks {pattern}, which Spark needs for s3a: URIs")
    return matches[-1]


def maven_file(group: str, name: str, version: str, form: str = "jar") -> Path:
    """Returns a file of Maven's local repository, which Maven downloads if it is missing.

    Raises:
        ConfigError: Maven is not installed, or cannot download the file.
    """
    place = Path.home() / ".m2" / "repository" / Path(*group.split(".")) / name / version / f"{name}-{version}.{form}"
    if place.is_file():
        return place
    command = ["mvn", "-q", "-B", "dependency:get", "-Dtransitive=false", f"-Dartifact={group}:{name}:{version}:{form}"]
    if shutil.which(command[0]) is None:
        raise ConfigError(f"Spark needs {place.name}: install Maven, which downloads it, or name a folder with it")
    status = subprocess.run(command, check=False).returncode
    if status or not place.is_file():
        raise ConfigError(f"{' '.join(command)} ended with status {status}, and Spark needs {place.name}")
    return place


def moto_command() -> list[str]:
    """Returns the command of moto's server.

    Raises:
        ConfigError: moto is not installed.
    """
    beside = Path(sys.executable).parent / "moto_server"
    found = str(beside) if beside.is_file() else shutil.which("moto_server")
    if found is None:
        raise ConfigError("the demonstration needs moto's S3 server: pip install 'moto[server]'")
    return [found]


def free_port() -> int:
    """Returns a port that no process listens on."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


class Cluster:
    """The processes of the cluster, as a context manager. The end of its block stops the processes.

    Args:
        folder: the folder of logs and of the workers' own folders.
        jars: the packages for S3, on the class path of driver and executors; if empty, the cluster has no S3 server.

    Attributes:
        master: the master's URL.
        endpoint: HOST:PORT of the S3 server.
    """

    def __init__(self, folder: Path, jars: Sequence[Path]) -> None:
        self._folder = folder
        self._class_path = ":".join(map(str, jars))
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://{HOST}:{free_port()}"
        self.endpoint = f"{HOST}:{free_port()}"

    def __enter__(self) -> Cluster:
        import pyspark  # noqa: PLC0415

        home = Path(pyspark.__file__).parent
        try:
            if self._class_path:
                port = self.endpoint.rpartition(":")[2]
                self._start("s3", [*moto_command(), "-H", HOST, "-p", port], self._folder / "s3")
            spark = [str(home / "bin" / "spark-class")]
            address = ["--host", HOST, "--port", self.master.rpartition(":")[2], "--webui-port", "0"]
            self._start("master", [*spark, "org.apache.spark.deploy.master.Master", *address], self._folder / "master")
            self._await("master", "Starting Spark master at")
            for number in range(WORKERS):
                own = self._folder / f"worker-{number}"
                limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(own / "work"), "--webui-port", "0"]
                command = [*spark, "org.apache.spark.deploy.worker.Worker", "--host", HOST, *limits, self.master]
                self._start(f"worker-{number}", command, own)
            for number in range(WORKERS):
                self._await(f"worker-{number}", "Successfully registered with master")
            if self._class_path:
                self._await_s3()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _start(self, name: str, command: list[str], own: Path) -> None:
        """Starts a process in its own working folder, with a subfolder for its temporary files."""
        for place in (own, own / "tmp"):
            place.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "SPARK_LOCAL_DIRS": str(own / "tmp"),
            "TMPDIR": str(own / "tmp"),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with open(self._folder / f"{name}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command, cwd=own, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            )

    def _await(self, name: str, text: str) -> None:
        """Waits for a line in a process's log."""
        path = self._folder / f"{name}.log"
        for _ in _until(f"{name} did not start: see {path}"):
            if text in path.read_text(errors="replace"):
                return

    def _await_s3(self) -> None:
        for _ in _until(f"the S3 server did not start: see {self._folder / 's3.log'}"):
            with suppress(OSError), urllib.request.urlopen(f"http://{self.endpoint}/", timeout=5):
                return

    def create_bucket(self, name: str) -> None:
        """Creates a bucket."""
        request = urllib.request.Request(f"http://{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            pass

    def settings(self) -> dict[str, str]:
        """Returns Spark's settings for this cluster."""
        found = {
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": str(Path(kcore.__file__).parents[1]),
        }
        if not self._class_path:
            return found
        return found | {
            "spark.driver.extraClassPath": self._class_path,
            "spark.executor.extraClassPath": self._class_path,
            "spark.hadoop.fs.s3a.endpoint": f"http://{self.endpoint}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.access.key": KEY,
            "spark.hadoop.fs.s3a.secret.key": KEY,
        }

    def environment(self) -> dict[str, str]:
        """Returns the environment of jobs: the interpreter of executors, and the credentials that pyarrow reads."""
        return {
            "PYSPARK_PYTHON": sys.executable,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": KEY,
            "AWS_REGION": "us-east-1",
        }

    def arrow_uri(self, path: str) -> str:
        """Returns the URI of a folder for pyarrow."""
        return f"s3://{path}?endpoint_override={self.endpoint}&scheme=http"

    def kill_executor(self, runs: Callable[[], bool]) -> int | None:
        """Waits until an executor runs Python tasks, and kills it.

        Args:
            runs: returns True while the job runs.

        Returns:
            The executor's process id; None if the job ended first.
        """
        while runs():
            executors = _executors(self._folder)
            if executors:
                os.kill(executors[0], signal.SIGKILL)
                return executors[0]
            time.sleep(POLL_S)
        return None


def _until(message: str) -> Iterator[None]:
    """Yields every `POLL_S` seconds for `START_S` seconds, then raises KcoreError with `message`."""
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        yield
        time.sleep(POLL_S)
    raise KcoreError(message)


def _executors(folder: Path) -> list[int]:
    """Returns the process ids of the executors that work in `folder` and have started Python workers."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            command = (stat.parent / "cmdline").read_bytes()
            if b"pyspark.daemon" not in command:
                continue
            parent = int(re.sub(r".*\)", "", stat.read_text()).split()[1])
            working = os.readlink(f"/proc/{parent}/cwd")
            if working.startswith(str(folder.resolve())):
                found.append(parent)
    return sorted(found)


@contextmanager
def in_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for the body of a `with` statement, and restores them afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
