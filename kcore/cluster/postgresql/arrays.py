"""The binary form of array parameters.

psycopg's own dumper of lists visits each element several times, in Python. A write transaction has seven arrays.
psycopg's dumper would take a seventh of the CPU time of a small transaction, and a quarter of the CPU time of a large
transaction.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from psycopg.adapt import Dumper, PyFormat
from psycopg.pq import Format
from psycopg.types.array import ListBinaryDumper

if TYPE_CHECKING:
    from psycopg.abc import AdaptContext, Buffer, DumperKey

INT8: Final = 20
"""The type number of `bigint` in PostgreSQL's catalog."""
INT8_ARRAY: Final = 1016
BYTEA: Final = 17
BYTEA_ARRAY: Final = 1001
_HEAD: Final = struct.Struct("!5I")
"""Header of an array in PostgreSQL's binary format.

Fields: number of dimensions, flag for NULLs, type of the elements, length and first index of the only dimension.
"""
_pack_head: Final = _HEAD.pack
_pack_length: Final = struct.Struct("!I").pack


def encode_integers(values: list[int]) -> bytes:
    """Returns the binary form of a `bigint[]`."""
    count = len(values)
    fields = [8] * (2 * count)
    fields[1::2] = values
    return _pack_head(1, 0, INT8, count, 1) + struct.pack("!" + "iq" * count, *fields)


def encode_byte_strings(values: list[bytes]) -> bytes:
    """Returns the binary form of a `bytea[]`."""
    parts = [_pack_head(1, 0, BYTEA, len(values), 1)]
    for value in values:
        parts.append(_pack_length(len(value)))
        parts.append(value)
    return b"".join(parts)


class _IntegersDumper(Dumper):
    """The dumper of lists of Python integers as `bigint[]`."""

    format = Format.BINARY
    oid = INT8_ARRAY

    def dump(self, obj: list[int]) -> Buffer:
        return encode_integers(obj)


class _BytesDumper(Dumper):
    """The dumper of lists of byte strings as `bytea[]`."""

    format = Format.BINARY
    oid = BYTEA_ARRAY

    def dump(self, obj: list[bytes]) -> Buffer:
        return encode_byte_strings(obj)


class ListDumper(Dumper):
    """The dumper of lists whose elements have one type: integers, byte strings, or any type that psycopg can dump.

    The first element determines the type, so a list of integers must not contain None. An empty list has no type.
    """

    format = Format.BINARY

    def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self._context = context

    def get_key(self, obj: list[Any], format: PyFormat) -> DumperKey:
        """Returns the key under which psycopg caches the dumper of the list."""
        return (list, type(obj[0]) if obj else type(None))

    def upgrade(self, obj: list[Any], format: PyFormat) -> Dumper:
        """Returns the dumper for lists whose elements have the type of the first element of `obj`."""
        first = type(obj[0]) if obj else None
        if first is int:
            return _IntegersDumper(list, self._context)
        if first is bytes:
            return _BytesDumper(list, self._context)
        return ListBinaryDumper(list, self._context).upgrade(obj, format)

    def dump(self, obj: list[Any]) -> Buffer:
        """Raises AssertionError, because psycopg calls `dump` only on the dumper that `upgrade` has returned."""
        raise AssertionError("psycopg calls `upgrade` for the dumper of each list")
