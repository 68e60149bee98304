"""kcore: Kafka's coordinator as a Python library.

Embed it, synchronously or on an event loop::

    with kcore.open("data/") as engine:
        response = engine.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))

    async with kcore.open("data/") as engine:
        response = await engine.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))

or serve Kafka clients with `kcore serve`.
"""

from typing import TYPE_CHECKING, Any

from kcore.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from kcore.clock import ManualClock as ManualClock
    from kcore.config.node import Config as Config
    from kcore.embed import AsyncEngine as AsyncEngine
    from kcore.embed import SyncEngine as SyncEngine
    from kcore.embed import open as open

__all__ = ["AsyncEngine", "Config", "ManualClock", "SyncEngine", "__version__", "open"]

_MODULES = {
    "AsyncEngine": "kcore.embed",
    "Config": "kcore.config.node",
    "ManualClock": "kcore.clock",
    "SyncEngine": "kcore.embed",
    "open": "kcore.embed",
}


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use, so that `import kcore` alone costs nothing."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
