"""Escaping of text before it is shown.

Names and messages may come from clients and contain terminal control sequences.
"""

from __future__ import annotations

from typing import Final

NARROW_SPACE: Final = "\N{NARROW NO-BREAK SPACE}"


def clean(text: object, keep: str = NARROW_SPACE) -> str:
    """Escapes every unprintable character: control characters, line ends, changes of the writing direction.

    Cleaning a text twice has the same result as cleaning it once. HTML needs its own escaping afterwards.

    Args:
        text: the text to show.
        keep: characters that are not escaped.
    """
    return "".join(letter if letter.isprintable() or letter in keep else escaped(letter) for letter in str(text))


def counted(count: int, noun: str) -> str:
    """Returns a number with its noun, in the singular for 1: "1 record", "0 records", "1 delivery".

    Args:
        count: the number before the noun.
        noun: the noun in the plural. The singular lacks the s at the end, and has y in place of `ies`.
    """
    if count != 1:
        return f"{count} {noun}"
    return f"1 {noun.removesuffix('ies')}y" if noun.endswith("ies") else f"1 {noun.removesuffix('s')}"


def escaped(letter: str) -> str:
    r"""Returns the escape sequence of a character: `\x1b`, `\u202e` or `\U000e0001`."""
    code = ord(letter)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
