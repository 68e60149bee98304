"""Reads Java's properties files as Kafka's own tools do."""

from __future__ import annotations

from pathlib import Path

from kcore.errors import ConfigError


def read_properties(path: Path) -> dict[str, tuple[str, str]]:
    """Reads a Java properties file.

    Args:
        path: the file. It may have comments (# and !), blank lines, continued lines (a backslash at the end), and `=`
            or `:` between key and value, as in Kafka's own files.

    Returns:
        Key -> (value, "FILE:LINE"); the last value of a repeated key, as in Java.

    Raises:
        ConfigError: the file cannot be read, or a line is not a setting.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    found: dict[str, tuple[str, str]] = {}
    line, first = "", 0
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        part = raw.strip()
        if not line:
            if not part or part[0] in "#!":
                continue
            first = number
        line += part
        if line.endswith("\\") and not line.endswith("\\\\"):
            line = line[:-1]
            continue
        positions = [at for at in (line.find("="), line.find(":")) if at > 0]
        if not positions:
            raise ConfigError(f"{path}:{first}: {line!r} is no setting; valid: name=value")
        at = min(positions)
        found[line[:at].strip()] = (line[at + 1 :].strip(), f"{path}:{first}")
        line = ""
    return found
