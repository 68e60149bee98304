"""Patterns of transactional ids: RE2's meaning, and never more time than the text is long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.transaction.pattern import Pattern, PatternError

atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\.", "1", "(?:ab)", r"\w", r"[\d.]"])
repeats = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{1,}", "*?"])


def grown(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joined = st.lists(parts, min_size=1, max_size=3).map("".join)
    either = st.lists(joined, min_size=2, max_size=3).map(lambda found: f"({'|'.join(found)})")
    return st.one_of(joined, st.tuples(either, repeats).map("".join))


patterns = st.recursive(st.tuples(atoms, repeats).map("".join), grown, max_leaves=8)


@given(patterns, st.text("abc1.", max_size=8))
def test_it_means_what_python_means_where_both_mean_the_same(pattern: str, text: str) -> None:
    assert Pattern(pattern).matches(text) == (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
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
    ],
)
def test_whole_ids_match(pattern: str, text: str, wanted: bool) -> None:
    assert Pattern(pattern).matches(text) is wanted


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
        "(" * 101 + ")" * 101,
        "((a{1000}){1000})",
        r"\q",
        r"\xzz",
    ],
)
def test_what_re2_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern)


def test_no_pattern_keeps_the_server_busy() -> None:
    """Python's own machine would try 2^40 ways here."""
    assert not Pattern("(a+)+b").matches("a" * 40 + "c")
    assert not Pattern("(a|a)*b").matches("a" * 40 + "c")
    assert Pattern("(a?){200}a{200}").matches("a" * 200)
