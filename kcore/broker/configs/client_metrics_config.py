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


def _empty_fault(value: tuple[str, ...]) -> str | None:
    return None if all(value) else "an element is empty"


CLIENT_METRICS_SETTINGS: dict[str, Setting] = {
    "interval.ms": Setting(
        "interval.ms",
        SettingType.INT,
        300_000,
        "Time between two pushes of a client's metrics.",
        dynamic=True,
    ),
    "match": Setting(
        "match",
        SettingType.LIST,
        (),
        "Selectors of the clients that push, each selector=pattern.",
        dynamic=True,
        check=_empty_fault,
    ),
    "metrics": Setting(
        "metrics",
        SettingType.LIST,
        (),
        "Prefixes of the metrics to push; * is all.",
        dynamic=True,
        check=_empty_fault,
    ),
}
"""Name -> setting, for client metrics subscriptions."""


def check_client_metrics(name: str, own: Mapping[str, str]) -> None:
    """Checks the settings of a subscription.

    Args:
        name: the subscription's name.
        own: the settings of the subscription, name -> text.

    Raises:
        KafkaError: INVALID_REQUEST for an empty name, an unknown setting or an interval out of bounds, INVALID_CONFIG
            for an invalid selector or pattern.
        InvalidValueError: a value cannot be parsed.
    """
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a metrics subscription needs a name")
    unknown = next((each for each in own if each not in CLIENT_METRICS_SETTINGS), None)
    if unknown is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a metrics subscription has no setting {unknown!r}")
    values = {each: read_value(CLIENT_METRICS_SETTINGS[each], text) for each, text in own.items()}
    interval_ms = values.get("interval.ms", MIN_INTERVAL_MS)
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"interval.ms={interval_ms} is out of bounds; valid: {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}",
        )
    _check_selectors(values.get("match", ()))


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
