"""The tests that effects.py names fail while kcore ignores their setting, also in the server processes that a test
starts.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.config.effects import INDIRECT, NAMED
from tests.config.ignored_setting import sitecustomize
from tests.config.test_effects import TESTS

ROOT = TESTS.parent
PATH = os.pathsep.join([str(TESTS / "config" / "ignored_setting"), str(ROOT)])
TEST_FAILED = 1
"""The exit status of pytest if tests failed. An error outside of the tests has another status."""

TESTS_OF_SETTINGS = {name: (test, name) for name, test in NAMED.items()} | {
    name: (test, f"{name}={value}" if value else name) for name, (test, value) in INDIRECT.items()
}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(TESTS_OF_SETTINGS))
def test_the_test_of_a_setting_fails_without_its_effect(name: str) -> None:
    test, ignored = TESTS_OF_SETTINGS[name]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-o", "timeout=120", "-m", "", f"{TESTS.name}/{test}"]
    variables = {**os.environ, "PYTHONPATH": PATH, sitecustomize.VARIABLE: ignored}
    result = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert result.returncode == TEST_FAILED, f"{test} does not depend on {name}:\n{result.stdout}"
    assert "1 failed" in result.stdout
