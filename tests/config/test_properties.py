"""Java's properties files: escapes, continued lines and byte order marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcore.config.properties import read_properties
from kcore.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some.properties"


def values(file: Path, data: bytes) -> dict[str, str]:
    file.write_bytes(data)
    return {name: value for name, (value, _) in read_properties(file).items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("\ufeffa=b\r\n\ufeffc=d", {"a": "b", "\ufeffc": "d"}),
        ("  # comment=1\n!c=2\n\n \t\n a : b = c \n", {"a": "b = c"}),
        (r"a=C\:\\kafka\\ssl", {"a": r"C:\kafka\ssl"}),
        (r"a\=b\:c=d", {"a=b:c": "d"}),
        (r"p=\u0041\u00e9\ud83d\ude00\t.\n.\q.\"", {"p": 'Aé😀\t.\n.q."'}),
        ("p=end\\ ", {"p": "end "}),
        ("a=1,\\\n  2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=x\\\\\\\n y", {"a": "x\\y"}),
        ("a=x\\", {"a": "x"}),
        ("a=line\u2028sep\x0b\x85", {"a": "line\u2028sep"}),
        ("a=", {"a": ""}),
    ],
)
def test_properties_files_have_javas_syntax(file: Path, text: str, expected: dict[str, str]) -> None:
    assert values(file, text.encode()) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r"a=\uZZZZ", r"\u must be followed by four hexadecimal digits"),
        (r"a=\u12", r"\u must be followed by four hexadecimal digits"),
        (r"a=\ud83d", "a \\u escape is half of a surrogate pair"),
        ("ssl.key.password secret", "the line is not a setting; valid: name=value"),
        ("=x", "the line is not a setting; valid: name=value"),
    ],
)
def test_invalid_lines_are_refused_with_their_number(file: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        values(file, f"# comment\nx=1\n{text}\n".encode())
    assert str(refused.value) == f"{file}:3: {reason}"


def test_a_file_that_is_not_utf_8_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read as UTF-8: 'utf-8' codec"):
        values(file, b"a=\xff")
