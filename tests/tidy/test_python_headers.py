"""Compiled modules use only functions that the headers of every version of Python declare."""

from __future__ import annotations

import re

from tests.tidy.rules import ROOT, text_of, tracked_files

DECLARATIONS = re.compile(r'^( *)cdef extern from "Python\.h".*\n((?:\1 +.*\n|\s*\n)+)', re.MULTILINE)
PRIVATE = re.compile(r"\b_Py\w*(?= *\()")
DOCUMENTED = {"_PyBytes_Resize"}
"""Functions of Python's documented API whose names begin as those of private functions do."""


def test_private_functions_of_python_are_declared_in_c() -> None:
    """Versions of Python move private functions to internal headers. Without a declaration, a C compiler either refuses
    the call, or takes the result for an `int`.
    """
    found = [
        (str(path.relative_to(ROOT)), name)
        for path in tracked_files(".pyx", ".pxd")
        for _, block in DECLARATIONS.findall(text_of(path))
        for name in PRIVATE.findall(block)
        if name not in DOCUMENTED
    ]
    assert found == []
