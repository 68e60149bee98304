"""Failing allocations on purpose: which interpreters survive that themselves."""

from __future__ import annotations

import sys

import pytest


def require_failing_allocations() -> None:
    """Skips the test if this interpreter cannot let allocations fail, or does not survive that itself.

    The tests count allocations with `_testcapi`, which only CPython has. CPython 3.12 and 3.13 end with a segmentation
    fault if an allocation fails in some comprehensions and generators of pure Python code.
    """
    pytest.importorskip("_testcapi", reason="only CPython's own test module can let an allocation fail")
    if sys.version_info >= (3, 12):
        pytest.skip("from 3.12 on, CPython itself may crash after a failed allocation")
