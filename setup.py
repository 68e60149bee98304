"""Builds kcore_ext: every .pyx below it becomes one extension module. The rest is in pyproject.toml."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).parent

# No -march: a wheel runs on every machine of its architecture.
COMPILE_ARGS = ["-O3", "-g0", "-fno-strict-aliasing", "-Wno-unreachable-code", "-Wno-unused-function"]

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": True,
}


def extensions() -> list[Extension]:
    """One extension a .pyx; KCORE_EXT=name,name builds those alone (for work on one module)."""
    only = {name for name in os.environ.get("KCORE_EXT", "").split(",") if name}
    found = []
    for source in sorted(ROOT.glob("kcore_ext/**/*.pyx")):
        path = source.relative_to(ROOT)
        module = ".".join(path.with_suffix("").parts)
        if only and not only & set(path.with_suffix("").parts):
            continue
        found.append(Extension(module, [str(path)], extra_compile_args=COMPILE_ARGS))
    return found


RELEASED_TWICE = """    int result = PyList_Append(list, x);
    Py_DECREF(x);
"""
RELEASED_ONCE = """    int result = PyList_Append(list, x);
    if (likely(result == 0)) Py_DECREF(x);
"""


def release_once(modules: list[Extension]) -> list[Extension]:
    """Corrects Cython 3.3's `__Pyx_ListComp_AppendAndDecref` in the generated C code.

    If a list comprehension finds no memory to grow its list, that function releases the item, and the code around it
    releases the item again: a crash where there should be a MemoryError. Other versions of the function stay as they
    are.
    """
    for module in modules:
        for source in map(Path, module.sources):
            if source.suffix == ".c":
                code = source.read_text(encoding="utf-8")
                if RELEASED_TWICE in code:
                    source.write_text(code.replace(RELEASED_TWICE, RELEASED_ONCE), encoding="utf-8")
    return modules


JOBS = os.cpu_count() or 1

setup(
    # Cython's own workers are forked, which is safe on Linux alone.
    ext_modules=release_once(
        cythonize(extensions(), compiler_directives=DIRECTIVES, nthreads=JOBS if sys.platform == "linux" else 0)
    ),
    options={
        "build_ext": {"parallel": JOBS},
        # An editable install puts the checkout into the module path: Spark looks for data sources nowhere else.
        "editable_wheel": {"mode": "compat"},
    },
)
