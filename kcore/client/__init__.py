"""The client's side: typed requests over TCP, with TLS and SASL where a server wants them, and what comes of it."""

from kcore.client.connection import Connection, ConnectionClosedError
from kcore.client.security import ClientSecurity

__all__ = ["ClientSecurity", "Connection", "ConnectionClosedError"]
