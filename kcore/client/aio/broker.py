"""The address of a broker."""

from __future__ import annotations

from typing import NamedTuple


class Broker(NamedTuple):
    """A broker's address.

    Attributes:
        node_id: the broker's id; -1: a bootstrap address.
        host: the host name or IP address.
        port: the broker's TCP port.
    """

    node_id: int
    host: str
    port: int
