"""A real `kcore serve` sends the same responses and writes the same records as Apache Kafka 4.3.1, in some areas.

`test_virtual_golden.py` runs the scripts of all areas in virtual time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kcore.client.connection import Connection
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.testing import ServerProcess

GOLDEN = Path(__file__).parent / "golden"

AREAS = {  # area -> its server settings: server-NAME.properties
    "admin": "",
    "admin_edge": "edge",
    "classic": "",
    "classic_crowd": "crowd",
    "consumer": "",
    "data": "",
    "migration": "",
    "offsets": "",
    "offsets_expiry": "expiry",
    "operators": "",
    "operators_compressed": "compressed",
    "operators_edge": "edge",
    "operators_large": "large",
    "operators_segments": "segments",
    "share": "",
    "streams": "",
    "transactions": "",
    "transactions_timers": "timers",
    "wire": "",
}


INFO = ("--log-level", "info")
"""Command-line arguments that set the log level to info, Kafka's default. Scripts query this level."""

SCRIPTED_PRODUCER_IDS = range(10)
"""Producer ids that scripts invent.

Several scripts run concurrently, so the server could allocate an invented id to any script. Therefore, the tests
allocate all these ids first. Later responses then contain none of them.
"""


def use_up_scripted_ids(bootstrap: str) -> None:
    with Connection.to(bootstrap) as connection:
        for _ in SCRIPTED_PRODUCER_IDS:
            response = connection.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
            assert response.error_code == 0


RETRIES = 2
"""Number of times that the test repeats failed scenarios, one at a time. Short sessions expire on a busy machine."""


def check(
    bootstrap: str, settings: str, jobs: int, *scenarios: str
) -> tuple[subprocess.CompletedProcess[str], set[str], set[str]]:
    """Runs areas or single scenarios. Returns the process, and the names of the passed and the failed scenarios."""
    command = [sys.executable, str(GOLDEN / "golden.py"), "check", "--bootstrap", bootstrap, "--settings", settings]
    run = subprocess.run([*command, "--jobs", str(jobs), *scenarios], capture_output=True, text=True, check=False)
    lines = [line.split() for line in run.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]
    return run, {line[1] for line in lines if line[0] == "ok"}, {line[1] for line in lines if line[0] == "FAIL"}


OVER_SOCKETS = {"admin_edge", "classic", "wire"}
"""Areas whose scripts `make test` runs over real sockets: limits of frames and idle connections, real timers, and every
API and version.
"""


@pytest.mark.parametrize(
    "area", [area if area in OVER_SOCKETS else pytest.param(area, marks=pytest.mark.long) for area in sorted(AREAS)]
)
@pytest.mark.timeout(600)
def test_responses_of_an_area_equal_kafkas(area: str, tmp_path: Path) -> None:
    """Runs all scenarios of the area, several of them concurrently, because most of them only wait."""
    settings = AREAS[area]
    properties = GOLDEN / f"server{'-' if settings else ''}{settings}.properties"
    with ServerProcess(
        tmp_path / "data", config_file=properties, arguments=INFO, stderr=tmp_path / "server.log"
    ) as server:
        use_up_scripted_ids(server.bootstrap)
        run, passed, failed = check(server.bootstrap, settings, 6, area)
        for _ in range(RETRIES):
            if not failed:
                break
            run, again, failed = check(server.bootstrap, settings, 1, *sorted(failed))
            passed |= again
    log = (tmp_path / "server.log").read_text()
    assert passed | failed, run.stderr
    assert failed == set(), f"{run.stdout}\n{log[-4000:]}"
