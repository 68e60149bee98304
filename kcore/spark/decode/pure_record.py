"""Decodes records of internal topics in pure Python, on Spark executors that lack the compiled codec.

`kcore.protocol.records` has the schemas. Errors for malformed bytes have the texts of the compiled codec. This module
builds a function `read(data, at, end) -> (value, at)` for each class and version. The value of a struct is a dict by
field name. One call of `struct.unpack_from` reads consecutive fixed-size numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kcore.protocol import DecodeError
from kcore.protocol.pure import ARRAY, STRUCT, WIRE_KINDS
from kcore.protocol.records import RecordKey, RecordValue, key_classes
from kcore.protocol.schema import Struct
from kcore.spark.decode.record_types import NO_KEY, TOPICS, name_of

Head = tuple[str, str | None, int | None, str | None, int | None]
"""The first columns of a decoded row: status, detail, number and name of the record type, version of the value."""

Read = Callable[[bytes, int, int], tuple[Any, int]]
Fields = dict[str, Any]

LONGEST_STRING: Final = 0x7FFF
_FORMATS: Final = {
    WIRE_KINDS[name]: struct.Struct(f">{form}")
    for name, form in {
        "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
        "float64": "d", "uuid": "16s",
    }.items()
}  # fmt: skip
_STRING: Final = WIRE_KINDS["string"]


def decode_record(topic: str | None, key: bytes | None, value: bytes | None) -> tuple[Head, Fields | None]:
    """Decodes one record to its head and the fields of key and value; the fields are None if the key is unreadable."""
    if topic not in TOPICS:
        return ("other_topic", None, None, None, None), None
    if key is None:
        return ("malformed", NO_KEY, None, None, None), None
    version = None if value is None or len(value) < 2 else int.from_bytes(value[:2], "big", signed=True)
    if len(key) < 2:
        return ("unknown_type", None, None, None, version), None
    record_type = int.from_bytes(key[:2], "big", signed=True)
    cls = key_classes(topic).get(record_type)
    if cls is None:
        return ("unknown_type", None, record_type, None, version), None
    try:
        fields = {"key": read_key(cls, key), "value": None}
    except DecodeError as error:
        return ("malformed", f"key: {error}", record_type, None, version), None
    name = name_of(cls)
    if value is None:
        return ("tombstone", None, record_type, name, None), fields
    try:
        fields["value"] = read_value(cls.VALUE, value)
    except DecodeError as error:
        is_known = version is None or cls.VALUE.MIN_VERSION <= version <= cls.VALUE.MAX_VERSION
        return ("malformed" if is_known else "unknown_version", f"value: {error}", record_type, name, version), fields
    return ("ok", None, record_type, name, version), fields


def read_key(cls: type[RecordKey], data: bytes) -> Fields:
    """Decodes a key whose record type matches `cls`. Raises DecodeError for malformed bytes."""
    fields: Fields = _reader(cls, 0, cls.FLEXIBLE_SINCE <= 0)(data, 2, len(data))[0]
    return fields


def read_value(cls: type[RecordValue], data: bytes) -> Fields:
    """Decodes a value of any version, as `RecordValue.decode_value` does. Raises DecodeError for malformed bytes."""
    if len(data) < 2:
        raise DecodeError(0, f"a value's version needs 2 bytes, found {len(data)}")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version > cls.MAX_VERSION >= cls.FLEXIBLE_SINCE:
        version = cls.MAX_VERSION
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        reason = f"unknown version {version}; valid: {cls.MIN_VERSION} to {cls.MAX_VERSION}"
        raise DecodeError(0, f"{cls.__name__}: {reason}")
    fields: Fields = _reader(cls, version, version >= cls.FLEXIBLE_SINCE)(data, 2, len(data))[0]
    return fields


# ---- errors, with the texts of the compiled codec


def _short(at: int, end: int, size: int) -> DecodeError:
    return DecodeError(at, f"a value needs more bytes than are left: {size}; bytes left: {end - at}")


def _uvarint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Reads an unsigned varint of at most five bytes. Bits above the 32nd are dropped, as in Kafka."""
    result = 0
    for shift in range(0, 35, 7):
        if at >= end:
            raise DecodeError(at, "the bytes end inside of a varint")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFF, at
    raise DecodeError(at, "a varint is longer than five bytes")


# ---- functions that read


def _length_reader(compact: bool, size: int, nullable: bool) -> Callable[[bytes, int, int], tuple[int, int]]:
    """Returns a reader of a length or count.

    The number is a varint if `compact` is True, and otherwise has `size` bytes. The reader returns -1 for null if
    `nullable` is True.
    """

    def read(data: bytes, at: int, end: int) -> tuple[int, int]:
        if compact:
            if at < end and data[at] < 0x80:
                length, at = data[at] - 1, at + 1
            else:
                length, at = _uvarint(data, at, end)
                length -= 1
        else:
            if end - at < size:
                raise _short(at, end, size)
            length, at = int.from_bytes(data[at : at + size], "big", signed=True), at + size
        if length >= 0:
            return length, at
        if nullable:
            return -1, at
        raise DecodeError(at, "null where null is not allowed")

    return read


def _string_reader(compact: bool, nullable: bool) -> Read:
    length_of = _length_reader(compact, 2, nullable)

    def read(data: bytes, at: int, end: int) -> tuple[Any, int]:
        length, at = length_of(data, at, end)
        if length < 0:
            return None, at
        if length > LONGEST_STRING:
            raise DecodeError(at, f"a string is longer than 32767 bytes: {length}; bytes left: {end - at}")
        if length > end - at:
            raise _short(at, end, length)
        return data[at : at + length].decode("utf-8", "kcore.java"), at + length

    return read


def _bytes_reader(compact: bool, nullable: bool) -> Read:
    length_of = _length_reader(compact, 4, nullable)

    def read(data: bytes, at: int, end: int) -> tuple[Any, int]:
        length, at = length_of(data, at, end)
        if length < 0:
            return None, at
        if length > end - at:
            raise _short(at, end, length)
        return data[at : at + length], at + length

    return read


def _fixed_reader(kind: int) -> Read:
    size, unpack = _FORMATS[kind].size, _FORMATS[kind].unpack_from

    def read(data: bytes, at: int, end: int) -> tuple[Any, int]:
        if end - at < size:
            raise _short(at, end, size)
        return unpack(data, at)[0], at + size

    return read


def _item_reader(kind: int, compact: bool, nullable: bool) -> Read:
    """Returns a reader of a value that is neither a struct nor an array."""
    if kind in _FORMATS:
        return _fixed_reader(kind)
    return _string_reader(compact, nullable) if kind == _STRING else _bytes_reader(compact, nullable)


def _array_reader(item: Read, min_size: int, compact: bool, nullable: bool) -> Read:
    length_of = _length_reader(compact, 4, nullable)

    def read(data: bytes, at: int, end: int) -> tuple[Any, int]:
        count, at = length_of(data, at, end)
        if count < 0:
            return None, at
        if count > (end - at) // min_size:
            raise DecodeError(
                at, f"an array has more elements than bytes are left for: {count}; bytes left: {end - at}"
            )
        items = []
        for _ in range(count):
            value, at = item(data, at, end)
            items.append(value)
        return items, at

    return read


def _nullable_struct_reader(inner: Read, tagged: bool) -> Read:
    def read(data: bytes, at: int, end: int) -> tuple[Any, int]:
        if tagged:
            present, at = _uvarint(data, at, end)
        else:
            if at >= end:
                raise _short(at, end, 1)
            present, at = int(data[at] < 0x80), at + 1
        return inner(data, at, end) if present else (None, at)

    return read


def _field_reader(spec: Any, version: int, flexible: bool) -> tuple[Read, int]:
    """Returns a field's reader, and the minimum size of the field in bytes."""
    compact = flexible and spec.compact
    nullable = _within(spec.nullable, version)
    if spec.kind == STRUCT:
        inner, min_size = _reader(spec.struct, version, flexible), _min_size(spec.struct, version, flexible)
        if not nullable:
            return inner, min_size
        return _nullable_struct_reader(inner, _is_tagged(spec, version, flexible)), 1
    if spec.kind == ARRAY:
        if spec.item == STRUCT:
            item, min_size = _reader(spec.struct, version, flexible), _min_size(spec.struct, version, flexible)
        else:
            item, min_size = _item_reader(spec.item, compact, False), _item_min_size(spec.item, compact)
        return _array_reader(item, max(1, min_size), compact, nullable), 1 if compact else 4
    return _item_reader(spec.kind, compact, nullable), _item_min_size(spec.kind, compact)


def _item_min_size(kind: int, compact: bool) -> int:
    if kind in _FORMATS:
        return _FORMATS[kind].size
    return 1 if compact else 2 if kind == _STRING else 4


def _within(span: tuple[int, int], version: int) -> bool:
    return span[0] <= version <= span[1]


def _is_tagged(spec: Any, version: int, flexible: bool) -> bool:
    return flexible and _within(spec.tagged, version)


@cache
def _min_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """Returns the minimum size of a struct in bytes."""
    fixed = [s for s in cls.FIELDS if _within(s.versions, version) and not _is_tagged(s, version, flexible)]
    return flexible + sum(_field_reader(spec, version, flexible)[1] for spec in fixed)


def default_of(spec: Any) -> Any:
    """Returns the default of a field as a Python value, for records that do not contain the field."""
    if spec.fresh:
        return {inner.name: default_of(inner) for inner in spec.struct.FIELDS}
    return list(spec.default) if isinstance(spec.default, tuple | list) else spec.default


@cache
def _reader(cls: type[Struct], version: int, flexible: bool) -> Read:
    """Returns the reader of a struct in a version."""
    steps: list[tuple[str, Read]] = []
    tags: dict[int, tuple[str, Read]] = {}
    runs: list[_Run | tuple[str, Read]] = []
    defaults: Fields = {}
    for spec in cls.FIELDS:
        if not _within(spec.versions, version):
            defaults[spec.name] = default_of(spec)
            continue
        step = (spec.name, _field_reader(spec, version, flexible)[0])
        if _is_tagged(spec, version, flexible):
            defaults[spec.name] = default_of(spec)
            tags[spec.tag] = step
            continue
        steps.append(step)
        if spec.kind not in _FORMATS:
            runs.append(step)
        elif runs and isinstance(runs[-1], _Run):
            runs[-1].add(spec, step[1])
        else:
            runs.append(_Run(spec, step[1]))
    return _struct_reader([run.read if isinstance(run, _Run) else _one(*run) for run in runs], defaults, flexible, tags)


Step = Callable[[bytes, int, int, Fields], int]


def _one(name: str, read: Read) -> Step:
    """Returns a function (`Step`) that reads one field and stores its value in the dict of a struct."""

    def step(data: bytes, at: int, end: int, fields: Fields) -> int:
        fields[name], at = read(data, at, end)
        return at

    return step


class _Run:
    """Adjacent numeric fields of a struct, decoded with one `struct.unpack_from`."""

    def __init__(self, spec: Any, read: Read) -> None:
        self._names = [spec.name]
        self._singles = [(spec.name, read)]
        self._format = _FORMATS[spec.kind]

    def add(self, spec: Any, read: Read) -> None:
        """Appends a number to the run."""
        self._names.append(spec.name)
        self._singles.append((spec.name, read))
        self._format = struct.Struct(self._format.format + _FORMATS[spec.kind].format[1:])

    def read(self, data: bytes, at: int, end: int, fields: Fields) -> int:
        """Reads all numbers into a struct.

        If bytes are missing, reads the numbers one by one, to find the position of the error.
        """
        size = self._format.size
        if end - at < size:
            for name, read in self._singles:
                fields[name], at = read(data, at, end)
            return at
        fields.update(zip(self._names, self._format.unpack_from(data, at), strict=True))
        return at + size


def _struct_reader(steps: list[Step], defaults: Fields, flexible: bool, tags: dict[int, tuple[str, Read]]) -> Read:
    def read(data: bytes, at: int, end: int) -> tuple[Any, int]:
        fields = defaults.copy()
        for step in steps:
            at = step(data, at, end, fields)
        if flexible:
            if at < end and data[at] == 0:
                at += 1
            else:
                at = _read_tags(data, at, end, fields, tags)
        return fields, at

    return read


def _read_tags(data: bytes, at: int, end: int, fields: Fields, tags: dict[int, tuple[str, Read]]) -> int:
    """Reads a tag section. Skips unknown fields (KIP-482). If a tag occurs twice, its last value counts."""
    count, at = _uvarint(data, at, end)
    if count > (end - at) // 2:
        raise DecodeError(at, f"a tag section has more fields than bytes are left for: {count}; bytes left: {end - at}")
    for _ in range(count):
        tag, at = _uvarint(data, at, end)
        size, at = _uvarint(data, at, end)
        if size > end - at:
            raise DecodeError(at, f"a tagged field needs more bytes than are left: {size}; bytes left: {end - at}")
        known = tags.get(tag)
        if known is not None:
            fields[known[0]], _ = known[1](data, at, at + size)
        at += size
    return at
