"""Settings from where people write them: a properties file, `-c key=value`, the verb's own options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kcore.config import Config
from kcore.errors import ConfigError


def read_properties(path: Path) -> dict[str, tuple[str, str]]:
    """Reads a Java properties file.

    Args:
        path: the file. Comments (# and !), blank lines, continued lines (a backslash at the end), and `=` or `:`
            between key and value are understood, as Kafka's own files use them.

    Returns:
        Key -> (value, "FILE:LINE"); of a key given twice the last counts, as in Java.

    Raises:
        ConfigError: the file cannot be read, or a line is no setting.
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


def make_config(file: Path | None, assignments: Iterable[str], options: dict[str, str]) -> Config:
    """The configuration of a node: file, then `-c`, then the verb's own options, each over the one before.

    Settings that Kafka has and kcore does not are refused like any unknown one, with the place where they stand.

    Raises:
        ConfigError: a setting is unknown or not valid; the message says where it stands and what is valid.
    """
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    for name, (value, source) in (read_properties(file) if file is not None else {}).items():
        values[name], sources[name] = value, source
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"-c {assignment!r} is no setting; valid: -c name=value")
        values[name.strip()], sources[name.strip()] = value.strip(), "-c"
    for name, value in options.items():
        values[name], sources[name] = value, "command line"
    config = Config()
    for name, value in values.items():
        try:
            config.set(name, value, sources[name])
        except ConfigError as error:
            raise ConfigError(f"{sources[name]}: {error}") from None
    return config
