"""Compiles and starts the programs of the folder `java` with their Maven dependencies."""

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
QUICK = ("-Xmx256m", "-XX:TieredStopAtLevel=1")  # a JVM that starts quickly and stays small


@functools.cache
def classpath() -> str:
    """Returns the class path of the compiled programs and their libraries, which are cached for later runs.

    Skips the test without Java, without Maven, or without access to a Maven repository.
    """
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on this machine")
    pom = SOURCE / "pom.xml"
    libraries = _made_once(_digest(pom), functools.partial(_fetch_libraries, pom))
    sources = sorted(SOURCE.glob("*.java"))
    classes = _made_once(f"classes-{_digest(pom, *sources)}", functools.partial(_compile, sources, f"{libraries}/*"))
    return f"{classes}:{libraries}/*"


def command(program: str) -> list[str]:
    """Returns the command that starts a program."""
    return ["java", *QUICK, "-cp", classpath(), program]


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Returns a folder of the cache, made once; several runs may make it at the same time."""
    folder = CACHE / name
    if not folder.exists():
        fresh = CACHE / f"fresh-{os.getpid()}-{name}"
        make(fresh)
        with contextlib.suppress(OSError):  # another run has made it first
            fresh.rename(folder)
    return folder


def _fetch_libraries(pom: Path, folder: Path) -> None:
    maven = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    done = subprocess.run(maven, capture_output=True, text=True, timeout=150, check=False)
    if done.returncode != 0 or not any(folder.glob("kafka-clients-*.jar")):
        pytest.skip(f"Maven does not get kafka-clients: {done.stdout[-300:]}{done.stderr[-300:]}")


def _compile(sources: list[Path], jars: str, folder: Path) -> None:
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), *map(str, sources)], check=True, timeout=120)
