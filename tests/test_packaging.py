"""The contents of the sdist and the wheel, and the metadata that pip shows.

`make dist` builds both, and `make dist-test` installs the wheel. These tests only compute the lists of files with
setuptools.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from email import message_from_string
from functools import cache
from pathlib import Path

import pytest
from setuptools import find_packages

from kcore.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("kcore/", "kcore_ext/", "pyspark_kcore/")
CODE = (".py", ".pyx", ".pyi")


@cache
def compiled() -> frozenset[str]:
    """Returns the source files of compiled modules."""
    return frozenset(name for name in tracked() if name.startswith("kcore_ext/") and name.endswith(".pyx"))


@cache
def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def egg_info(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the metadata that setuptools makes for the sdist, without compiling anything."""
    folder = tmp_path_factory.mktemp("metadata")
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", folder]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "CC": "false"}, check=True, capture_output=True, timeout=120)
    return folder / "kcore.egg-info"


@pytest.fixture(scope="module")
def sdist(egg_info: Path) -> set[str]:
    """Returns the files of the sdist, as paths relative to the checkout."""
    names = (egg_info / "SOURCES.txt").read_text().splitlines()
    return {name for name in names if not Path(name).is_absolute()}


@cache
def tracked() -> frozenset[str]:
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return frozenset(name for name in names if (ROOT / name).is_file())


def test_the_sdist_has_the_packages_the_documents_and_the_examples(sdist: set[str]) -> None:
    documents = {"README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md"}
    build = {"MANIFEST.in", "pyproject.toml", "setup.py"}
    shipped = {name for name in tracked() if name.startswith((*PACKAGES, "docs/", "examples/"))}
    assert sdist == shipped | documents | build


def test_no_file_of_the_sdist_is_made_by_a_build(sdist: set[str]) -> None:
    assert len(compiled()) > 70
    assert sdist <= tracked()
    assert compiled() <= sdist


def test_every_package_of_the_checkout_is_installed() -> None:
    include = project()["tool"]["setuptools"]["packages"]["find"]["include"]  # type: ignore[index]
    installed = set(find_packages(str(ROOT), include=include))
    folders = {str(Path(name).parent) for name in tracked() if name.startswith(PACKAGES) and name.endswith(CODE)}
    assert {folder.replace("/", ".") for folder in folders} == installed


def test_the_wheel_has_all_files_of_its_packages_but_the_sources_of_compiled_modules(egg_info: Path) -> None:
    """Compares the files that setuptools' `build_py` copies into the wheel with the tracked files of the packages. The
    sources of compiled modules are left out, because `build_ext` adds the compiled modules.
    """
    folder = egg_info.parent / "library"
    program = (
        "import sys; from setuptools import Distribution; d = Distribution(); d.parse_config_files(['pyproject.toml']);"
        "c = d.get_command_obj('egg_info'); c.egg_base = sys.argv[1]; d.script_name = 'setup.py';"
        "b = d.get_command_obj('build_py'); b.build_lib = sys.argv[2]; b.ensure_finalized(); b.run()"
    )
    command = [sys.executable, "-c", program, str(egg_info.parent), str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    copied = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert copied == {name for name in tracked() if name.startswith(PACKAGES) and not name.endswith(".pyx")}


def test_packages_declare_their_types(sdist: set[str]) -> None:
    assert {"kcore/py.typed", "kcore_ext/py.typed"} <= sdist
    assert [name for name in sorted(compiled()) if str(Path(name).with_suffix(".pyi")) not in sdist] == []


def test_the_package_has_its_metadata(egg_info: Path) -> None:
    metadata = message_from_string((egg_info / "PKG-INFO").read_text())
    assert metadata["Name"] == "kcore"
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    extras = set(project()["project"]["optional-dependencies"])  # type: ignore[index]
    assert set(metadata.get_all("Provides-Extra", [])) == extras
    assert (egg_info / "entry_points.txt").read_text().split("\n\n")[0] == "[console_scripts]\nkcore = kcore.cli:main"


def test_the_change_log_has_this_version() -> None:
    """The change log has a section for the version or, before the release, names it in the section "Unreleased"."""
    text = (ROOT / "CHANGELOG.md").read_text()
    unreleased, *released = [section.partition("]") for section in text.split("\n## [")[1:]]
    assert unreleased[0] == "Unreleased"
    assert VERSION in unreleased[2] or VERSION in [section[0] for section in released]


def test_wheels_are_built_for_every_supported_version_of_python() -> None:
    versions = [
        text.rpartition(" ")[2].replace(".", "")
        for text in project()["project"]["classifiers"]  # type: ignore[index]
        if text.startswith("Programming Language :: Python :: 3.")
    ]
    cibuildwheel = project()["tool"]["cibuildwheel"]  # type: ignore[index]
    assert cibuildwheel["build"].split() == [f"cp{version}-*" for version in versions]
