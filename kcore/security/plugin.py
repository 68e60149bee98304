"""Loads the user's own objects that settings name."""

from __future__ import annotations

import importlib
from typing import Any

from kcore.errors import ConfigError


def load_object(name: str, setting: str) -> Any:
    """Imports the object that `package.module:name` refers to.

    Args:
        name: the setting's value.
        setting: the setting's name, for error messages.

    Raises:
        ConfigError: the object does not exist.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(f"{setting}={name} is not of the form package.module:name")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        hint = "; is its folder in PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigError(f"{setting}={name}: {error}{hint}") from None
