"""A server in virtual time sends the same responses and writes the same records as Apache Kafka 4.3.1.

`tests/golden` has scripts of raw requests, Kafka's recorded responses, and a separate codec (`kwire`). In these tests,
the sockets of the scripts end in a `VirtualServer`, and their sleeps and timeouts advance its clock. `test_golden.py`
runs the same scripts against `kcore serve`.
"""

from __future__ import annotations

import json
import logging
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.runtime import RequestContext
from tests.test_golden import AREAS, SCRIPTED_PRODUCER_IDS
from tests.virtual_server import VirtualClock, VirtualServer

GOLDEN = Path(__file__).parent / "golden"
sys.path.append(str(GOLDEN))  # the scripts import each other by plain names

import golden as script  # type: ignore[import-not-found]  # noqa: E402
import kwire  # type: ignore[import-not-found]  # noqa: E402

SCENARIOS = dict(script.scenarios(GOLDEN, [], "*"))


def settings_of(area: str) -> dict[str, str]:
    """Returns the settings of the server from which an area was recorded."""
    name = AREAS[area]
    lines = (GOLDEN / f"server{'-' if name else ''}{name}.properties").read_text().splitlines()
    pairs = (line.strip().partition("=") for line in lines)
    return {key: value for key, _, value in pairs if key and not key.startswith("#")}


@contextmanager
def connected(server: VirtualServer, function: Any) -> Iterator[None]:
    """Connects the sockets and clocks of the scripts to a server."""
    sockets = types.SimpleNamespace(
        create_connection=lambda address, timeout: server.connect(),
        IPPROTO_TCP=0,
        TCP_NODELAY=0,
    )
    modules = [module for name, module in sys.modules.items() if name == "golden" or name.startswith("helpers")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kwire, "socket", sockets)
        for namespace in (function.__globals__, *map(vars, modules)):
            if "time" in namespace:
                patch.setitem(namespace, "time", VirtualClock(server))
        yield


@pytest.mark.parametrize("name", SCENARIOS)
def test_responses_and_records_equal_kafkas(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Runs a recorded scenario and compares whole responses and records with Kafka's.

    Sets kcore's log level to INFO, because the responses contain the levels of loggers, which are INFO in Kafka.
    """
    caplog.set_level(logging.INFO, "kcore")
    assert differences(name, VirtualServer(settings_of(name.split("/", maxsplit=1)[0]))) == []


def differences(name: str, server: VirtualServer) -> list[Any]:
    """Runs a scenario against a server. Returns the differences of its responses and records from the recorded ones."""
    try:
        for _ in SCRIPTED_PRODUCER_IDS:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            assert server.engine.submit(RequestContext(4), request) is not None
        with connected(server, SCENARIOS[name]):
            steps, failure = script.run(SCENARIOS[name], ("virtual", 0))
    finally:
        server.close()
    recorded = json.loads((GOLDEN / "recorded" / f"{name}.json").read_text())["steps"]
    return [*script.compare(recorded, steps), *(() if failure is None else (failure,))]


def test_every_recording_has_its_scenario() -> None:
    """Each recording belongs to an existing scenario."""
    files = (GOLDEN / "recorded").glob("*/*.json")
    assert {f"{file.parent.name}/{file.stem}" for file in files} == set(SCENARIOS)
