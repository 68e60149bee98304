"""The pytest plugin: fixtures for each test, and the histories of groups in the report of a failed test.

pytest finds it by its entry point. The marker `kcore` configures the fixtures of a test:

    @pytest.mark.kcore(topics={"jobs": 4}, settings={"group.max.size": 10})
    def test_workers(kcore_broker): ...
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kcore.testing.arguments import setting_texts
from kcore.testing.server import ServerProcess

if TYPE_CHECKING:
    from kcore.testing.broker import Broker
    from kcore.testing.virtual import VirtualNode

OPTIONS = {"topics", "settings"}
MAX_LINES = 200  # events of each group in the report of a failed test
SERVER_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker."""
    config.addinivalue_line("markers", "kcore(topics, settings): configures kcore_broker, kcore_node and kcore_server")


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("kcore")
    if marker is None:
        return {}
    if marker.args or not marker.kwargs.keys() <= OPTIONS:
        wrong = ", ".join([*map(repr, marker.args), *sorted(marker.kwargs.keys() - OPTIONS)])
        pytest.fail(f"the marker kcore has the arguments topics=... and settings=..., but got {wrong}", pytrace=False)
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
    """Runs a server process that keeps everything in memory and starts the first rebalance of a group without delay.

    Of the marker's arguments only `settings` concerns it.
    """
    settings = setting_texts(_options(request).get("settings"))
    with ServerProcess(settings={**SERVER_SETTINGS, **settings}) as server:
        yield server


@pytest.fixture
def kcore_bootstrap(kcore_server: ServerProcess) -> str:
    """Returns the server's HOST:PORT."""
    return kcore_server.bootstrap


def _has_histories(value: object) -> bool:
    """Returns True for a broker or a node of the kit; other fixtures may be mocks, which have every attribute."""
    modules = (("kcore.testing.broker", "Broker"), ("kcore.testing.virtual", "VirtualNode"))
    loaded = [getattr(sys.modules[module], name) for module, name in modules if module in sys.modules]
    return isinstance(value, tuple(loaded))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the histories of all groups to the report of a failed test."""
    report = yield
    if report.when == "call" and report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            tables = [history.table(MAX_LINES) for history in value.histories()] if _has_histories(value) else []
            if tables:
                report.sections.append((f"groups of {name}", "\n\n".join(tables)))
    return report
