"""Checks the settings of groups against the settings that contain their minimum and maximum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcore.config.node import Config


def beyond_bounds(config: Config, name: str, value: Any) -> str | None:
    """Describes the problem of a value that is out of its bounds; None if the value is within them.

    For example, the bounds of `group.share.session.timeout.ms` are the settings `group.share.min.session.timeout.ms`
    and `group.share.max.session.timeout.ms`.

    Args:
        config: the settings, which contain the bounds.
        name: the name of the group setting.
        value: the value to check.
    """
    low, high = _bounds(name)
    least, most = config.get(low), config.get(high)
    return None if least <= value <= most else f"{name}={value} must be within {low}={least} and {high}={most}"


def within_bounds(config: Config, name: str, value: int) -> int:
    """Returns the value of a group setting, or the bound that it exceeds.

    Args:
        config: the settings, which contain the bounds.
        name: the name of the group setting.
        value: the value to limit.
    """
    low, high = _bounds(name)
    least: int = config.get(low)
    most: int = config.get(high)
    return min(max(value, least), most)


def _bounds(name: str) -> tuple[str, str]:
    """Returns the names of the settings with the minimum and the maximum of a group setting."""
    _, kind, rest = name.split(".", 2)
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
