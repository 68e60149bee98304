"""The result types of the API: a program can use them in annotations, such as `kcore.GroupDescription`."""

from __future__ import annotations

import builtins
import collections.abc
import datetime
import inspect
import re
import typing
from collections.abc import Iterator

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
