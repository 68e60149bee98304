"""The description of the control server in OpenAPI 3.1."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from kcore.testing.control.fields import Field, object_schema
from kcore.testing.control.operations import OPERATIONS, Operation

ERROR = (
    Field("error", "string", "the kind of the error, or the name of Kafka's error", required=True),
    Field("message", "string", "the cause", required=True),
)
ERRORS: Final = {
    "400": "The request is malformed, or a value is not valid.",
    "404": "The path, the fault, the group or the member does not exist.",
    "409": "The broker is in a state that does not allow this, or an assertion or a condition is false.",
}
PARAMETER = re.compile(r"\{(\w+)\}")


def description() -> dict[str, Any]:
    """Returns the description as a JSON object."""
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kcore control",
            "version": "1",
            "description": "Controls the broker of `kcore serve --control HOST:PORT`: faults of the protocol and of "
            "the coordinator, the disk and the clock, and the histories of groups.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": object_schema(ERROR)}},
    }


def text() -> str:
    """Returns the description as the text of docs/control.openapi.json."""
    return json.dumps(description(), indent=1) + "\n"


def operation_id(operation: Operation) -> str:
    """Returns a name for generated clients, such as `postGroupsGroupExpire`."""
    words = re.findall(r"[a-z0-9]+", operation.path)
    return operation.method.lower() + "".join(word.capitalize() for word in words)


def _operation(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": operation_id(operation), "summary": operation.doc}
    if names := PARAMETER.findall(operation.path):
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if operation.body:
        found["requestBody"] = {
            "required": any(field.required for field in operation.body),
            "content": {"application/json": {"schema": object_schema(operation.body)}},
        }
    if operation.response:
        content = {"application/json": {"schema": object_schema(operation.response)}}
        found["responses"] = {str(operation.status): {"description": "The result.", "content": content}}
    else:
        found["responses"] = {"204": {"description": "The request was carried out."}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status, meaning in ERRORS.items():
        found["responses"][status] = {"description": meaning, "content": error}
    return found
