"""What stands in for `kcore_ext` where it was never built: enough to read declarations, and nothing more.

Spark's executors may have no build. The declarations of `kcore.protocol` are importable there all the same, so that
what is on the wire is written down once: classes with their `FIELDS`, but without constructors and codec. Whoever has
the fields can read the bytes (`kcore.spark.decode.pure_record`).
"""

from __future__ import annotations

import codecs
from typing import Any, Final, NamedTuple, NoReturn

WIRE_KINDS: Final = {
    name: number
    for number, name in enumerate(
        (
            "bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid", "string", "bytes",
            "records", "struct", "array",
        ),
        start=1,
    )
}  # fmt: skip
"""The number of each wire type's name, as in `kcore_ext.codec.plan`."""

STRUCT: Final = WIRE_KINDS["struct"]
ARRAY: Final = WIRE_KINDS["array"]


class DecodeError(ValueError):
    """Bytes that are not what they should be; the twin of `kcore_ext.codec.plan.DecodeError`.

    Attributes:
        position: the offset in the buffer at which reading failed.
        reason: what was expected and what was found.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"at byte {self.position}: {self.reason}"


class EncodeError(ValueError):
    """A value that cannot be written. Nothing is written here; the name is for those who import it."""


class MessageTooLargeError(EncodeError):
    """A message that is larger than its writer allows; only importable here, like `EncodeError`."""


class FieldSpec(NamedTuple):
    """One declared field; see `kcore_ext.codec.plan.FieldSpec`."""

    name: str
    kind: int
    item: int
    struct: Any
    versions: tuple[int, int]
    nullable: tuple[int, int]
    tagged: tuple[int, int]
    tag: int
    ignorable: bool
    compact: bool
    default: Any
    fresh: bool


class Schema(NamedTuple):
    """The declared fields of one class."""

    cls: type
    fields: tuple[FieldSpec, ...]


class StructBase:
    """What every declared class inherits."""

    def __init__(self, **_: Any) -> None:
        _missing(type(self).__name__)


def _missing(what: str) -> NoReturn:
    raise ImportError(f"{what} cannot be made or read: kcore's compiled extension is not installed here")


def bind(cls: type, schema: Schema) -> None:
    """Connects a declared class with its schema: nothing to do where nothing is compiled."""


def encode_request(*_: Any) -> NoReturn:
    """Refuses: needs the compiled extension."""
    _missing("a request")


def encode_response(*_: Any) -> NoReturn:
    """Refuses: needs the compiled extension."""
    _missing("a response")


def as_java(error: UnicodeError) -> tuple[str, int]:
    """Java's replacement of bytes that are no UTF-8: one U+FFFD for an encoded surrogate, where Python makes three.

    An error handler for `codecs`, registered as `kcore.java`.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start = error.object, error.start
    following = data[start + 1 : start + 3]
    if data[start] == 0xED and len(following) == 2 and 0xA0 <= following[0] < 0xC0 and 0x80 <= following[1] < 0xC0:
        return "\ufffd", start + 3
    return "\ufffd", error.end


try:
    codecs.lookup_error("kcore.java")
except LookupError:
    codecs.register_error("kcore.java", as_java)
