"""A compiled base class calls methods of its subclass only if they are abstract methods in its `.pyi` file."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.rules import ROOT, text_of, tracked_files

CALL = re.compile(r"\bself\.(\w+)\(")
DEFINITION = re.compile(r"\b(?:def|cdef|cpdef)\s+(?:[\w\[\]., *]+\s)?\*?(\w+)\s*\(")
FIELDS = re.compile(r"^\s+cdef\s+([^(#\n]+)(?:#.*)?$", re.MULTILINE)
STUBS = [path for path in tracked_files(".pyi") if path.is_relative_to(ROOT / "kcore_ext")]


@cache
def defined_names() -> frozenset[str]:
    """Returns the names of all methods and fields of compiled classes."""
    names: set[str] = set()
    for path in tracked_files(".pyx", ".pxd"):
        text = text_of(path)
        names.update(DEFINITION.findall(text))
        names.update(name for fields in FIELDS.findall(text) for name in re.findall(r"\w+", fields))
    return frozenset(names)


def abstract_names(stub: Path) -> set[str]:
    """Returns the names of the abstract methods of a `.pyi` file."""
    return {
        node.name
        for node in ast.walk(ast.parse(text_of(stub)))
        if isinstance(node, ast.FunctionDef) and "abstractmethod" in map(ast.unparse, node.decorator_list)
    }


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_calls_of_a_subclass_are_declared_as_abstract_methods(stub: Path) -> None:
    source = stub.with_suffix(".pyx")
    text = text_of(source) if source.exists() else ""
    declared = abstract_names(stub)
    called = set(CALL.findall(text)) - defined_names()
    assert called <= declared
    assert {name for name in declared if not re.search(rf"\.{name}\b", text)} == set()
