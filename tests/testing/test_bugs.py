"""Each buggy program fails its test because of its bug, and the fixed program passes the same test."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import examples.bugs
from kcore.testing import Broker

NAMES = sorted(module.name for module in pkgutil.iter_modules(examples.bugs.__path__) if module.name != "common")


def _module(name: str) -> ModuleType:
    return import_module(f"examples.bugs.{name}")


def _broker(module: ModuleType) -> Broker:
    return Broker(topics={"jobs": getattr(module, "PARTITIONS", 1)})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", NAMES)
def test_the_test_fails_because_of_the_bug(name: str) -> None:
    module = _module(name)
    with _broker(module) as broker, pytest.raises(BaseException, match=module.SYMPTOM):
        module.check(broker, module.buggy)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", NAMES)
def test_the_fixed_program_passes(name: str) -> None:
    module = _module(name)
    with _broker(module) as broker:
        module.check(broker, module.fixed)


def test_there_are_fifteen_bugs_or_more() -> None:
    assert len(NAMES) >= 15


def test_the_guide_lists_every_bug() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "testing-kafka-code.md").read_text()
    assert re.findall(r"^\| \[(\w+)\]\(\.\./examples/bugs/\1\.py\)", guide, re.MULTILINE) != []
    assert sorted(re.findall(r"^\| \[(\w+)\]\(\.\./examples/bugs/\1\.py\)", guide, re.MULTILINE)) == NAMES
