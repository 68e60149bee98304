"""Compares the requests of kcore's member and of Java's member in the same scenarios, field by field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcore.testing import ServerProcess
from tests.clients.java_programs import classpath
from tests.clients.test_new_protocol import SETTINGS
from tests.clients.traffic import differences

DOCUMENT = Path(__file__).parents[2] / "docs" / "client-differences.md"
ROW = re.compile(r"^\| (\w+) \| `([^`]+)` \| ([^|]*) \|", re.MULTILINE)


@pytest.fixture(scope="module")
def traffic_server() -> Iterator[str]:
    classpath()  # skips without Java
    with ServerProcess(settings=SETTINGS) as server:
        yield server.bootstrap


# Marked `long`, because Java's member acts in real time: on a busy machine, the number of its requests may vary.
@pytest.mark.long
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", "consumer"])
def test_the_requests_differ_only_as_documented(traffic_server: str, name: str, strategy: str) -> None:
    documented = {(api, field): protocols for api, field, protocols in ROW.findall(DOCUMENT.read_text())}
    assert documented, "the table of the differences was found"
    found = differences(strategy, traffic_server, name)
    unknown = {key: text for key, text in found.items() if key not in documented}
    assert unknown == {}
    protocol = "consumer" if strategy == "consumer" else "classic"
    expected = {key for key, protocols in documented.items() if protocol in protocols}
    assert expected <= found.keys(), "documented differences that are gone"
