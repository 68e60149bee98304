"""Patterns that are slow by design: neither their compilation nor their matching delays other requests."""

from __future__ import annotations

import pytest

from kcore.errors import KafkaError
from kcore.group.consumer import regex as patterns
from kcore.group.consumer.regex import _compiled, check_regex
from kcore.patterns import MAX_CHARACTERS, MAX_NAMED_GROUPS, MAX_REPEATS, MAX_UNICODE_CLASSES
from kcore.protocol.error_codes import ErrorCode
from tests.group.consumer.members import Member, World


def test_groups_are_not_captured() -> None:
    regex = "(" * 2_000 + ")" * 2_000
    check_regex(regex)
    assert _compiled(regex).groups == 0
    assert _compiled("(a|b)+").fullmatch("abba") is not None
    assert _compiled("(a|b)+").fullmatch("abbac") is None


@pytest.mark.parametrize(
    ("taken", "refused", "why"),
    [
        (
            "".join(f"(?P<n{i}>a?)" for i in range(MAX_NAMED_GROUPS)),
            "".join(f"(?P<n{i}>a?)" for i in range(MAX_NAMED_GROUPS + 1)),
            "the pattern has 17 named groups; the maximum is 16",
        ),
        ("a" * MAX_CHARACTERS, "a" * (MAX_CHARACTERS + 1), "the pattern has 4097 characters; the maximum is 4096"),
        (
            f"[a-z]{{{MAX_REPEATS}}}",
            "[a-z]{500}[a-z]{1,501}",
            "the repetitions of the pattern add up to 1001; the maximum is 1000",
        ),
        (
            f"a{{1,{MAX_REPEATS}}}",
            f"a{{{MAX_REPEATS},}}b{{1}}",
            "the repetitions of the pattern add up to 1001; the maximum is 1000",
        ),
        (
            "\\pL" * MAX_UNICODE_CLASSES,
            "\\PL\\p{Greek}|" * 4 + "[\\pN]",
            "the pattern has 9 Unicode classes; the maximum is 8",
        ),
        ("a", "(a", "missing ): (a"),
        ("a", "\\C\ud800", "'utf-8' codec can't encode character '\\ud800' in position 2: surrogates not allowed"),
    ],
)
def test_patterns_that_compile_slowly_are_refused(taken: str, refused: str, why: str) -> None:
    """RE2 would take seconds to compile a pattern of 600 characters that contains `{500}` fifty times. This would block
    the thread that serves all requests.
    """
    check_regex(taken)
    with pytest.raises(KafkaError) as error:
        check_regex(refused)
    assert error.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert error.value.message == f"{refused[:100]!r} is not a regular expression that kcore accepts: {why}"


def test_a_large_program_is_matched_with_few_names_at_a_time() -> None:
    """For some patterns, the time to match a name is its length times the number of instructions of the compiled
    pattern.

    So a slice matches a small pattern with a thousand names, but a large pattern with a single name.
    """
    names = [f"{number:04}" + "a" * 240 for number in range(40)]
    slices = list(patterns._matching("(?:.*){500}(?:.?){500}", names))
    assert [len(found) for found in slices] == [1] * 40 + [0]
    assert [len(found) for found in patterns._matching(".*", ["a"] * 2_400)] == [1_000, 1_000, 400]


def test_an_unsupported_pattern_of_another_coordinator_matches_nothing() -> None:
    """The log may contain a pattern that RE2 does not support. The group's other patterns are resolved anyway."""
    world = World({"a": 1, "b": 1})
    one, two = Member(world, "m1"), Member(world, "m2")
    one.join(None, subscribed_topic_regex="a")
    two.join(None, subscribed_topic_regex="b")
    world.group.subscriptions.regexes["("] = 1  # as if a third member had subscribed to it
    world.advance(10_001)
    one.ack()
    world.finish()
    resolved = {regex: set(found.topics) for regex, found in world.group.subscriptions.resolved.items()}
    assert resolved == {"a": {"a"}, "b": {"b"}, "(": set()}
