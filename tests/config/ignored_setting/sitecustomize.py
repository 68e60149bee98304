"""Makes kcore ignore one setting, in this process and in its child processes.

A test that depends on the setting must then fail. Python runs this module at its start if the folder of this file is in
PYTHONPATH. The variable KCORE_IGNORED_SETTING names the setting: NAME gives the setting its default, NAME=VALUE this
value.
"""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "KCORE_IGNORED_SETTING"


def fixed(name: str, text: str | None = None) -> tuple[type, str, Any]:
    """Returns the replacement of a class attribute that makes a setting ineffective, as (class, attribute name, new
    value).

    Args:
        name: the setting.
        text: the value that it has from now on; None: its default.
    """
    from kcore.config.node import Config
    from kcore.config.security import SecuritySettings

    entry = Config.SETTINGS.get(name)
    if entry is None:
        original = Config._set_foreign

        def set_others(self: Config, other: str, value: Any, source: str) -> None:
            if other != name:
                original(self, other, value, source)

        return Config, "_set_foreign", set_others
    value = entry.default if text is None else entry.parse(text)
    attribute = name.replace(".", "_")
    owner = SecuritySettings if attribute in SecuritySettings.__annotations__ else Config
    return owner, attribute, property(lambda _: value, lambda _, ignored: None)


if VARIABLE in os.environ:
    setting, _, value = os.environ[VARIABLE].partition("=")
    setattr(*fixed(setting, value or None))
