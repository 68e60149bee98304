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


JOBS = os.cpu_count() or 1

setup(
    # Cython's own workers are forked, which is safe on Linux alone.
    ext_modules=cythonize(
        extensions(), compiler_directives=DIRECTIVES, nthreads=JOBS if sys.platform == "linux" else 0
    ),
    options={
        "build_ext": {"parallel": JOBS},
        # An editable install puts the checkout into the module path: Spark looks for data sources nowhere else.
        "editable_wheel": {"mode": "compat"},
    },
)
