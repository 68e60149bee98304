from typing import Any, Final

ARRAY: Final[int]
STRUCT: Final[int]
WIRE_KINDS: Final[dict[str, int]]
"""Name of a wire type -> its number."""

class DecodeError(ValueError):
    """Malformed bytes."""

    position: int
    """The offset in the buffer at which decoding failed."""
    reason: str
    """The cause of the error: the value that was expected and the actual value."""
    def __init__(self, position: int, reason: str) -> None: ...

class TooManyElementsError(DecodeError):
    """A message with more array elements than its reader accepts."""

class EncodeError(ValueError):
    """A value that cannot be encoded."""

    field: str
    """The class and the field of the value, as in `HeartbeatRequest.generation_id`."""
    reason: str
    """The cause of the error: the value that was expected and the actual value."""
    def __init__(self, field: str, reason: str) -> None: ...

class MessageTooLargeError(EncodeError):
    """A message or frame above the size limit of its writer."""

    limit_bytes: int
    """The size limit of the writer in bytes."""
    def __init__(self, field: str, limit_bytes: int) -> None: ...

class FieldSpec:
    """One declared field in the form that the plan compiler reads."""

    name: Final[str]
    kind: Final[int]
    item: Final[int]
    """The kind of an array's elements; 0 for other fields."""
    struct: Final[Any]
    """The class of a struct or of an array's structs; None for other fields."""
    versions: Final[tuple[int, int]]
    nullable: Final[tuple[int, int]]
    tagged: Final[tuple[int, int]]
    tag: Final[int]
    """The number of the field's tag; -1 for a field that is never tagged."""
    ignorable: Final[bool]
    compact: Final[bool]
    default: Final[Any]
    fresh: Final[bool]
    """True if each object gets its own new struct as the default."""
    def __init__(
        self,
        name: str,
        kind: int,
        item: int,
        struct: Any,
        versions: tuple[int, int],
        nullable: tuple[int, int],
        tagged: tuple[int, int],
        tag: int,
        ignorable: bool,
        compact: bool,
        default: Any,
        fresh: bool,
    ) -> None: ...

class Schema:
    """The declared fields of one class, and its compiled plans by version."""

    cls: Final[type]
    fields: Final[tuple[FieldSpec, ...]]
    api_key: Final[int]
    min_version: Final[int]
    max_version: Final[int]
    flexible_since: Final[int]
    def __init__(self, cls: type, fields: tuple[FieldSpec, ...]) -> None: ...
