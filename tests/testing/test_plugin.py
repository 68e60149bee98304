"""The plugin's effect on a user's own test run."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def test_pytest_does_not_rewrite_the_modules_of_kcore(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import kcore.node.types")
    pytester.makepyfile("""
        import importlib
        from importlib.machinery import SourceFileLoader

        def test_loaders():
            for name in ("kcore.node.types", "kcore.group.apis.offset_fetch", "pyspark_kcore"):
                loader = importlib.import_module(name).__spec__.loader
                assert type(loader) is SourceFileLoader, name
    """)
    # A run of its own: this one has imported the modules already.
    result = pytester.runpytest_subprocess("-p", "kcore.testing.plugin")
    result.assert_outcomes(passed=1)
