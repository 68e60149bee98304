"""Queries of the console, and searches and pages of names in slices."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from heapq import merge
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from kcore.errors import KcoreError

PAGE_ROWS: Final = 50
"""Number of rows on a page of a list."""

MAX_SHOWN: Final = 256
"""Maximum number of characters of a name that the console shows. Clients choose names of up to 32,767 characters."""

MAX_FIELDS: Final = 8
"""Maximum number of fields in the query of a URL."""

SLICE_NAMES: Final = 2_000
"""Number of names that one slice examines."""

SLICE_CHARACTERS: Final = 2_000_000
"""Number of characters of names that one slice examines."""

SLICE_OFFSETS: Final = 2_000
"""Number of offsets of a group, or of assigned partitions, that one slice examines."""

Steps = Generator[None, None, Any]
"""Type of a generator that does its work in slices, and returns the result at the end."""


class BadQueryError(KcoreError):
    """A query of the console that is not valid."""


class Query:
    """The fields of a query.

    Args:
        text: the part of the request target after the question mark.

    Raises:
        BadQueryError: there are too many fields, or the text is not UTF-8.
    """

    __slots__ = ("_fields",)

    def __init__(self, text: str = "") -> None:
        try:
            fields = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
        except ValueError as error:
            raise BadQueryError("the query is not valid") from error
        self._fields = dict(fields)

    def text(self, name: str) -> str:
        """Returns a field; "" if it is missing."""
        return self._fields.get(name, "")

    def page(self, name: str = "page") -> int:
        """Returns the number of a page, from 1 on; 1 if the field is missing.

        Raises:
            BadQueryError: the field is not a number.
        """
        text = self._fields.get(name, "1")
        if not (text.isascii() and text.isdigit() and len(text) <= 9):
            raise BadQueryError(f"{name} is not a number")
        return max(1, int(text))


class Page(NamedTuple):
    """The position of a page in a list.

    Attributes:
        total: number of rows in the list.
        number: number of the page, at most `pages`.
        pages: number of pages, at least 1.
    """

    total: int
    number: int
    pages: int

    @property
    def first(self) -> int:
        """Index of the page's first row."""
        return (self.number - 1) * PAGE_ROWS

    def document(self, rows: list[Any]) -> dict[str, Any]:
        """Returns the page with its rows as a document."""
        return {"total": self.total, "page": self.number, "pages": self.pages, "rows": rows}


def page_of(total: int, number: int) -> Page:
    """Returns the page with this number, or the last page if there are fewer."""
    pages = max(1, -(-total // PAGE_ROWS))
    return Page(total, min(number, pages), pages)


def batches(names: Iterable[str]) -> Iterator[list[str]]:
    """Yields names in batches that fit into a slice."""
    names = list(names)
    for first in range(0, len(names), SLICE_NAMES):
        batch = names[first : first + SLICE_NAMES]
        characters = sum(map(len, batch))
        if characters <= SLICE_CHARACTERS:
            yield batch
            continue
        count = max(1, SLICE_CHARACTERS * len(batch) // characters)
        for start in range(0, len(batch), count):
            yield batch[start : start + count]


def find(names: Iterable[list[str]], keep: Callable[[str], bool], number: int) -> Steps:
    """Finds the names on one page of a list: the names that `keep` accepts, in alphabetical order.

    Args:
        names: the names, in batches.
        keep: returns True if a name belongs to the list.
        number: the number of the page.

    Returns:
        The page, and its names.
    """
    runs = []
    for batch in names:
        runs.append(sorted(filter(keep, batch)))
        yield
    page = page_of(sum(map(len, runs)), number)
    chosen = []
    characters = 0
    for index, name in enumerate(merge(*runs)):
        if index >= page.first + PAGE_ROWS:
            break
        if index >= page.first:
            chosen.append(name)
        characters += len(name)
        if index % SLICE_NAMES == SLICE_NAMES - 1 or characters > SLICE_CHARACTERS:
            characters = 0
            yield
    return page, chosen


def contains(search: str) -> Callable[[str], bool]:
    """Returns a function that tests if a name contains a text, without regard to case."""
    if not search:
        return lambda name: True
    part = search.lower()
    return lambda name: part in name.lower()


def name_fields(name: str) -> dict[str, Any]:
    """Returns the fields of a row that describe a name which a client chose.

    `id` is the displayed text. `whole` is True if this text is the complete name.
    """
    return {"id": shown(name), "whole": len(name) <= MAX_SHOWN}


def shown(text: str | None) -> str:
    """Returns a text from a client, cut to `MAX_SHOWN` characters; "" for None."""
    if text is None:
        return ""
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
