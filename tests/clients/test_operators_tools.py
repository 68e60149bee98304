"""Kafka's tools for operators print the same output with kcore as with Apache Kafka 4.3.1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kcore.testing import ServerProcess
from tests.clients.operators_tools import RECORDED, SCRIPT, SETTINGS, run


@pytest.mark.long
@pytest.mark.clients
@pytest.mark.timeout(600)
def test_kafkas_tools_print_the_recorded_output(tmp_path: Path) -> None:
    """Every command has the same exit status and output as with Kafka, except that kcore's error messages have their
    own texts.
    """
    expected = json.loads(RECORDED.read_text())
    assert len(expected) == len(SCRIPT)
    with ServerProcess(tmp_path / "data", SETTINGS) as server:
        results = run(server.bootstrap, tmp_path)
    for result, kafkas in zip(results, expected, strict=True):
        assert result == kafkas, result["command"]
