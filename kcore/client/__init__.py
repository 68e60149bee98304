"""Kafka clients: typed requests over TCP, optionally with TLS and SASL."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcore.client.connection import Connection as Connection
    from kcore.client.security import ClientSecurity as ClientSecurity
    from kcore.errors import ConnectionClosedError as ConnectionClosedError

_MODULES = {
    "ClientSecurity": "kcore.client.security",
    "Connection": "kcore.client.connection",
    "ConnectionClosedError": "kcore.errors",
}

__all__ = ["ClientSecurity", "Connection", "ConnectionClosedError"]


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use, because an embedded node needs no sockets and no TLS."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
