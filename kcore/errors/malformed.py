"""The error that a client raises for a response that violates the protocol."""

from __future__ import annotations

from kcore.errors.by_code import UnknownServerError


class MalformedResponseError(UnknownServerError):
    """A broker sent a response that can be decoded, but not used: entries are missing, or values are impossible.

    Attributes:
        broker: the address of the broker, as far as the client knows it.
        api: the API of the request, for example `Metadata`.
    """

    def __init__(self, broker: str, api: str, cause: str) -> None:
        super().__init__(f"{broker} sent an invalid response to {api}: {cause}")
        self.broker = broker
        self.api = api
