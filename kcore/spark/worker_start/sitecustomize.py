"""Shortens the start of local Spark workers: Python runs this module at its start, before the worker's own modules.

Spark puts its pyspark.zip before all other places of the module path. Python compiles modules of an archive again in
each process, which takes a second of CPU time. Spark waits ten seconds for the worker of a Python source, and a busy
machine needs more. So this module puts the installed pyspark package, whose modules are compiled already, before the
archive.
"""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

ARCHIVES = "pyspark/python/lib"
"""The folder with Spark's archives, below the folder of installed packages."""


def prefer_installed(module_path: list[str]) -> list[str]:
    """Returns the module path with Spark's archives moved to its end.

    Returns the path unchanged unless the path also has the installed packages that the archives contain.
    """
    archives = [place for place in module_path if place.endswith(".zip") and Path(place).parent.match(ARCHIVES)]
    installed = {str(Path(place).parents[3]) for place in archives}
    if len(installed) != 1 or not installed <= set(module_path):
        return module_path
    if not all((Path(*installed) / name).is_dir() for name in ("pyspark", "py4j")):
        return module_path
    return [place for place in module_path if place not in archives] + archives


def run_next() -> None:
    """Runs the sitecustomize module that Python would have found without this module."""
    here = str(Path(__file__).parent)
    others = [place for place in sys.path if place != here]
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if found is not None and found.loader is not None:
        found.loader.exec_module(importlib.util.module_from_spec(found))


sys.path[:] = prefer_installed(sys.path)
run_next()
