"""Kafka clients: typed requests over TCP, optionally with TLS and SASL."""

from kcore.client.connection import Connection, ConnectionClosedError
from kcore.client.security import ClientSecurity

__all__ = ["ClientSecurity", "Connection", "ConnectionClosedError"]
