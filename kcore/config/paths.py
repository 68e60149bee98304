"""Checks of the paths of folders in settings, arguments and options."""

from __future__ import annotations

import os

from kcore.errors import ConfigError


def path_fault(path: str) -> str | None:
    """Returns the problem of a path that probably results from a mistake of a script or a unit file, or None.

    An empty path is an unset variable, and would name the working folder. A path that begins with `~` was not expanded
    by a shell, and would name a folder `~` in the working folder.
    """
    if not path.strip():
        return "is empty; name a folder"
    if path.startswith("~"):
        return (
            "begins with ~, which kcore does not expand; write the whole path of the home folder, or ./ in front of a "
            "name that begins with ~"
        )
    return None


def check_path(name: str, path: str | os.PathLike[str]) -> None:
    """Raises ConfigError if a path is probably a mistake.

    Args:
        name: the name of the argument or option.
        path: the path, or a URI.
    """
    text = str(path)
    if (fault := path_fault(text)) is not None:
        raise ConfigError(f"{name}={text!r} {fault}" if text.strip() else f"{name} {fault}")
