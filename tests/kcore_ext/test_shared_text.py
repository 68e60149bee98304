"""The table of texts that many objects share."""

from __future__ import annotations

from kcore_ext.util.shared_text import MAX_TABLE_BYTES, shared_text, table_size


def fresh(text: str) -> str:
    """Returns a new object with the same text."""
    return "".join(list(text))


def test_equal_texts_become_one_object() -> None:
    first = shared_text(fresh("orders-shared"))
    second = fresh("orders-shared")
    assert second is not first
    assert shared_text(second) is first
    assert shared_text("") == ""


def test_long_texts_and_subclasses_stay_as_they_are() -> None:
    class Text(str):
        __slots__ = ()

    before = table_size()
    text, special = "x" * 257, Text("topic")
    assert shared_text(text) is text
    assert shared_text(special) is special
    assert table_size() == before


def test_the_table_is_bounded_whatever_clients_send() -> None:
    """Clients with random client ids fill the table of shared texts. It never exceeds its limit, because it is emptied
    when it is full.
    """
    sizes = []
    for number in range(60_000):
        shared_text(f"{number:07}" + "\U0001f600" * 90)
        sizes.append(table_size()[1])
    assert 0 < max(sizes) <= MAX_TABLE_BYTES
    assert sizes[-1] < max(sizes), "the table was emptied when it was full"
    kept = shared_text(fresh("after-all"))
    assert shared_text(fresh("after-all")) is kept
