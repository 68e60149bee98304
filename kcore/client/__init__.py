"""The client's side: typed requests over TCP, and the errors that come of it."""

from kcore.client.connection import Connection, ConnectionClosedError

__all__ = ["Connection", "ConnectionClosedError"]
