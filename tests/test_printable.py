"""Texts with numbers."""

from __future__ import annotations

import pytest

from kcore.printable import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "records", "0 records"),
        (1, "records", "1 record"),
        (2, "records", "2 records"),
        (1, "deliveries", "1 delivery"),
        (2, "deliveries", "2 deliveries"),
        (1, "refused writes", "1 refused write"),
    ],
)
def test_a_number_has_its_noun(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text
