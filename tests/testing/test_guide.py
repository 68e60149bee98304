"""The examples of docs/testing-kafka-code.md run, and the requests and names in that document are valid."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

from kcore.testing import Broker, History, VirtualNode
from kcore.testing.control.fields import check_object
from kcore.testing.control.operations import OPERATIONS
from kcore.testing.groups import TestGroup

pytest_plugins = ["pytester"]

GUIDE = (Path(__file__).parents[2] / "docs" / "testing-kafka-code.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
TESTS = [block for block in BLOCKS if re.search(r"^def test_", block, re.MULTILINE)]
FRAGMENTS = [block for block in BLOCKS if block not in TESTS]
CURL = re.compile(r"^\$ curl (?:-X (\w+) )?(?:-d '(.*)' )?(?:\\\n +)?\$CONTROL(/\S+)", re.MULTILINE)


def test_the_tests_of_the_guide_pass(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("\n\n".join(TESTS))
    result = pytester.runpytest_inprocess("-p", "kcore.testing.plugin", "-p", "no:randomly")
    result.assert_outcomes(passed=len(re.findall(r"^def test_", "".join(TESTS), re.MULTILINE)))


def test_the_crash_test_of_the_guide_finds_a_commit_before_processing(pytester: pytest.Pytester) -> None:
    handle, commit = "handle(record)\n", "consumer.commit(message=record, asynchronous=False)\n"
    program = TESTS[0].replace(f"{handle}                {commit}", f"{commit}                {handle}")
    assert program != TESTS[0]
    pytester.makepyfile("\n\n".join([program, *TESTS[1:]]))
    result = pytester.runpytest_inprocess("-p", "kcore.testing.plugin", "-k", "test_a_crash_loses_no_record")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 record was committed in group g but not processed: jobs-0@1*"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("broker", Broker), ("kcore_node", VirtualNode), ("group", TestGroup), ("history", History)],
)
def test_the_guide_names_existing_methods(name: str, kind: type) -> None:
    documented = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:")[2]
    attributes = set(dir(kind)) | set(re.findall(r"^ {4}(\w+): ", documented, re.MULTILINE))
    names = set(re.findall(rf"(?<![.\w]){name}\.(\w+)", "\n".join([*FRAGMENTS, *re.findall(r"`([^`\n]+)`", GUIDE)])))
    assert names - attributes == set()
    assert names


def test_the_requests_of_the_guide_are_valid() -> None:
    commands = CURL.findall(GUIDE)
    assert len(commands) == GUIDE.count("$ curl ")
    for method, body, path in commands:
        found = [
            operation
            for operation in OPERATIONS
            if operation.method == (method or ("POST" if body else "GET"))
            and re.fullmatch(re.sub(r"\{\w+\}", r"[^/]+", operation.path), path)
        ]
        assert found, path
        check_object(found[0].body, json.loads(body or "{}"))
