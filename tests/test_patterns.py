"""Patterns from clients: RE2's syntax, whole matches, and bounded cost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.patterns import PatternError, compile_pattern

atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\.", "1", "(?:ab)", r"\w", r"[\d.]"])
caches_requests = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{1,}", "*?"])


def grown(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joined = st.lists(parts, min_size=1, max_size=3).map("".join)
    either = st.lists(joined, min_size=2, max_size=3).map(lambda found: f"({'|'.join(found)})")
    return st.one_of(joined, st.tuples(either, caches_requests).map("".join))


patterns = st.recursive(st.tuples(atoms, caches_requests).map("".join), grown, max_leaves=8)


def matches(pattern: str, text: str) -> bool:
    return compile_pattern(pattern).fullmatch(text) is not None


@given(patterns, st.text("abc1.", max_size=8))
def test_common_syntax_matches_as_in_python(pattern: str, text: str) -> None:
    assert matches(pattern, text) == (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("one.+", "one-2", True),
        ("one", "one-2", False),
        ("^one$", "one", True),
        (r"\Aone\z", "one", True),
        ("a|", "", True),
        ("(?P<name>a)b", "ab", True),
        ("a{", "a{", True),
        ("[]a]", "]", True),
        ("[a-]", "-", True),
        ("[^\\d]", "x", True),
        (r"\x41", "A", True),
        (".", "\n", False),
        ("é+", "éé", True),
        (r"\Qa.b\E+", "a.bb", True),
        (r"\Qa.b\E", "axb", False),
    ],
)
def test_pattern_matches_whole_text_only(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[",
        "[b-a]",
        "*",
        "a**",
        "(?=a)",
        "(?!a)",
        "(?<!a)",
        r"\1",
        r"(a)\1",
        "\\",
        "a{1001}",
        "a{2,1}",
        "((a{1000}){1000})",
        r"\q",
        r"\xzz",
    ],
)
def test_invalid_or_too_large_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


def test_matching_is_linear() -> None:
    """A matcher with backtracking would try 2^40 paths for this pattern."""
    assert not matches("(a+)+b", "a" * 40 + "c")
    assert not matches("(a|a)*b", "a" * 40 + "c")
    assert matches("(a?){200}a{200}", "a" * 200)
