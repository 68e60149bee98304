"""Reads Java's properties files as Kafka's own tools do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kcore.errors import ConfigError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_SEPARATOR = re.compile(r"(?:\\.|[^\\=:])+?(?=[=:])", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, tuple[str, str]]:
    """Reads a Java properties file.

    Args:
        path: the file, in UTF-8 with or without a byte order mark. It may have comments (# and !), blank lines,
            continued lines (an odd number of backslashes at the end), `=` or `:` between key and value, and Java's
            escapes: a backslash before a character stands for that character, except `\\t`, `\\n`, `\\r`, `\\f` and
            `\\uXXXX`.

    Returns:
        Key -> (value, "FILE:LINE"). If a key is repeated, its last value counts, as in Java.

    Raises:
        ConfigError: the file cannot be read, a line is not a setting, or an escape is invalid.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8: {error}") from error
    found: dict[str, tuple[str, str]] = {}
    for number, line in _logical_lines(text):
        source = f"{path}:{number}"
        separator = _SEPARATOR.match(line)
        if separator is None:
            # The message does not show the line, which may contain a password or a part of a private key.
            raise ConfigError(f"{source}: the line is not a setting; valid: name=value")
        name = _unescaped(separator[0].rstrip(_BLANKS), source)
        found[name] = (_unescaped(_stripped(line[separator.end() + 1 :]), source), source)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the number of the first line and the text of each setting. Skips comments, and joins continued lines."""
    line, first = "", 0
    for number, raw in enumerate([*_LINE_END.split(text), ""], 1):
        part = raw.lstrip(_BLANKS)
        if not line:
            if not part.strip() or part[0] in "#!":
                continue
            first = number
        line += part
        if (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1]
        elif line:
            yield first, line
            line = ""


def _stripped(value: str) -> str:
    """Removes white space around a value, except an escaped blank at its end."""
    kept = value.strip()
    return f"{kept} " if len(value.rstrip()) < len(value) and _ends_with_escape(kept) else kept


def _ends_with_escape(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _unescaped(text: str, source: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise ConfigError(f"{source}: \\u must be followed by four hexadecimal digits")
        return _LETTERS.get(escaped, escaped)

    if "\\" not in text:
        return text
    decoded = _ESCAPE.sub(character, text)
    try:
        # Java's escapes are UTF-16 code units: two of them are one character beyond U+FFFF.
        return decoded.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigError(f"{source}: a \\u escape is half of a surrogate pair") from None
