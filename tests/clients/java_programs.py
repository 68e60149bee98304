"""The Java programs of the tests: compiled once for each folder, with the libraries that Maven finds for them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("java")
CACHE = Path(__file__).parents[2] / "build" / "java-clients"
QUICK = ("-Xmx256m", "-XX:TieredStopAtLevel=1")  # options of a JVM that starts fast and needs little memory


@functools.cache
def classpath(source: Path = SOURCE) -> str:
    """Returns the class path of the compiled programs of a folder and of their libraries. Keeps the files for later
    test runs.

    Skips the test if Java or Maven is missing, or if no Maven repository can be reached.
    """
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on this machine")
    pom = source / "pom.xml"
    libraries = made_once(digest(pom), functools.partial(fetch_libraries, pom))
    sources = sorted(source.glob("*.java"))
    classes = made_once(f"classes-{digest(pom, *sources)}", functools.partial(_compile, sources, f"{libraries}/*"))
    return f"{classes}:{libraries}/*"


def command(program: str, source: Path = SOURCE) -> list[str]:
    """Returns the command that starts a program of a folder."""
    return ["java", *QUICK, "-cp", classpath(source), program]


def digest(*files: Path) -> str:
    """Returns a digest of the contents of files."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Returns a folder of the cache. Creates the folder with `make` if it is missing.

    Several test runs may call this function at the same time.
    """
    folder = CACHE / name
    if not folder.exists():
        fresh = CACHE / f"fresh-{os.getpid()}-{name}"
        make(fresh)
        with contextlib.suppress(OSError):  # another run was faster
            fresh.rename(folder)
    return folder


def fetch_libraries(pom: Path, folder: Path) -> None:
    """Copies the libraries that a POM names into a folder. Skips the test if Maven cannot get the libraries."""
    maven = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    done = subprocess.run(maven, capture_output=True, text=True, timeout=150, check=False)
    if done.returncode != 0 or not any(folder.glob("kafka-clients-*.jar")):
        pytest.skip(f"Maven does not get kafka-clients: {done.stdout[-300:]}{done.stderr[-300:]}")


def _compile(sources: list[Path], jars: str, folder: Path) -> None:
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), *map(str, sources)], check=True, timeout=120)
