"""Tests of settings of listeners that `listeners` lacks: the server warns about them at its start."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kcore.cli import main
from kcore.config.node import Config
from kcore.config.values import AbsentListener
from kcore.server.unused_settings import warn_of_unused_settings

MAP = "listener.security.protocol.map"
LISTENERS = {"listeners": "INTERNAL://:1,EXTERNAL://:2", MAP: "INTERNAL:PLAINTEXT,EXTERNAL:SSL"}
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="p";'


def absent(settings: dict[str, str]) -> list[AbsentListener]:
    """Returns the settings of absent listeners; each was set in the line of a file that has its name."""
    values = LISTENERS | settings
    return Config(values, {name: f"file:{name}" for name in values}).of_absent_listeners()


@pytest.mark.parametrize(
    ("name", "value", "listener"),
    [
        ("listener.name.extrenal.ssl.client.auth", "required", "extrenal"),
        ("listener.name.other.max.connections", "5", "other"),
        ("listener.name.other.oauthbearer.sasl.oauthbearer.expected.issuer", "i", "other"),
        ("listener.name.other.scram-sha-256.sasl.jaas.config", SCRAM, "other"),
        ("listener.name.external.typo.ssl.client.auth", "required", "external.typo"),
    ],
)
def test_the_setting_of_an_absent_listener_is_found(name: str, value: str, listener: str) -> None:
    assert absent({name: value}) == [AbsentListener(name, listener, f"file:{name}")]
    assert name not in Config(LISTENERS | {name: value}).without_effect()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listener.name.external.ssl.client.auth", "required"),
        ("listener.name.external.max.connections", "5"),
        ("listener.name.internal.oauthbearer.sasl.oauthbearer.expected.issuer", "i"),
        ("listener.name.internal.scram-sha-256.sasl.jaas.config", SCRAM),
    ],
)
def test_the_setting_of_a_listener_is_used(name: str, value: str) -> None:
    assert absent({name: value}) == []


def test_an_entry_of_the_protocol_map_without_a_listener_is_found() -> None:
    """The names of Kafka's default map, such as SSL, need no listener."""
    protocols = f"{LISTENERS[MAP]},EXTRENAL:SASL_SSL,SSL:SSL"
    assert absent({MAP: protocols}) == [AbsentListener(f"{MAP}=EXTRENAL:SASL_SSL", "extrenal", f"file:{MAP}")]


def test_listeners_of_controllers_are_not_absent() -> None:
    """Kafka has these listeners. The warning about settings that only Kafka uses names their settings."""
    settings = {
        "controller.listener.names": "CONTROLLER",
        MAP: f"{LISTENERS[MAP]},CONTROLLER:SSL",
        "listener.name.controller.ssl.client.auth": "required",
    }
    assert absent(settings) == []
    assert Config(LISTENERS | settings).without_effect() == ["listener.name.controller.ssl.client.auth"]


def test_the_warning_names_the_setting_and_the_listeners(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "listener.name.extrenal.ssl.client.auth": "required",
        "num.io.threads": "8",
        MAP: f"{LISTENERS[MAP]},ZONE:SSL",
    }
    with caplog.at_level(logging.WARNING):
        warn_of_unused_settings(Config(LISTENERS | settings, dict.fromkeys(settings, "server.properties:3")))
    assert [record.getMessage() for record in caplog.records] == [
        "these settings of Apache Kafka have no effect in kcore: num.io.threads",
        "server.properties:3: listener.name.extrenal.ssl.client.auth has no effect, because `listeners` has no "
        "listener extrenal, but only external, internal; did you mean 'external'?",
        f"server.properties:3: {MAP}=ZONE:SSL has no effect, because `listeners` has no listener zone, but only "
        "external, internal",
    ]


def test_a_node_of_a_cluster_uses_settings_of_connections_between_nodes(caplog: pytest.LogCaptureFixture) -> None:
    names = [
        "listener.name.internal.scram-sha-256.sasl.jaas.config",
        "sasl.jaas.config",
        "ssl.endpoint.identification.algorithm",
    ]
    config = Config(LISTENERS | {names[0]: SCRAM, names[1]: SCRAM, names[2]: "", "num.io.threads": "8"})
    warn_of_unused_settings(config)
    warn_of_unused_settings(config, in_cluster=True)
    prefix = "these settings of Apache Kafka have no effect in kcore: "
    assert caplog.messages == [
        prefix + ", ".join([names[0], "num.io.threads", *names[1:]]),
        prefix + "num.io.threads",
    ]


@pytest.mark.parametrize("option", ["--data", "--cluster", "--processes=2"])
def test_each_kind_of_server_warns(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The data folder is a file, and the URL has an unknown scheme, so that the server ends after the warning."""
    file = tmp_path / "file"
    file.touch()
    target = {"--data": ["--data", str(file)], "--cluster": ["--cluster", "none:"]}
    arguments = target.get(option, [option, "--data", str(file)])
    listen = ["--listen", "127.0.0.1:39001"]
    assert main(["serve", *arguments, *listen, "-c", "listener.name.zone.max.connections=5"]) == 1
    (warning, *_) = capsys.readouterr().err.splitlines()
    assert warning.endswith(
        "-c: listener.name.zone.max.connections has no effect, because `listeners` has no listener zone, but only "
        "plaintext"
    )
