"""Tests of Kafka code without containers: brokers in this process, virtual time, and faults.

With the extra `testing` (`pip install kcore[testing]`) pytest has the fixtures `kcore_broker`, `kcore_node` and
`kcore_server`; docs/testing-kafka-code.md is their guide. Every fixture is also a context manager of this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcore.testing.broker import Broker
    from kcore.testing.faults import ActiveFault, Fault, Filter, RandomFaults
    from kcore.testing.group_state import GroupSnapshot, MemberState
    from kcore.testing.groups import TestGroup, TestGroups
    from kcore.testing.history import Event, History, Ownership
    from kcore.testing.incident import replay
    from kcore.testing.interceptor import HeldRequest
    from kcore.testing.server import ServerProcess
    from kcore.testing.virtual import VirtualNode, VirtualTimeLoop

_MODULES = {
    "ActiveFault": "faults",
    "Broker": "broker",
    "Event": "history",
    "Fault": "faults",
    "Filter": "faults",
    "GroupSnapshot": "group_state",
    "HeldRequest": "interceptor",
    "History": "history",
    "MemberState": "group_state",
    "Ownership": "history",
    "RandomFaults": "faults",
    "ServerProcess": "server",
    "TestGroup": "groups",
    "TestGroups": "groups",
    "VirtualNode": "virtual",
    "VirtualTimeLoop": "virtual",
    "replay": "incident",
}

__all__ = [
    "ActiveFault",
    "Broker",
    "Event",
    "Fault",
    "Filter",
    "GroupSnapshot",
    "HeldRequest",
    "History",
    "MemberState",
    "Ownership",
    "RandomFaults",
    "ServerProcess",
    "TestGroup",
    "TestGroups",
    "VirtualNode",
    "VirtualTimeLoop",
    "replay",
]


def __getattr__(name: str) -> Any:
    """Imports a class of this package at its first use, because pytest loads this package in every run, and most runs
    need no engine.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Returns the public names, including names that are not imported yet."""
    return sorted({*globals(), *__all__})
