"""The fields of JSON objects: one table validates requests and describes them for OpenAPI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Type = Literal["string", "integer", "number", "boolean", "array", "object"]

MAX_TEXT = 32_767  # characters; Kafka's own limit for most strings
MAX_ITEMS = 100_000

_CLASSES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


class InvalidRequestError(ValueError):
    """A request that the control server refuses, with the reason."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a JSON object.

    Attributes:
        name: the name of the field.
        type: the valid type of a value in JSON Schema, or several valid types.
        doc: the meaning of the field, for the OpenAPI description.
        required: True if an object must have it.
        nullable: True if null is valid.
        enum: the valid values; empty for no limit.
        minimum: the smallest valid number.
        maximum: the largest valid number.
        items: the type of the elements of an array, or the fields of these elements.
    """

    name: str
    type: Type | tuple[Type, ...]
    doc: str
    required: bool = False
    nullable: bool = False
    enum: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    items: Type | tuple[Field, ...] = "string"

    @property
    def types(self) -> tuple[Type, ...]:
        """The valid types."""
        return (self.type,) if isinstance(self.type, str) else self.type

    def schema(self) -> dict[str, Any]:
        """Returns the field as JSON Schema, in the dialect of OpenAPI 3.1."""
        types = [*self.types, *(["null"] if self.nullable else [])]
        found: dict[str, Any] = {"type": types[0] if len(types) == 1 else types, "description": self.doc}
        if self.enum:
            found["enum"] = list(self.enum)
        if self.minimum is not None:
            found["minimum"] = self.minimum
        if self.maximum is not None:
            found["maximum"] = self.maximum
        if "array" in self.types:
            found["items"] = {"type": self.items} if isinstance(self.items, str) else object_schema(self.items)
        return found

    def check(self, value: Any, path: str) -> None:
        """Checks a value.

        Args:
            value: the field's value in the request.
            path: the field's position in the request, for the error.

        Raises:
            InvalidRequestError: the value is not valid.
        """
        if value is None and self.nullable:
            return
        if not any(_is(value, each) for each in self.types):
            raise InvalidRequestError(f"{path} must be of type {' or '.join(self.types)}{self._elements()}")
        if self.enum and value not in self.enum:
            raise InvalidRequestError(f"{path}={value!r}: valid are {', '.join(self.enum)}")
        if isinstance(value, str):
            check_text(value, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self._check_range(value, path)
        elif isinstance(value, list):
            self._check_items(value, path)

    def _elements(self) -> str:
        """Describes the required fields of the objects in an array, for error texts; "" for other types."""
        if "array" not in self.types or isinstance(self.items, str):
            return ""
        return f" of objects with {', '.join(field.name for field in self.items if field.required)}"

    def _check_range(self, value: float, path: str) -> None:
        if self.minimum is not None and not value >= self.minimum:
            raise InvalidRequestError(f"{path}={value}: the minimum is {self.minimum:g}")
        if self.maximum is not None and not value <= self.maximum:
            raise InvalidRequestError(f"{path}={value}: the maximum is {self.maximum:g}")

    def _check_items(self, values: list[Any], path: str) -> None:
        if len(values) > MAX_ITEMS:
            raise InvalidRequestError(f"{path} has {len(values)} elements; the maximum is {MAX_ITEMS}")
        for index, each in enumerate(values):
            where = f"{path}[{index}]"
            if not isinstance(self.items, str):
                check_object(self.items, each, where)
            elif not _is(each, self.items):
                raise InvalidRequestError(f"{where} must be of type {self.items}")
            elif isinstance(each, str):
                check_text(each, where)


def _is(value: Any, name: Type) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _CLASSES[name])


def check_text(text: str, path: str) -> None:
    """Checks a string, which must be valid in Kafka's protocol.

    Raises:
        InvalidRequestError: the string is too long, or has half a surrogate pair.
    """
    if len(text) > MAX_TEXT:
        raise InvalidRequestError(f"{path} has {len(text)} characters; the maximum is {MAX_TEXT}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(f"{path} has half a surrogate pair, which UTF-8 cannot encode") from None


def check_object(fields: Sequence[Field], value: Any, path: str = "") -> dict[str, Any]:
    """Checks that a value is an object with valid fields and no others, and returns it.

    Raises:
        InvalidRequestError: the value is not an object, or a field is missing, unknown or not valid.
    """
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{path or 'the body'} must be a JSON object")
    known = {field.name: field for field in fields}
    prefix = f"{path}." if path else ""
    for name, each in value.items():
        if name not in known:
            valid = ", ".join(known) or "none"
            raise InvalidRequestError(f"{prefix}{name[:100]!r} is not a field of this request; valid: {valid}")
        known[name].check(each, prefix + name)
    for field in fields:
        if field.required and field.name not in value:
            raise InvalidRequestError(f"{prefix}{field.name} is missing: {field.doc}")
    return value


def object_schema(fields: Sequence[Field]) -> dict[str, Any]:
    """Returns the JSON Schema of an object that may have these fields and no others."""
    found: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: field.schema() for field in fields},
        "additionalProperties": False,
    }
    if required := [field.name for field in fields if field.required]:
        found["required"] = required
    return found
