"""For test suites: real servers that start in a blink, killed and restarted at will.

`pytest_plugins = ["kcore.testing.plugin"]` brings the fixtures `kcore_server` (a running `kcore serve` in a process of
its own, fresh for each test) and `kcore_bootstrap` (its HOST:PORT).
"""

from kcore.testing.server import ServerProcess

__all__ = ["ServerProcess"]
