"""Arrays as parameters: kcore's dumper of lists writes the same bytes as psycopg's own dumper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import AdaptersMap, PyFormat
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper

from kcore.cluster.postgresql.arrays import ListDumper
from kcore.cluster.postgresql.sessions import Sessions

LISTS = st.one_of(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1)),
    st.lists(st.binary(max_size=50)),
    st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=10)),
    st.lists(st.booleans()),
)


class Context:
    """A context for psycopg's dumpers, with the adapters of a session but without a connection."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        self.adapters.register_dumper(int, Int8BinaryDumper)


def written(dumper_class: Any, values: list[Any]) -> tuple[int, bytes]:
    """Returns the type id and the bytes that a dumper makes from a list."""
    chosen = dumper_class(list, Context()).upgrade(values, PyFormat.BINARY)
    return chosen.oid, bytes(chosen.dump(values))


@given(LISTS)
def test_lists_are_written_as_psycopg_writes_them(values: list[Any]) -> None:
    assert written(ListDumper, values) == written(ListBinaryDumper, values)


@pytest.fixture
def sessions(url: str) -> Iterator[Sessions]:
    sessions = Sessions(url)
    yield sessions
    sessions.close()


def test_a_server_reads_lists_of_each_type_in_turns_and_empty_ones(sessions: Sessions) -> None:
    session = sessions.connect("reader", check_schema=False)
    for _ in range(8):  # statements are prepared
        for numbers, values, texts in (
            ([1, -(1 << 63), (1 << 63) - 1], [b"", b"\0\xff" * 300_000], ["a", "\u00e9"]),
            ([], [], []),
            ([7], [b"x"], [""]),
        ):
            found = session.execute("SELECT %b::bigint[], %b::bytea[], %b::text[]", (numbers, values, texts))
            assert found.fetchone() == (numbers, values, texts)
