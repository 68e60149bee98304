"""A replacement of `kcore_ext` for installations without the compiled extension.

Spark's executors may lack the extension. With this module, they can still import the declarations of `kcore.protocol`,
so that the wire format is declared only once. The classes then have their `FIELDS`, but no constructors and no codec.
`kcore.spark.decode.pure_record` decodes bytes by these fields.
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
"""Name of a wire type -> its number, as in the constant of the same name in `kcore_ext.codec.plan`."""

STRUCT: Final = WIRE_KINDS["struct"]
ARRAY: Final = WIRE_KINDS["array"]


class DecodeError(ValueError):
    """Malformed bytes; the counterpart of `kcore_ext.codec.plan.DecodeError`.

    Attributes:
        position: the offset in the buffer at which decoding failed.
        reason: a text that describes the expected and the actual bytes.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"at byte {self.position}: {self.reason}"


class EncodeError(ValueError):
    """A value that cannot be encoded. This module never raises the error; other modules import its name."""


class MessageTooLargeError(EncodeError):
    """A message above its size limit. This module never raises the error; other modules import its name."""


class FieldSpec(NamedTuple):
    """One declared field, with the attributes of `kcore_ext.codec.plan.FieldSpec`."""

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
    """The base of every declared class."""

    def __init__(self, **_: Any) -> None:
        _missing(type(self).__name__)


def _missing(what: str) -> NoReturn:
    raise ImportError(f"{what} can be neither created nor decoded: kcore's compiled extension is not installed here")


def bind(cls: type, schema: Schema) -> None:
    """Does nothing: without the extension no schema has to be compiled."""


def encode_request(*_: Any) -> NoReturn:
    """Raises ImportError, because the encoder is part of the compiled extension."""
    _missing("a request")


def encode_response(*_: Any) -> NoReturn:
    """Raises ImportError, because the encoder is part of the compiled extension."""
    _missing("a response")


def as_java(error: UnicodeError) -> tuple[str, int]:
    """Replaces bytes that are not valid UTF-8 with U+FFFD, as Java does.

    Java replaces the three bytes of an encoded surrogate with a single U+FFFD; Python's handler "replace" makes three.
    The module registers this function as the error handler `kcore.java` of `codecs`.
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
