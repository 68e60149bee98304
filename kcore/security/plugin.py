"""Objects of the user's own that a setting names."""

from __future__ import annotations

import importlib
from typing import Any

from kcore.errors import ConfigError


def load_object(name: str, setting: str) -> Any:
    """What `package.module:name` means.

    Args:
        name: the setting's value.
        setting: the setting's name, for the text of an error.

    Raises:
        ConfigError: there is no such thing.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(f"{setting}={name} is no package.module:name")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        hint = "; is its folder in PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigError(f"{setting}={name}: {error}{hint}") from None
