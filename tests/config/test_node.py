"""Settings: Kafka's names, types and bounds; the error for an invalid value names the valid values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.broker.configs.values import InvalidValueError, read_value
from kcore.config.node import Config
from kcore.config.setting import HIDDEN, Setting, SettingType
from kcore.errors import ConfigError

NAMES = sorted(Config.SETTINGS)


def test_names_are_kafkas_with_dots_and_attributes_with_underscores() -> None:
    config = Config()
    for name, entry in Config.SETTINGS.items():
        assert entry.name == name
        assert name == name.lower()
        assert "_" not in name
        assert getattr(config, name.replace(".", "_")) == config.get(name) == entry.default


def test_each_default_is_valid_and_round_trips_as_text() -> None:
    """The default's text in a properties file or in DescribeConfigs, when read, gives the default again.

    The exception is the data folder: an empty text is refused, because an unset variable may have caused it.
    """
    settings = {name: entry for name, entry in Config.SETTINGS.items() if name != "kcore.data.dir"}
    defaults = {name: entry.default for name, entry in settings.items()}
    texts = {name: entry.format(entry.default) for name, entry in settings.items()}
    assert {name: text is None for name, text in texts.items()} == {name: v is None for name, v in defaults.items()}
    assert {name: entry.parse(texts[name]) for name, entry in settings.items()} == defaults
    assert {name: entry.parse(defaults[name]) for name, entry in settings.items()} == defaults


def test_each_setting_has_a_description_and_valid_values() -> None:
    for name, entry in Config.SETTINGS.items():
        assert entry.doc.endswith("."), name
        assert entry.valid, name


@pytest.mark.parametrize("kind", ["INT", "SHORT", "LONG"])
def test_numbers_are_accepted_up_to_their_bounds(kind: str) -> None:
    entries = [entry for entry in Config.SETTINGS.values() if entry.type.name == kind]
    assert entries
    for entry in entries:
        low, high = entry._bounds()
        assert low <= high
        for value in (low, high):
            assert entry.parse(str(value)) == entry.parse(value) == value
        for value in (low - 1, high + 1):
            with pytest.raises(ConfigError, match=rf"out of range; valid: a whole number in {low}\.\.{high}"):
                entry.parse(str(value))
            with pytest.raises(ConfigError, match="out of range"):
                entry.parse(value)


@pytest.mark.parametrize("text", ["", " ", "x", "1.5", "0x10", "1_000 000", "ten", "1e3", "١٢٣x"])
def test_text_that_is_not_a_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a whole number"):
        Config.of({"group.max.size": text})


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("log.retention.ms", "1h", " (write a number without a unit, in milliseconds)"),
        ("log.retention.hours", "7 days", " (write a number without a unit, in hours)"),
        ("kcore.map.size", "10GB", " (write a number without a unit, in bytes)"),
        ("log.retention.bytes", "1.5G", " (write a number without a unit, in bytes)"),
        ("num.partitions", "3x", " (write a number without a unit)"),
        ("log.retention.ms", "1_h", ""),
        ("log.retention.ms", "1.5", ""),
    ],
)
def test_a_number_with_a_unit_is_refused_with_the_units_of_the_setting(name: str, text: str, hint: str) -> None:
    setting = Config.SETTINGS[name]
    with pytest.raises(ConfigError) as refused:
        setting.parse(text)
    assert str(refused.value) == f"{name}={text!r} is not a whole number{hint}; valid: {setting.valid}"
    with pytest.raises(InvalidValueError) as refused_at_run_time:
        read_value(setting, text)
    assert str(refused_at_run_time.value) == f"{name}={text!r}: not a whole number{hint}"


@pytest.mark.parametrize("value", [1.5, "1.5", True, [1]])
def test_typed_values_are_checked_like_text(value: object) -> None:
    with pytest.raises(ConfigError):
        Config.of({"group.max.size": value})


@pytest.mark.parametrize(
    ("given", "read"), [("true", True), (" TRUE ", True), ("False", False), (True, True), (False, False)]
)
def test_booleans_are_read(given: object, read: bool) -> None:
    assert Config.of({"delete.topic.enable": given}).delete_topic_enable is read


@pytest.mark.parametrize("given", ["yes", "1", "", 1, 0, None])
def test_text_that_is_not_a_boolean_is_refused(given: object) -> None:
    with pytest.raises(ConfigError):
        Config.of({"delete.topic.enable": given})


@pytest.mark.parametrize("given", ["nan", "inf", "-inf", "-0.1", "1.1", "much", float("nan")])
def test_ratios_are_between_0_and_1(given: object) -> None:
    with pytest.raises(ConfigError, match=r"valid: a number from 0 to 1"):
        Config.of({"log.cleaner.min.cleanable.ratio": given})


@pytest.mark.parametrize(("given", "read"), [(None, None), ("", ""), (" ", ""), ("hush", "hush")])
def test_a_set_password_is_hidden_even_if_it_is_empty(given: str | None, read: str | None) -> None:
    """As in Kafka, a password that is not set is null, and any other password is shown as [hidden]."""
    config = Config.of({"ssl.key.password": given})
    assert config.ssl_key_password == read
    (row,) = [entry for entry in config.effective() if entry.setting.name == "ssl.key.password"]
    assert row.setting.format(row.value) == (None if read is None else "[hidden]")


def test_lists_are_read() -> None:
    for value in (" compact , delete ,", ("compact", "delete"), ["compact", "delete"]):
        assert Config.of({"log.cleanup.policy": value}).log_cleanup_policy == ("compact", "delete")
    with pytest.raises(
        ConfigError, match="contains 'shred', which is not supported; valid: a list of 'compact', 'delete'"
    ):
        Config.of({"log.cleanup.policy": "compact,shred"})


def test_the_migration_policy_may_be_written_in_any_case() -> None:
    """Upper and lower case are valid, as in Kafka. The error for an invalid policy says so."""
    assert Config.of({"group.consumer.migration.policy": "UpGrade"}).group_consumer_migration_policy == "UpGrade"
    with pytest.raises(
        ConfigError,
        match=r"='up' is not supported; valid: one of 'disabled', .*'bidirectional', in upper or lower case$",
    ):
        Config.of({"group.consumer.migration.policy": "up"})


def test_only_settings_without_a_default_may_be_none() -> None:
    assert Config.of({"log.retention.ms": None}).log_retention_ms is None
    with pytest.raises(ConfigError, match="is missing"):
        Config.of({"group.max.size": None})


def test_unknown_settings_are_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'group\.max\.sice'; did you mean 'group\.max\.size'\?"):
        Config.of({"group.max.sice": 1})
    with pytest.raises(ConfigError, match=r"unknown setting 'zzz'$"):
        Config.of({"zzz": 1})


def test_attribute_names_are_accepted_too() -> None:
    assert Config.of(group_max_size=7).group_max_size == 7
    with pytest.raises(ConfigError, match="unknown setting"):
        Config.of(group_max_sice=7)


def test_each_value_has_its_source() -> None:
    config = Config({"group.max.size": "7"}, {"group.max.size": "server.properties:3"})
    assert (config.source("group.max.size"), config.source("node.id")) == ("server.properties:3", "default")
    config.set("node.id", "5", "-c")
    row = next(entry for entry in config.effective() if entry.setting.name == "node.id")
    assert (row.value, row.source) == (5, "-c")
    config.reset("node.id")
    assert (config.node_id, config.source("node.id")) == (Config.SETTINGS["node.id"].default, "default")


def test_a_refused_value_changes_nothing() -> None:
    config = Config.of({"group.max.size": 7})
    with pytest.raises(ConfigError):
        config.set("group.max.size", "0", "-c")
    assert (config.group_max_size, config.source("group.max.size")) == (7, "given")


def test_configurations_do_not_share_values() -> None:
    first, second = Config(), Config()
    first.set("group.max.size", 3, "test")
    assert second.group_max_size == Config.SETTINGS["group.max.size"].default


def test_a_setting_may_check_more() -> None:
    even = Setting("even", SettingType.INT, 0, "Even.", check=lambda value: "is odd" if value % 2 else None)
    assert even.parse("4") == 4
    with pytest.raises(ConfigError, match="even='3' is odd"):
        even.parse("3")


@given(st.sampled_from(NAMES), st.one_of(st.text(max_size=20), st.integers(), st.floats(), st.booleans(), st.none()))
def test_any_value_is_accepted_or_refused_with_a_reason(name: str, value: object) -> None:
    """An invalid value raises only ConfigError, and an accepted value round-trips as text."""
    entry = Config.SETTINGS[name]
    try:
        parsed = entry.parse(value)
    except ConfigError as refusal:
        assert str(refusal).startswith(f"{name}=")  # noqa: PT017  # both ends are right
        return
    text = entry.format(parsed)
    if entry.type is SettingType.PASSWORD:
        assert text == (None if parsed is None else HIDDEN), "a secret is shown as hidden, even if it is empty"
    elif text is not None and entry.type is not SettingType.STRING and entry.type is not SettingType.LIST:
        assert entry.parse(text) == parsed


@pytest.mark.parametrize("value", [10**5_000, -(10**5_000), "9" * 5_000], ids=["positive", "negative", "text"])
def test_an_integer_of_thousands_of_digits_is_out_of_range(value: Any) -> None:
    with pytest.raises(ConfigError, match="valid: a whole number in"):
        Config.of({"num.partitions": value})
