"""The pytest plugin: fixtures for each test, and the histories of groups in the report of a failed test.

pytest finds it by its entry point. The marker `kcore` configures the fixtures of a test:

    @pytest.mark.kcore(topics={"jobs": 4}, settings={"group.max.size": 10})
    def test_workers(kcore_broker): ...
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from kcore.testing.arguments import setting_texts
from kcore.testing.server import ServerProcess

if TYPE_CHECKING:
    from kcore.testing.broker import Broker
    from kcore.testing.virtual import VirtualNode

PACKAGES = ("kcore", "kcore_ext", "pyspark_kcore")
OPTIONS = ("topics", "settings")
MAX_LINES = 200  # events of each group in the report of a failed test
SERVER_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}


class PlainImports:
    """An import finder that keeps pytest from rewriting the `assert` statements of kcore's modules.

    By default, pytest rewrites every module of a package that has a plugin, and therefore parses each module again. On
    CPython 3.11, two threads that parse at the same time can fail with a SystemError. This is possible because kcore
    imports some modules at their first use.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Implements `MetaPathFinder.find_spec` for the modules of kcore."""
        return PathFinder.find_spec(name, path, target) if name.partition(".")[0] in PACKAGES else None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Installs `PlainImports` before pytest loads conftest files, because a conftest file may import kcore."""
    if PlainImports not in sys.meta_path:
        sys.meta_path.insert(0, PlainImports)


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker."""
    config.addinivalue_line("markers", "kcore(topics, settings): configures kcore_broker, kcore_node and kcore_server")


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("kcore")
    if marker is None:
        return {}
    if marker.args:
        raise pytest.UsageError("the marker kcore takes named arguments: @pytest.mark.kcore(topics=..., settings=...)")
    for name in marker.kwargs:
        if name not in OPTIONS:
            raise pytest.UsageError(f"the marker kcore has no argument {name!r}; valid: {', '.join(OPTIONS)}")
    return dict(marker.kwargs)


@pytest.fixture
def kcore_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Runs a broker on a thread of this process, to which real clients connect; see `kcore.testing.Broker`."""
    from kcore.testing.broker import Broker  # noqa: PLC0415 - test runs without this fixture need no engine

    with Broker(**_options(request)) as broker:
        yield broker


@pytest.fixture
def kcore_node(request: pytest.FixtureRequest) -> Iterator[VirtualNode]:
    """Opens a node in virtual time; see `kcore.testing.VirtualNode`."""
    from kcore.testing.virtual import VirtualNode  # noqa: PLC0415 - as above

    with VirtualNode(**_options(request)) as node:
        yield node


@pytest.fixture
def kcore_server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Runs a server process that keeps all data in memory and starts the first rebalance of a group without delay.

    A kill loses all data; use `ServerProcess(data=tmp_path)` for data that survives it.
    """
    options = _options(request)
    settings = setting_texts(options.get("settings"))
    with ServerProcess(settings={**SERVER_SETTINGS, **settings}) as server:
        if topics := options.get("topics"):
            _create_topics(server.bootstrap, topics)
        yield server


def _create_topics(bootstrap: str, topics: Iterable[str] | Mapping[str, int]) -> None:
    import kcore  # noqa: PLC0415 - as above

    with kcore.connect(bootstrap) as node:
        for name, partitions in (topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)).items():
            node.topics.create(name, partitions=partitions)


@pytest.fixture
def kcore_bootstrap(kcore_server: ServerProcess) -> str:
    """Returns the server's HOST:PORT."""
    return kcore_server.bootstrap


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the histories of all groups to the report of a failed test, unless the error text already has them."""
    report = yield
    if report.when == "call" and report.failed:
        error = "" if call.excinfo is None else str(call.excinfo.value)
        loaded = sys.modules.get("kcore.testing.checks")  # without it there is no broker
        for name, value in getattr(item, "funcargs", {}).items():
            if loaded is None or not isinstance(value, loaded.Checks):
                continue
            tables = [table for history in value.histories() if (table := history.table(MAX_LINES)) not in error]
            if tables:
                report.sections.append((f"groups of {name}", "\n\n".join(tables)))
    return report
