"""Injected allocation failures: skips tests on interpreters that cannot inject them or that crash because of them."""

from __future__ import annotations

import sys

import pytest


def require_failing_allocations() -> None:
    """Skips the test if this interpreter cannot make allocations fail, or may itself crash after a failed allocation.

    The tests count allocations with `_testcapi`, which only CPython has. CPython 3.12 and 3.13 end with a segmentation
    fault if an allocation fails in some comprehensions and generators of pure Python code.
    """
    pytest.importorskip("_testcapi", reason="only CPython's own test module can let an allocation fail")
    if sys.version_info >= (3, 12):
        pytest.skip("from 3.12 on, CPython itself may crash after a failed allocation")
