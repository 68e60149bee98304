"""The declarative layer: one class per message for all of its versions.

A declaration is an annotated class body. The annotation is the wire type, the value is Kafka's default, and
``field(...)`` declares the version-dependent properties::

    class HeartbeatRequest(Request["HeartbeatResponse"], api_key=12, versions="0-4", flexible="4+"):
        group_id: String = ""
        generation_id: Int32 = 0
        member_id: String = ""
        group_instance_id: NullableString = field("3+", default=None)

This is the only place where fields are declared. Constructors, equality, repr, and the byte layout of each version are
derived from it. `kcore_ext.codec.frames` encodes and decodes the bytes; it compiles a plan per (class, version).
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

try:
    from kcore_ext.codec import frames
    from kcore_ext.codec.plan import ARRAY, STRUCT, WIRE_KINDS, FieldSpec, Schema
except ImportError:  # no build of the extension: declarations are still readable
    from kcore.protocol import pure as frames  # type: ignore[no-redef]
    from kcore.protocol.pure import ARRAY, STRUCT, WIRE_KINDS, FieldSpec, Schema  # type: ignore[assignment]

R = TypeVar("R", covariant=True)  # noqa: PLC0105 - the name is part of many signatures

MAX_VERSION: Final = 32767
"""Upper bound of a version range that is open at its end: versions are an int16 on the wire."""

Bool = Annotated[bool, "bool"]
Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
UInt16 = Annotated[int, "uint16"]
Int32 = Annotated[int, "int32"]
UInt32 = Annotated[int, "uint32"]
Int64 = Annotated[int, "int64"]
Float64 = Annotated[float, "float64"]
Uuid = Annotated[bytes, "uuid"]
String = Annotated[str, "string"]
NullableString = Annotated[str | None, "string"]
Bytes = Annotated[bytes, "bytes"]
NullableBytes = Annotated[bytes | None, "bytes"]
Records = Annotated[bytes, "records"]
NullableRecords = Annotated[bytes | None, "records"]
Array = Sequence
"""The type of arrays, `Array[T]`. The encoder accepts any sequence; the decoder returns tuples."""

ZERO_UUID: Final = bytes(16)
"""Sixteen zero bytes, with which Kafka represents a missing id."""

_SPAN = re.compile(r"(\d+)(?:(\+)|-(\d+))?")


class _Options:
    """The arguments of a `field(...)` call. `StructMeta` converts them to a `FieldSpec`."""

    __slots__ = ("compact", "default", "factory", "ignorable", "nullable", "tag", "tagged", "versions")

    def __init__(
        self,
        versions: str,
        default: Any,
        factory: Callable[[], Any] | None,
        nullable: str | None,
        tag: int | None,
        tagged: str | None,
        ignorable: bool,
        compact: bool,
    ) -> None:
        self.versions = versions
        self.default = default
        self.factory = factory
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged
        self.ignorable = ignorable
        self.compact = compact


_UNSET: Any = object()


def field(
    versions: str = "0+",
    *,
    default: Any = _UNSET,
    default_factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    compact: bool = True,
) -> Any:
    """Declares the version-dependent properties of a field.

    Args:
        versions: the versions that have the field: ``"3+"``, ``"0-7"`` or ``"2"``.
        default: Kafka's default. The field has this value if the constructor is called without the field. The field
            also has this value after decoding a version that lacks the field.
        default_factory: the class of the struct, for a field that contains a struct and whose default is not null.
        nullable: the versions that allow null; all versions of the field if the annotation allows None.
        tag: the number of a tagged field (KIP-482); None for a field in the fixed part.
        tagged: the versions in which the field is tagged; by default all versions of the field.
        ignorable: if a version lacks the field and the value is not the default: True to leave out the value, False to
            raise EncodeError.
        compact: False for the header's client id, the only string that keeps its two-byte length in flexible versions.
    """
    return _Options(versions, default, default_factory, nullable, tag, tagged, ignorable, compact)


@cache
def parse_span(text: str) -> tuple[int, int]:
    """Reads a version range.

    Args:
        text: ``"3+"``, ``"0-7"``, ``"2"``, or ``"none"`` for an empty range.

    Returns:
        The lowest and the highest version, both included; (MAX_VERSION + 1, -1) for ``"none"``.

    Raises:
        ValueError: the text is not a version range.
    """
    if text == "none":
        return MAX_VERSION + 1, -1
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a version range")
    low = int(match[1])
    high = MAX_VERSION if match[2] else int(match[3]) if match[3] else low
    if low > high:
        raise ValueError(f"{text!r} ends before it begins")
    return low, high


def _wire_type(annotation: Any) -> tuple[str, str | None, Any, bool]:
    """Returns (kind, kind of an array's elements, struct class, nullable) of an annotation."""
    if get_origin(annotation) in (Union, UnionType):
        inner = [arm for arm in get_args(annotation) if arm is not NoneType]
        if len(inner) != 1:
            raise TypeError(f"{annotation!r} is not a wire type")
        kind, item, struct, _ = _wire_type(inner[0])
        return kind, item, struct, True
    if get_origin(annotation) is Annotated:
        python_type, kind = get_args(annotation)
        return kind, None, None, NoneType in get_args(python_type)
    if get_origin(annotation) is Sequence:
        item, _, struct, _ = _wire_type(get_args(annotation)[0])
        return "array", item, struct, False
    if isinstance(annotation, StructMeta):
        return "struct", None, annotation, False
    raise TypeError(f"{annotation!r} is not a wire type")


_SCALARS: Final = {
    id(annotation): _wire_type(annotation)
    for annotation in (
        Bool, Int8, Int16, UInt16, Int32, UInt32, Int64, Float64, Uuid,
        String, NullableString, Bytes, NullableBytes, Records, NullableRecords,
    )
}  # fmt: skip
"""`id()` of a scalar type annotation -> its wire type. The table saves about a thousand calls of `_wire_type`."""


def _field_spec(owner: str, name: str, annotation: Any, value: Any) -> FieldSpec:
    """Validates one declaration and converts it to a `FieldSpec`."""
    options = value if isinstance(value, _Options) else _Options("0+", value, None, None, None, None, False, True)
    kind, item, struct, optional = _SCALARS.get(id(annotation)) or _wire_type(annotation)
    default = options.default
    if default is _UNSET:
        if options.factory is None:
            raise TypeError(f"{owner}.{name} has no default")
        if options.factory is not struct:
            raise TypeError(f"{owner}.{name}: default_factory must be the struct's own class")
    versions = parse_span(options.versions)
    nullable = parse_span(options.nullable or (options.versions if optional else "none"))
    if (options.nullable is not None and not optional) or (default is None and not optional):
        raise TypeError(f"{owner}.{name} may be null but its annotation does not say so")
    tagged = parse_span("none" if options.tag is None else options.tagged or options.versions)
    return FieldSpec(
        name,
        ARRAY if kind == "array" else STRUCT if kind == "struct" else WIRE_KINDS[kind],
        0 if item is None else STRUCT if item == "struct" else WIRE_KINDS[item],
        struct,
        versions,
        nullable,
        tagged,
        -1 if options.tag is None else options.tag,
        options.ignorable,
        options.compact,
        None if default is _UNSET else default,
        default is _UNSET,
    )


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructMeta(type):
    """The metaclass that turns a declaration into a class with slots and a schema."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> "StructMeta":
        """Removes the fields from the class body, creates slots for them, and registers them with the codec."""
        annotations = namespace.get("__annotations__", {})
        declared = {n: a for n, a in annotations.items() if id(a) in _SCALARS or get_origin(a) is not ClassVar}
        specs = tuple(_field_spec(name, n, a, namespace.pop(n, _UNSET)) for n, a in declared.items())
        if specs and any(getattr(base, "FIELDS", ()) for base in bases):
            raise TypeError(f"{name}: a declared message cannot be extended with more fields")
        if namespace.get("__slots__") is None:
            namespace["__slots__"] = tuple(declared)
        if specs:
            namespace["FIELDS"] = specs
        cls = super().__new__(mcs, name, bases, namespace, **options)
        frames.bind(cls, Schema(cls, cls.FIELDS))
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_options: Any) -> None:
        super().__init__(name, bases, namespace)

    if TYPE_CHECKING:
        FIELDS: tuple[FieldSpec, ...]


class Struct(frames.StructBase, metaclass=StructMeta):
    """A structure inside of messages: keyword-only constructor, equality by value, no instance dictionary.

    Values are str, int, bool, float, bytes, sequences, None, and structs. A uuid is a bytes object of length 16. Values
    are validated only when they are encoded. A field whose default is a struct receives a new struct at its first
    access, unless the constructor or the decoder has set it.
    """

    __slots__ = ()
    FIELDS: ClassVar[tuple[FieldSpec, ...]] = ()
    """The declared fields in wire order."""


class Message(Struct):
    """A request, a response, or any other top-level message that has its own versions."""

    __slots__ = ()
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_SINCE: ClassVar[int] = MAX_VERSION + 1
    """The first flexible version (KIP-482); `schema.MAX_VERSION` + 1 if the message has no flexible version."""

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: str | None = None, flexible: str = "none", **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        if versions is not None:
            cls.API_KEY = api_key
            cls.MIN_VERSION, cls.MAX_VERSION = parse_span(versions)
            cls.FLEXIBLE_SINCE = parse_span(flexible)[0]

    if TYPE_CHECKING:

        def encode(self, version: int) -> bytes:
            """Encodes the message in a version, without any header.

            Raises:
                EncodeError: the message does not have this version, a value does not fit its type, or a field that
                    the version lacks has a value other than its default and is not ignorable.
            """

        @classmethod
        def decode(
            cls, data: bytes | bytearray | memoryview, version: int, position: int = 0, max_elements: int = ...
        ) -> Self:
            """Decodes a message from `data`, beginning at `position`; ignores bytes after it.

            Raises:
                TooManyElementsError: the message has more than `max_elements` elements of arrays and tagged fields.
                DecodeError: the bytes are malformed, or the message does not have this version.
            """


class Request(Message, Generic[R]):
    """A request. The type argument is the response's class, from which type checkers infer the response's type."""

    __slots__ = ()


def check_request(request: Any) -> None:
    """Checks that an argument is a request message.

    Raises:
        TypeError: the argument has another type.
    """
    if not isinstance(request, Message) or not hasattr(request, "API_KEY"):
        actual = f"the class {request.__name__}" if isinstance(request, type) else type(request).__name__
        raise TypeError(f"expected a request message, got {actual}")
