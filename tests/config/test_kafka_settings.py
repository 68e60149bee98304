"""Tests that kcore starts with Kafka's own configuration files, although it does not use all of their settings."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kcore.broker.metadata.image import ConfigType
from kcore.cli.properties import make_config
from kcore.config.kafka_settings import (
    KEPT_FOR_TOOLS,
    NO_WARNING,
    THREAD_POOLS,
    UNSUPPORTED,
    kafka_settings,
    unlisted_settings,
)
from kcore.config.node import Config
from kcore.config.setting import SettingType
from kcore.config.values import SAME_AS
from kcore.errors import ConfigError
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.server.listeners import Listener, format_address, own_address, parse_listeners
from tests.broker.context import NODE_ID, BrokerContext
from tests.harness import EngineHarness

STOCK = """\
# The settings of config/server.properties in Kafka's archive, with other ports.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:{port},CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={folder}
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
IGNORED = [
    "controller.quorum.bootstrap.servers",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
]


def test_kafkas_own_file_starts_a_server(tmp_path: Path) -> None:
    """The data folder is log.dirs, the server has no listener for the controller, and one warning names the settings
    without effect.
    """
    folder = tmp_path / "logs"
    file = tmp_path / "server.properties"
    file.write_text(STOCK.format(port=0, folder=folder))
    process = subprocess.Popen(
        [sys.executable, "-m", "kcore", "serve", "--config", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    listening = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 0, stderr
    assert listening.startswith("kcore: PLAINTEXT listening on ")
    assert folder.is_dir()
    assert stderr.count("\n") == 1
    assert stderr.rstrip().endswith(f"these settings of Apache Kafka have no effect in kcore: {', '.join(IGNORED)}")


def test_the_warning_names_every_documented_setting_without_effect() -> None:
    """The warning names all settings that docs/settings.md lists as without effect: both come from one table."""
    documented = re.findall(
        r"^\| `([a-z.]+)` .*\| Without effect: ",
        (Path(__file__).parents[2] / "docs" / "settings.md").read_text(),
        re.MULTILINE,
    )
    assert {"log.index.interval.bytes", "log.preallocate", "log.segment.delete.delay.ms"} <= {*documented}
    assert {"log.flush.interval.messages", "log.local.retention.ms"} <= {*documented}
    values = {name: "true" if Config.SETTINGS[name].type is SettingType.BOOLEAN else "5" for name in documented}
    values |= {"listeners": "SSL://:1", "log.retention.ms": "5", "log.flush.interval.ms": "5"}
    config = Config(values)
    assert config.without_effect() == sorted([*documented, "log.flush.interval.ms"])
    assert Config().without_effect() == []


def test_kafkas_names_for_settings_of_kcore_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    stock = STOCK.replace("node.id=1", "broker.id=7")
    file.write_text(stock.format(port=9092, folder="/var/lib/kafka"))
    config = make_config(file, [], {})
    assert (config.node_id, config.kcore_data_dir, config.get("log.dirs")) == (7, "/var/lib/kafka", ("/var/lib/kafka",))
    assert config.without_effect() == IGNORED
    assert parse_listeners(config) == [Listener("PLAINTEXT", "", 9092, "localhost", 9092)]
    assert make_config(file, [], {"kcore.data.dir": "/elsewhere"}).kcore_data_dir == "/elsewhere"


def test_unequal_values_of_node_id_and_broker_id_are_refused(tmp_path: Path) -> None:
    """As in Kafka, different values are refused. The option --node-id replaces the values of both settings."""
    file = tmp_path / "server.properties"
    file.write_text("broker.id=2\n")
    for assignments in (["broker.id=2", "node.id=1"], ["node.id=1", "broker.id=2"]):
        with pytest.raises(ConfigError, match=r"^-c: node\.id=1 differs from broker\.id=2 \(-c\)"):
            make_config(None, assignments, {})
    with pytest.raises(ConfigError, match=r"^-c: node\.id=1 differs from broker\.id=2 \(.*server\.properties:1\)"):
        make_config(file, ["node.id=1"], {})
    assert make_config(file, ["node.id=2"], {}).node_id == 2
    assert make_config(file, [], {"node.id": "3"}).node_id == 3


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        ("num.io.thread", "8", "unknown setting 'num.io.thread'"),
        ("num.io.threads", "0", "num.io.threads='0' is out of range"),
        ("num.io.threads", "x", "num.io.threads='x' is not a whole number"),
        ("log.dirs", "/a,/b", "log.dirs=/a,/b: kcore keeps its data in a single folder; set only one path"),
        (
            "process.roles",
            "controller",
            "process.roles=controller: kcore is a broker; valid: broker or broker,controller",
        ),
        ("max.connections.per.ip.overrides", "10.0.0.1", "is not valid: '10.0.0.1' is not ADDRESS:COUNT"),
        ("max.connections.per.ip.overrides", "example.org:1", "'example.org' is not an IP address"),
        ("max.connections.per.ip.overrides", "::1:1,[0::1]:2", "::1 is in the list twice"),
    ],
)
def test_mistakes_stay_fatal(setting: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Config({setting: value})
    assert text in str(raised.value)
    assert "valid: any text" not in str(raised.value)


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_settings_that_would_break_a_promise_are_refused(name: str) -> None:
    """Some settings are valid only with their default. Another value is refused in a file and at run time.

    The error of the file says that kcore does not support the value.
    """
    setting = kafka_settings()[name]
    value = "true" if isinstance(setting.default, bool) else "x"
    with pytest.raises(ConfigError, match="is not supported by kcore: "):
        Config({name: value})
    Config({name: setting.format(setting.default) or ""})
    assert BrokerContext().alter(ConfigType.BROKER, str(NODE_ID), (name, 0, value)).error_code == 42


def test_every_other_setting_of_kafka_is_accepted_with_its_default() -> None:
    config = Config()
    for name, setting in kafka_settings().items():
        if name not in Config.SETTINGS and setting.default is not None:
            shown = ",".join(setting.default) if isinstance(setting.default, tuple) else str(setting.default)
            if name not in {"process.roles", "broker.id", "log.dirs", "log.dir"}:
                config.set(name, shown.lower() if isinstance(setting.default, bool) else shown, "test")
                assert config.get(name) == setting.default


def test_a_number_of_threads_may_at_most_double_or_halve() -> None:
    node = BrokerContext()
    for name in THREAD_POOLS:
        present = node.config.get(name)
        for value, code in ((0, 42), (2 * present, 0), (4 * present + 1, 42), (present, 0), (-1, 42)):
            assert node.alter(ConfigType.BROKER, str(NODE_ID), (name, 0, str(value))).error_code == code, (name, value)
        assert node.alter(ConfigType.BROKER, str(NODE_ID), (name, 1, None)).error_code == 0
        assert node.config.get(name) == present


def test_replication_quotas_are_listed_once_they_are_set() -> None:
    node = BrokerContext()
    name = "leader.replication.throttled.rate"
    assert name in unlisted_settings()
    assert node.describe(ConfigType.BROKER, str(NODE_ID), name).configs == ()
    assert node.alter(ConfigType.BROKER, str(NODE_ID), (name, 0, "1000")).error_code == 0
    (shown,) = node.describe(ConfigType.BROKER, str(NODE_ID), name).configs
    assert (shown.value, shown.config_source, shown.read_only, shown.config_type) == ("1000", 2, False, 5)


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_a_listener_on_every_address_advertises_one_that_can_be_reached(host: str) -> None:
    (listener,) = parse_listeners(Config({"listeners": f"PLAINTEXT://{host}:9092"}))
    assert listener.advertised_host == own_address(host)
    assert listener.advertised_host not in {"", "0.0.0.0", "::"}


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_advertised_address_must_be_one_that_clients_can_connect_to(host: str) -> None:
    config = Config({"listeners": "PLAINTEXT://:9092", "advertised.listeners": f"PLAINTEXT://{host}:9092"})
    with pytest.raises(ConfigError) as raised:
        parse_listeners(config)
    assert str(raised.value) == (
        f"advertised.listeners=PLAINTEXT://{host}:9092: clients cannot connect to {host.strip('[]')}; "
        "name an address that they can reach"
    )


def test_an_advertised_listener_without_a_host_has_the_address_of_this_machine() -> None:
    config = Config({"listeners": "PLAINTEXT://127.0.0.1:9092", "advertised.listeners": "PLAINTEXT://:9093"})
    assert parse_listeners(config) == [Listener("PLAINTEXT", "127.0.0.1", 9092, own_address(""), 9093)]


@pytest.mark.parametrize(("listener", "host"), [("127.0.0.1:0", "127.0.0.1"), (":0", own_address(""))])
def test_an_advertised_listener_without_host_and_port_has_the_address_of_the_listener(listener: str, host: str) -> None:
    """The advertised host of a loopback listener is the loopback address, because no other address of the machine
    reaches it.

    If the listener has no host either, the advertised host is the address of this machine.
    """
    config = Config({"listeners": f"PLAINTEXT://{listener}", "advertised.listeners": "PLAINTEXT://:0"})
    (parsed,) = parse_listeners(config)
    assert (parsed.advertised_host, parsed.advertised_port) == (host, 0)


@pytest.mark.parametrize(
    ("host", "text"), [("", "0.0.0.0:9092"), ("0.0.0.0", "0.0.0.0:9092"), ("::1", "[::1]:9092"), ("::", "[::]:9092")]
)
def test_an_address_is_shown_as_clients_write_it(host: str, text: str) -> None:
    assert format_address(host, 9092) == text


def test_changes_at_run_time_have_an_effect() -> None:
    """A change takes effect for assignment intervals, the verification of transactions, and the expiry of producers."""
    node = BrokerContext()
    for kind in ("consumer", "share", "streams"):
        key = f"{kind}.assignment.interval.ms"
        assert node.alter(ConfigType.BROKER, "", (f"group.{key}", 0, "1001")).error_code == 0
        assert node.control.group_configs.get("g", key) == 1001
    assert node.alter(ConfigType.BROKER, "", ("producer.id.expiration.ms", 0, "100")).error_code == 0
    assert node.config.producer_id_expiration_ms == 100


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_an_assignment_interval_stays_within_its_bounds(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """A change is refused if the effective value would exceed a bound. If a stored value exceeds a bound, the broker
    uses the bound, because no server could start with the stored value.
    """
    name, most = f"group.{kind}.assignment.interval.ms", f"group.{kind}.max.assignment.interval.ms"
    node = EngineHarness({most: 20_000})

    def alter(value: str | None, broker: str = "") -> tuple[int, str | None]:
        configs = [AlterableConfig(name=name, config_operation=int(value is None), value=value)]
        resource = AlterConfigsResource(resource_type=ConfigType.BROKER, resource_name=broker, configs=configs)
        (result,) = node.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
        return result.error_code, result.error_message

    refused = (42, f"{name}=20001 must be within group.{kind}.min.assignment.interval.ms=0 and {most}=20000")
    assert alter("20001") == refused
    assert alter("20001", str(NODE_ID)) == refused
    assert alter("20000") == (0, None)
    assert alter("1002", str(NODE_ID)) == (0, None)
    assert alter("20001") == (0, None), "the broker's own value takes precedence"
    assert alter(None, str(NODE_ID)) == refused
    assert alter("20000") == (0, None)
    assert alter(None, str(NODE_ID)) == (0, None)
    node.restart()
    assert node.engine.config.get(name) == 20_000
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    node.settings[most] = "15000"
    node.restart()
    assert node.engine.config.get(name) == 15_000
    assert any(f"{name}=20000 must be within" in line and "uses 15000" in line for line in caplog.messages)
    assert alter("14000") == (0, None)
    assert node.engine.config.get(name) == 14_000
    node.close()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("listener.name.plaintext.ssl.client.auth", "cannot be changed while the broker runs"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "cannot be changed while the broker runs"),
        ("listener.name.plaintext.num.partitions", "cannot be set for a single listener"),
        ("listener.name.plaintext.ssl.keystore.locatoin", "cannot be set for a single listener"),
        ("sasl.jaas.config", "cannot be changed while the broker runs"),
    ],
)
@pytest.mark.parametrize("broker", [str(NODE_ID), ""])
def test_settings_of_listeners_are_refused_at_run_time(name: str, reason: str, broker: str) -> None:
    """A running node cannot use such a change, so it refuses and does not store the change.

    The error message omits the value, which may be a password.
    """
    node = BrokerContext()
    before = dict(node.topics.settings_of(ConfigType.BROKER, broker))
    response = node.alter(ConfigType.BROKER, broker, (name, 0, "hush"))
    assert response.error_code == 42
    assert name in response.error_message
    assert response.error_message.endswith(reason), "the message ends with the reason, and has no value"
    assert node.topics.settings_of(ConfigType.BROKER, broker) == before


def test_settings_that_are_kept_for_kafkas_tools_are_named_if_they_are_given() -> None:
    assert Config().without_effect() == []
    config = Config({name: Config.SETTINGS[name].default for name in KEPT_FOR_TOOLS} | {"log.segment.bytes": 1 << 20})
    assert config.without_effect() == sorted(KEPT_FOR_TOOLS)
    kept = {name for name, entry in Config.SETTINGS.items() if entry.doc.startswith("Without effect: ")}
    assert kept == KEPT_FOR_TOOLS


def test_every_setting_is_changed_refused_or_named_as_without_effect() -> None:
    """A change at run time has one of three results for every setting: the change is refused, the node has the new
    value, or a warning says that the setting has no effect.
    """
    for name in sorted({*kafka_settings(), *Config.SETTINGS}):
        node = BrokerContext()
        setting = node.config.setting(name)
        assert setting is not None
        before = node.config.get(name)
        text = ",".join(before) if isinstance(before, tuple) else "1" if before is None else str(before).lower()
        refused = node.alter(ConfigType.BROKER, "", (name, 0, text)).error_code == 42
        if not setting.dynamic:
            assert refused
            assert (node.config.get(name), node.config.source(name)) == (before, "default")
        elif not refused:
            assert node.config.source(name) == "dynamic"
            known = name in Config.SETTINGS or name in SAME_AS or name in NO_WARNING
            assert (name in node.config.without_effect()) is (name in KEPT_FOR_TOOLS or not known)
