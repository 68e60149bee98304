"""Settings of metrics subscriptions (KIP-714).

They are stored and described, but have no effect, because the server accepts no metrics.
"""

from __future__ import annotations

from collections.abc import Mapping

from kcore.broker.configs.values import read_value
from kcore.config.setting import Setting, SettingType
from kcore.errors import KafkaError
from kcore.patterns import PatternError, compile_pattern
from kcore.protocol.error_codes import ErrorCode

SELECTORS = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""Client properties that a subscription can match."""

MIN_INTERVAL_MS, MAX_INTERVAL_MS = 100, 3_600_000

CLIENT_METRICS_SETTINGS: dict[str, Setting] = {
    "interval.ms": Setting(
        "interval.ms",
        SettingType.INT,
        300_000,
        "Time between two pushes of a client's metrics.",
        dynamic=True,
    ),
    "match": Setting(
        "match", SettingType.LIST, (), "Selectors of the clients that push, each selector=pattern.", dynamic=True
    ),
    "metrics": Setting("metrics", SettingType.LIST, (), "Prefixes of the metrics to push; * is all.", dynamic=True),
}
"""Name -> setting, for client metrics subscriptions."""


def check_client_metrics(name: str, own: Mapping[str, str]) -> None:
    """Checks the settings of a subscription.

    Args:
        name: the subscription's name.
        own: its settings, name -> text.

    Raises:
        KafkaError: INVALID_REQUEST for an empty name, an unknown setting or an interval out of bounds, INVALID_CONFIG
            for an invalid selector or pattern.
        InvalidValueError: a value cannot be parsed.
    """
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a metrics subscription needs a name")
    for setting_name, text in own.items():
        setting = CLIENT_METRICS_SETTINGS.get(setting_name)
        if setting is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a metrics subscription has no setting {setting_name!r}")
        value = read_value(setting, text)
        if setting_name == "interval.ms" and not MIN_INTERVAL_MS <= value <= MAX_INTERVAL_MS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"interval.ms={value} is out of bounds; valid: {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}",
            )
        if setting_name == "match":
            _check_selectors(value)


def _check_selectors(parts: tuple[str, ...]) -> None:
    """Checks the selectors of a subscription. Each may occur once, which bounds the time to compile their patterns."""
    selectors: set[str] = set()
    for part in parts:
        selector, equals, pattern = (text.strip() for text in part.partition("="))
        if not equals or selector not in SELECTORS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{part!r} does not have the form selector=pattern")
        if selector in selectors:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the selector {selector} is given twice")
        selectors.add(selector)
        try:
            compile_pattern(pattern)
        except PatternError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the pattern of {selector} is not valid: {error}") from None
