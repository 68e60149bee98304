from collections.abc import Callable
from typing import Any

from kcore_ext.codec.plan import Schema

class StructBase:
    """The base of every declared class: keyword-only construction, equality by value, repr, pickling."""

class LazySlot:
    """The descriptor of a field whose default is a struct. Reading an empty slot stores a new struct in it."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any: ...
    def __set__(self, instance: Any, value: Any) -> None: ...

def bind(cls: type, schema: Schema) -> None:
    """Connects a declared class with its schema. The metaclass calls it after creating the class."""

def encode_response(
    response: StructBase, version: int, correlation_id: int, header_version: int, *, limit_bytes: int | None = None
) -> bytes:
    """Builds the whole frame of a response: length, header, body.

    Args:
        response: the message.
        version: the version of the request to which the response belongs.
        correlation_id: the correlation id of the request.
        header_version: 1 for a header with a tag section, 0 without (see `response_header_version`).
        limit_bytes: the maximum size of the frame, including its length field. None: the maximum of an int32.

    Raises:
        MessageTooLargeError: the frame would be larger; encoding stops as soon as that is known.
        EncodeError: see `Message.encode`.
    """

def encode_request(request: StructBase, version: int, correlation_id: int, client_id: str | None = None) -> bytes:
    """Builds the whole frame of a request: length, header, body.

    Args:
        request: the message.
        version: the API version of the request.
        correlation_id: the number that the response will carry.
        client_id: the sender's name, None for null.

    Raises:
        MessageTooLargeError: the frame would exceed the range of an int32.
        EncodeError: see `Message.encode`; or the client id has more than 32767 bytes.
    """

def decode_request_header(data: bytes | bytearray | memoryview, position: int = 0) -> tuple[int, int, int, str, int]:
    """Reads the header in front of a request.

    Returns:
        The tuple (api_key, api_version, correlation_id, client_id, position of the body); a null client id becomes "".

    Raises:
        DecodeError: the header is truncated or malformed, or the API key has no messages.
    """

def set_flexible_versions(resolve: Callable[[int], int]) -> None:
    """Sets the function that returns the first flexible version of an API.

    `decode_request_header` calls the function at the first request of each API.
    """
