"""Random records of every type and version, intact and damaged, and the results of the engine's own codec."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kcore.protocol import DecodeError
from kcore.protocol.records import RecordKey, UnknownRecord, decode_key
from kcore.protocol.schema import ARRAY, STRUCT, WIRE_KINDS, Struct
from kcore.spark.decode.record_types import TOPICS, name_of, record_types

Record = tuple[str | None, bytes | None, bytes | None]
"""An encoded record: (topic, key, value)."""

_INTEGERS = {
    "int8": (True, 8),
    "int16": (True, 16),
    "uint16": (False, 16),
    "int32": (True, 32),
    "uint32": (False, 32),
    "int64": (True, 64),
}
_TEXT = st.one_of(
    st.sampled_from(["", "orders", "größe", "\0", "🦀" * 3]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
)
_NAMES = {number: name for name, number in WIRE_KINDS.items()}


def _leaf(kind: int) -> st.SearchStrategy[Any]:
    name = _NAMES[kind]
    if name in _INTEGERS:
        signed, bits = _INTEGERS[name]
        low = -(1 << bits - 1) if signed else 0
        return st.integers(low, low + (1 << bits) - 1)
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": _TEXT,
        "bytes": st.binary(max_size=40),
        "records": st.binary(max_size=40),
    }[name]


def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Returns objects of a class with random values in all or some fields of a version."""
    fields = {}
    for spec in cls.FIELDS:
        if not spec.versions[0] <= version <= spec.versions[1]:
            continue
        if spec.kind == ARRAY:
            item = structs(spec.struct, version) if spec.item == STRUCT else _leaf(spec.item)
            one: st.SearchStrategy[Any] = st.lists(item, max_size=3).map(tuple)
        else:
            one = structs(spec.struct, version) if spec.kind == STRUCT else _leaf(spec.kind)
        if spec.nullable[0] <= version <= spec.nullable[1]:
            one = st.none() | one
        fields[spec.name] = one
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: cls(**values))


@st.composite
def whole_records(draw: st.DrawFn, cls: type[RecordKey]) -> Record:
    """Returns a record of a type, encoded as the coordinator encodes it."""
    version = draw(st.integers(cls.VALUE.MIN_VERSION, cls.VALUE.MAX_VERSION))
    key = draw(structs(cls, 0)).encode_key()
    return cls.TOPIC, key, draw(st.none() | structs(cls.VALUE, version).map(lambda value: value.encode_value(version)))


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Returns bytes that are truncated, extended, changed, or unchanged."""
    what = draw(st.sampled_from(["whole", "cut", "more", "changed", "tags", "version"]))
    if what == "cut":
        return data[: draw(st.integers(0, len(data)))]
    if what == "more":
        return data + draw(st.binary(min_size=1, max_size=5))
    if what == "tags":  # the position of a tag section at the end, with known or unknown tags
        number, inner = draw(st.integers(0, 5)), draw(st.binary(max_size=12))
        return data[:-1] + draw(st.sampled_from([1, 2])).to_bytes() + bytes([number, len(inner)]) + inner + bytes(2)
    if what == "version":
        return draw(st.integers(-3, 7)).to_bytes(2, "big", signed=True) + data[2:]
    if what == "changed" and data:
        changed = bytearray(data)
        for _ in range(draw(st.integers(1, 3))):
            changed[draw(st.integers(0, len(data) - 1))] = draw(
                st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xC3, 0xED, 0xFF])
            )
        return bytes(changed)
    return data


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Returns a record of any type, possibly damaged, or random bytes."""
    if draw(st.integers(0, 9)) == 0:
        noise = st.none() | st.binary(max_size=30)
        return draw(st.sampled_from([*TOPICS, "orders", None])), draw(noise), draw(noise)
    topic, key, value = draw(st.sampled_from(list(record_types().values())).flatmap(whole_records))
    if draw(st.integers(0, 4)) == 0:
        key = draw(damaged(key or b""))
    return topic, key, None if value is None else draw(damaged(value))


def by_codec(topic: str | None, key: bytes | None, value: bytes | None) -> tuple[tuple[Any, ...], Any]:
    """Decodes a record by the engine's codec. Returns (status, detail, type, name, version), and the fields."""
    if topic not in TOPICS:
        return ("other_topic", None, None, None, None), None
    if key is None:
        return ("malformed", "a record without a key", None, None, None), None
    version = None if value is None or len(value) < 2 else int.from_bytes(value[:2], "big", signed=True)
    record_type = int.from_bytes(key[:2], "big", signed=True) if len(key) >= 2 else None
    try:
        typed = decode_key(topic, key)
    except DecodeError as error:
        return ("malformed", f"key: {error}", record_type, None, version), None
    if isinstance(typed, UnknownRecord):
        return ("unknown_type", None, record_type, None, version), None
    name = name_of(type(typed))
    body = {"key": to_builtins(typed), "value": None}
    if value is None:
        return ("tombstone", None, record_type, name, None), body
    try:
        body["value"] = to_builtins(typed.VALUE.decode_value(value))
    except DecodeError as error:
        known = version is None or typed.VALUE.MIN_VERSION <= version <= typed.VALUE.MAX_VERSION
        return ("malformed" if known else "unknown_version", f"value: {error}", record_type, name, version), body
    return ("ok", None, record_type, name, version), body


def to_builtins(value: Any) -> Any:
    """Converts a struct to dicts and lists; bytes stay bytes."""
    if isinstance(value, Struct):
        return {spec.name: to_builtins(getattr(value, spec.name)) for spec in type(value).FIELDS}
    if isinstance(value, list | tuple):
        return [to_builtins(item) for item in value]
    return value
