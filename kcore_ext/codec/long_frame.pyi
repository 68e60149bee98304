"""The encoder of long responses. It works in steps, between which the caller can do other work."""

from typing import Any

class LongFrame:
    """The frame of a long response: length, header, body. `encode_response` makes the same frame in one step.

    A step can end between two elements of an array of structs, if the array is a field of the response itself. Other
    code must not change the response until the last step.

    Args:
        response: the message.
        version: the version of the request.
        correlation_id: the correlation id of the request.
        header_version: 1 for a header with a tag section, 0 without.
        limit_bytes: the maximum size of the frame in bytes, including the length field.
    """

    def __init__(
        self, response: Any, version: int, correlation_id: int, header_version: int, limit_bytes: int
    ) -> None: ...
    def step(self, max_bytes: int) -> bytes | None:
        """Writes about `max_bytes` further bytes. Returns the frame once it is complete, else None.

        Raises:
            MessageTooLargeError: the frame would be larger than allowed.
            EncodeError: see `Message.encode`.
            ValueError: an earlier call has returned the frame, or has raised.
        """
