"""The result types of the API: a program can use them in annotations, such as `kcore.GroupDescription`."""

from __future__ import annotations

import builtins
import collections.abc
import datetime
import importlib
import inspect
import re
import typing
from collections.abc import Callable, Iterator

import pytest

import kcore

STANDARD = {name for module in (builtins, collections.abc, datetime, typing) for name in dir(module)}
ELSEWHERE = {
    "EmbeddedNode": {"EmbeddedSend", "Pending"},
    "AsyncEmbeddedNode": {"AsyncEmbeddedSend"},
    "KafkaError": {"ErrorCode"},
}
"""Class -> result types that are not in the module `kcore`. They belong to requests and responses of the protocol."""


def results(cls: type) -> Iterator[tuple[str, str]]:
    """Yields (name, return annotation) of each public method and property, and (name, annotation) of each field."""
    for name, member in inspect.getmembers(cls):
        function = member.fget if isinstance(member, property) else member
        if inspect.isfunction(function) and (not name.startswith("_") or name in ("__getitem__", "__iter__")):
            yield name, str(function.__annotations__.get("return"))
    for name, annotation in inspect.get_annotations(cls).items():
        if not name.startswith("_"):
            yield name, str(annotation)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in kcore.__all__
        if inspect.isclass(getattr(kcore, name)) and not name.endswith(("Engine", "Config"))
    ],
)
def test_every_result_of_a_public_class_is_a_name_of_kcore(name: str) -> None:
    private = {
        f"{attribute} -> {annotation}"
        for attribute, annotation in results(getattr(kcore, name))
        for part in re.findall(r"\b[A-Z]\w+", annotation)
        if part not in STANDARD and part not in kcore.__all__ and part not in ELSEWHERE.get(name, ())
    }
    assert private == set()


def callables(module: str) -> Iterator[tuple[str, Callable[..., object]]]:
    """Yields the names and objects of the public functions, classes, methods and properties of a module."""
    names = importlib.import_module(module)
    for name in getattr(names, "__all__", None) or [each for each in dir(names) if not each.startswith("_")]:
        public = getattr(names, name)
        if inspect.isfunction(public):
            yield f"{module}.{name}", public
        elif inspect.isclass(public) and public.__module__.startswith("kcore"):
            yield f"{module}.{name}", public
            for attribute, member in inspect.getmembers(public):
                method = member.fget if isinstance(member, property) else getattr(member, "func", member)
                method = inspect.unwrap(getattr(method, "__func__", method))
                special = attribute in ("__init__", "__call__", "__getitem__", "__iter__", "__enter__", "__aenter__")
                if inspect.isfunction(method) and (special or not attribute.startswith("_")):
                    yield f"{module}.{name}.{attribute}", method


@pytest.mark.parametrize(
    "module",
    ["kcore", "kcore.assignors", "kcore.client", "kcore.errors", "kcore.inspect", "kcore.testing"],
)
def test_the_annotations_of_every_public_callable_resolve(module: str) -> None:
    """Programs that create parsers or validators from annotations call `typing.get_type_hints`."""
    unresolved = {}
    for name, public in callables(module):
        try:
            typing.get_type_hints(public)
        except NameError as error:
            unresolved[name] = error.name
    assert unresolved == {}


def test_the_annotations_of_open_resolve_without_other_imports() -> None:
    assert typing.get_type_hints(kcore.open)["return"] == kcore.EmbeddedNode | kcore.ClusteredNode
    assert typing.get_type_hints(kcore.Node.topics.func)["return"] is kcore.Topics  # type: ignore[attr-defined]
