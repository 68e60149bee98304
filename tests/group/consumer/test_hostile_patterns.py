"""Patterns made to be slow: what a match costs does not depend on the groups in them."""

from __future__ import annotations

import pytest

from kcore.errors import KafkaError
from kcore.group.consumer.regex import MAX_NAMED_GROUPS, _compiled, check_regex
from kcore.protocol.error_codes import ErrorCode


def test_groups_are_not_captured() -> None:
    regex = "(" * 5_000 + ")" * 5_000
    check_regex(regex)
    assert _compiled(regex).groups == 0
    assert _compiled("(a|b)+").fullmatch("abba") is not None
    assert _compiled("(a|b)+").fullmatch("abbac") is None


def test_named_groups_are_few() -> None:
    check_regex("".join(f"(?P<n{i}>a?)" for i in range(MAX_NAMED_GROUPS)))
    with pytest.raises(KafkaError) as refused:
        check_regex("".join(f"(?P<n{i}>a?)" for i in range(MAX_NAMED_GROUPS + 1)))
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
