"""Runs the test suites of public projects with a test broker in place of their container.

    make test-public-suites PROJECTS=folder

The folder has checkouts or unpacked source packages of the projects in `SUITES`. Missing projects are left out. Each
project gets a virtual environment in the folder, into which pip installs the project and the packages that its tests
need. The tool changes nothing in a project. The project's tests connect to the address of a local Kafka,
`localhost:9092`, or to the address in an environment variable. The exit status is 1 if a test failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from kcore.testing import Broker

PORT = 9092
LIMIT_S = 1_800.0  # time for one suite
RESULTS = ("passed", "skipped", "failures", "errors")
ENVIRONMENTS = ".environments"


@dataclass(frozen=True)
class Suite:
    """The test suite of a project.

    Attributes:
        names: the possible names of the project's folder, without a version.
        tests: the tests that need Kafka, and arguments of pytest.
        packages: the packages that the tests need beside those of the project.
        extras: the extras of the project that the tests need.
        address: the environment variable with the broker's address, if the project has one.
    """

    names: tuple[str, ...]
    tests: tuple[str, ...]
    packages: tuple[str, ...]
    extras: str = ""
    address: str = ""


SUITES = (
    Suite(
        names=("arroyo", "sentry_arroyo"),
        tests=("tests/backends/test_kafka.py", "tests/backends/test_kafka_producer.py", "tests/test_kip848_e2e.py"),
        packages=("pytest", "pytest-benchmark", "pytest-timeout", "setuptools"),
        address="DEFAULT_BROKERS",
    ),
    Suite(
        names=("taskiq_aio_kafka",),
        tests=("tests",),
        packages=("pytest", "anyio"),
    ),
    Suite(
        names=("faststream",),
        tests=(
            "tests/brokers/kafka",
            "--ignore=tests/brokers/kafka/test_misconfigure.py",
        ),  # needs other brokers' clients
        packages=(
            "dirty-equals",
            "fastapi",
            "freezegun",
            "httpx",
            "msgspec",
            "opentelemetry-sdk",
            "prometheus-client",
            "psutil",
            "pydantic-settings",
            "pytest",
            "pytest-asyncio",
            "pytest-rerunfailures",
            "pytest-timeout",
            "pytest-xdist",
            "python-multipart",
            "pyyaml",
            "uvicorn",
        ),
        extras="[kafka,cli]",
    ),
)


def find_projects(folder: Path) -> dict[str, tuple[Suite, Path]]:
    """Returns the suites whose projects are in a folder, by the name of the project."""
    projects = {}
    for path in sorted(folder.iterdir()):
        name = re.sub(r"-\d.*", "", path.name).replace("-", "_").lower()
        for suite in SUITES:
            if name in suite.names and (path / "tests").is_dir():
                projects[suite.names[0]] = (suite, path)
    return projects


def prepare(suite: Suite, project: Path, environment: Path) -> Path:
    """Installs a project and the packages of its tests. Returns the environment's interpreter."""
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", f"{project}{suite.extras}", *suite.packages]
    subprocess.run(command, check=True)
    return python


def run(suite: Suite, project: Path, python: Path, report: Path, port: int) -> dict[str, int]:
    """Runs a suite with a separate broker. Returns the number of tests with each result."""
    report.unlink(missing_ok=True)
    with Broker(port=port) as broker:
        address = {suite.address: broker.bootstrap} if suite.address else {}
        command = [str(python), "-m", "pytest", "-q", f"--junit-xml={report}", *suite.tests]
        environment = {**os.environ, **address}
        environment.pop("PYTHONPATH", None)
        subprocess.run(command, cwd=project, env=environment, timeout=LIMIT_S, check=False)
    if not report.exists():
        return {"errors": 1}
    totals = ET.parse(report).getroot().iter("testsuite")
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for total in totals:
        for name in counts:
            counts[name] += int(total.get(name, 0))
    counts["passed"] = counts.pop("tests") - counts["failures"] - counts["errors"] - counts["skipped"]
    return counts


def main() -> int:
    """Runs the suites, and prints their results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("projects", type=Path, help="the folder with the checkouts")
    parser.add_argument("--port", type=int, default=PORT, help="the broker's port; most suites need 9092")
    arguments = parser.parse_args()
    folder = arguments.projects.resolve()
    projects = find_projects(folder) if folder.is_dir() else {}
    if not projects:
        names = ", ".join(suite.names[0] for suite in SUITES)
        print(f"{folder} has no checkout of any of: {names}", file=sys.stderr)
        return 1
    results = {}
    for name, (suite, project) in projects.items():
        environment = folder / ENVIRONMENTS / name
        python = prepare(suite, project, environment)
        results[name] = run(suite, project, python, environment / "report.xml", arguments.port)
    for name, counts in results.items():
        words = ", ".join(f"{counts[result]} {result}" for result in RESULTS if counts.get(result))
        print(f"{name} ({projects[name][1].name}): {words or 'no tests'}")
    failed = any(counts.get("failures") or counts["errors"] or not counts.get("passed") for counts in results.values())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
