"""Settings of metrics subscriptions (KIP-714): bounds, selectors, and patterns that would block the node."""

from __future__ import annotations

import pytest

from kcore.broker.metadata.image import ConfigType
from tests.broker.context import BrokerContext

METRICS = ConfigType.CLIENT_METRICS
SET = 0


@pytest.mark.parametrize(
    ("name", "setting", "value", "code"),
    [
        ("m", "interval.ms", "1000", 0),
        ("m", "interval.ms", "99", 42),
        ("m", "interval.ms", "100", 0),
        ("m", "interval.ms", "3600000", 0),
        ("m", "interval.ms", "3600001", 42),
        ("m", "interval.ms", "x", 40),
        ("m", "metrics", "a.,b.", 0),
        ("m", "metrics", "a.,,b.", 40),
        ("m", "metrics", ",", 40),
        ("m", "match", "client_id=abc.*", 0),
        ("m", "match", "client_id", 40),
        ("m", "match", "nope=x", 40),
        ("m", "match", "client_id=[", 40),
        ("m", "match", "client_id = a.*,client_software_name=librdkafka", 0),
        ("m", "match", "client_id=a,client_id=b", 40),
        ("m", "nope", "x", 42),
        ("", "metrics", "*", 42),
    ],
)
def test_changes_of_a_metrics_subscription_are_checked_and_stored(
    name: str, setting: str, value: str, code: int
) -> None:
    """Changes are stored and described, with Kafka's checks (KIP-714)."""
    node = BrokerContext()
    assert node.alter(METRICS, name, (setting, SET, value)).error_code == code
    if code == 0:
        assert node.value(METRICS, name, setting) == (value, 7)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"match": "nope", "interval.ms": "1"}, 42),
        ({"interval.ms": "1", "metrics": ","}, 40),
        ({"metrics": ",", "nope": "x"}, 42),
    ],
)
def test_a_subscription_has_the_first_error_of_kafka(changes: dict[str, str], code: int) -> None:
    """Kafka checks the names of all settings first, then parses all values, and then checks the interval."""
    node = BrokerContext()
    assert node.alter(METRICS, "m", *((name, SET, value) for name, value in changes.items())).error_code == code


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)[" + "".join(f"{chr(0x100 + n)}-\uffff" for n in range(4_000)) + "]",  # Python's `re` would take minutes
        "(" * 15_000 + ")" * 15_000,
        "a{1001}",
        "(?=a)",
    ],
)
def test_hostile_patterns_of_a_metrics_subscription_are_refused(pattern: str) -> None:
    """RE2 compiles patterns of bounded size, so no pattern blocks the node. A refused pattern gets the error of an
    invalid pattern.
    """
    node = BrokerContext()
    refused = node.alter(METRICS, "m", ("match", SET, f"client_id={pattern}"))
    assert refused.error_code == 40
    assert (refused.error_message or "").startswith("the pattern of client_id is not valid: ")
