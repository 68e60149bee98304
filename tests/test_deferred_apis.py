"""The engine constructs each API when it is first used, not at the start. These tests find the errors that this would
hide.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kcore.broker.apis
import kcore.group.apis
import kcore.protocol.messages
import kcore.share.apis
import kcore.transaction.apis
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages import module_name
from kcore.runtime import Api
from kcore.runtime.deferred import DeferredApi, api_finder
from kcore.served_apis import SERVED_APIS

PACKAGES = (kcore.broker.apis, kcore.group.apis, kcore.share.apis, kcore.transaction.apis)


@pytest.fixture
def engine() -> Any:
    made = Engine.open(Config.of({"offsets.topic.num.partitions": "1"}))
    yield made
    made.close()


def test_every_api_can_be_constructed_and_agrees_with_its_table(engine: Engine) -> None:
    """The table of APIs contains the versions that ApiVersions lists before an API is constructed. They must equal the
    versions of the API's class.
    """
    assert [(api.key, api.versions) for api in engine.apis.values()] == [(row.key, row.versions) for row in SERVED_APIS]


def test_every_class_is_found_in_its_package_by_its_name() -> None:
    """The class of each API can be imported from its package, which finds the file by the name of the class. Each API
    has a row in the table of APIs.
    """
    found = set()
    for package in PACKAGES:
        assert package.__file__ is not None
        for file in Path(package.__file__).parent.glob("[a-z]*.py"):
            module = import_module(f"{package.__name__}.{file.stem}")
            name = "".join(map(str.capitalize, file.stem.split("_"))) + "Api"
            served = getattr(module, name, None)
            if served is not None and file.stem.upper() in ApiKey.__members__:
                assert issubclass(served, Api)
                assert getattr(package, name) is served
                found.add(ApiKey[file.stem.upper()])
    assert found == {row.key for row in SERVED_APIS}


@pytest.mark.parametrize("package", [*PACKAGES, kcore.protocol.messages], ids=lambda package: package.__name__)
def test_every_class_is_listed_in_its_package_for_the_type_checker(package: ModuleType) -> None:
    """A package finds its classes by their names. The type checker finds only those that `__init__.py` imports."""
    assert package.__file__ is not None
    listed = {
        (node.module, name.name, name.asname)
        for node in ast.walk(ast.parse(Path(package.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{package.__name__}.")
        for name in node.names
    }
    expected = set()
    for file in Path(package.__file__).parent.glob("[a-z]*.py"):
        module = import_module(f"{package.__name__}.{file.stem}")
        if package is not kcore.protocol.messages and file.stem.upper() not in ApiKey.__members__:
            continue  # a base class of APIs, or functions of APIs
        for name, value in vars(module).items():
            of_file = module_name(name.removesuffix("Api")) == file.stem
            if of_file and isinstance(value, type) and value.__module__ == module.__name__:
                expected.add((module.__name__, name, name))
    assert expected - listed == set()


@pytest.mark.parametrize("name", ["AbsentApi", "absent", "HeartbeatApiApi"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'kcore.group.apis' has no attribute '{name}'"):
        getattr(kcore.group.apis, name)


def test_an_api_is_constructed_once_and_at_its_first_use_only(engine: Engine) -> None:
    assert engine.apis.made == {}
    assert ApiKey.HEARTBEAT in engine.apis
    assert 4_711 not in engine.apis
    assert len(list(engine.apis)) == len(engine.apis)
    assert engine.apis.made == {}
    beat = engine.apis[ApiKey.HEARTBEAT]
    assert engine.apis[ApiKey.HEARTBEAT] is beat
    assert engine.apis.get(4_711) is None
    assert engine.apis.made == {ApiKey.HEARTBEAT: beat}


def test_an_api_of_another_class_than_announced_is_a_bug() -> None:
    api = import_module("kcore.group.apis.leave_group").LeaveGroupApi(None, None)
    for key, versions in ((ApiKey.LEAVE_GROUP, (0, 3)), (ApiKey.JOIN_GROUP, api.versions)):
        with pytest.raises(AssertionError, match="is not"):
            DeferredApi(key, versions, lambda: api).make()
    assert DeferredApi(ApiKey.LEAVE_GROUP, api.versions, lambda: api).make() is api


def test_an_engine_starts_without_its_apis(tmp_path: Path) -> None:
    """Starting an engine imports no module of an API, so that the start is fast."""
    script = f"""
import sys
import kcore, kcore.server.server, kcore.cli.serve
with kcore.open({str(tmp_path / "data")!r}):
    print(*sorted(name for name in sys.modules if ".apis." in name and name.startswith("kcore.")))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_an_api_with_a_missing_import_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the API exists, but an import in this file fails. The error names the import."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "heartbeat.py").write_text("import absent_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="absent_library"):
        api_finder("served")("HeartbeatApi")
