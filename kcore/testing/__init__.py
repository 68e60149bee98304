"""Real servers for test suites: they start quickly and can be killed and restarted.

`pytest_plugins = ["kcore.testing.plugin"]` provides the fixtures `kcore_server` (a running `kcore serve` in a process
of its own, new for each test) and `kcore_bootstrap` (its HOST:PORT).
"""

from kcore.testing.server import ServerProcess

__all__ = ["ServerProcess"]
