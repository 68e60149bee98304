"""Checks that every setting has the effect that kcore documents: by a check in this file, or by a test that depends on
the setting. A new setting must have one of these two. If a row names a test, the test must exist and contain the
setting's name.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import NameOID

import kcore
from kcore.broker.configs.group_config import GROUP_SETTINGS
from kcore.broker.configs.topic_schema import TOPIC_SETTINGS
from kcore.broker.data.client_quotas import ClientQuotas
from kcore.broker.metadata.image import ConfigType
from kcore.broker.metadata.topics import Topics
from kcore.clock import ManualClock, Now
from kcore.config.kafka_settings import NO_WARNING
from kcore.config.node import Config
from kcore.config.setting import Setting, SettingType
from kcore.config.values import SAME_AS
from kcore.engine import Engine
from kcore.errors import ConfigError
from kcore.log import MemoryLogEngine
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.runtime import Pending, RequestContext
from kcore.server.authentication import ListenerSecurity
from kcore.server.jwt_validator import KeySet
from kcore.server.listeners import parse_listeners
from kcore.server.mechanisms import exchange_maker
from kcore.server.tls import server_context
from tests.broker.context import BrokerContext
from tests.config.effects import INDIRECT, NAMED, VALIDATED
from tests.config.ignored_setting.sitecustomize import fixed
from tests.config.node_checks import NODE_CHECKS
from tests.security.certificates import Authority

TESTS = Path(__file__).parents[1]


def engine(**settings: Any) -> Engine:
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return Engine(MemoryLogEngine(), Config.of(named), ManualClock())


def error_of(response: Any) -> int | None:
    """Returns the error code of a response, or None if the response is not complete."""
    if isinstance(response, Pending):
        return None if response.response is None else int(response.response.error_code)
    return int(response.error_code)


# ---------------------------------------------------------------- settings of groups

GROUPS = {
    name: (row, role)
    for row in GROUP_SETTINGS.values()
    for role, name in (("value", row.broker), ("least", row.least), ("most", row.most))
    if name is not None
}


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_settings_of_groups_have_an_effect(name: str) -> None:
    """The broker's value applies to groups without a value of their own. The broker's bounds limit groups' own
    values.
    """
    row, role = GROUPS[name]
    assert row.broker is not None
    default = Config.of()
    key, value = row.setting.name, default.get(row.broker)
    present = default.get(name)
    changed = present - 1 if role == "least" and present == value else present + 1
    node = BrokerContext({name: changed})
    assert node.control.group_configs.get("g", key) == (changed if role == "value" else value)
    if role != "value":
        beyond = changed + 1 if role == "most" else changed - 1
        assert node.alter(ConfigType.GROUP, "g", (key, 0, str(beyond))).error_code == 40, (
            "a value beyond the bound is accepted"
        )
        assert node.alter(ConfigType.GROUP, "g", (key, 0, str(changed))).error_code == 0


# ---------------------------------------------------------------- defaults of topics

OF_THE_CLUSTER = "min.insync.replicas"
DEFAULTS = {
    synonym.name: row for row in TOPIC_SETTINGS.values() for synonym in row.synonyms if synonym.name != OF_THE_CLUSTER
}


def other_value(setting: Setting) -> Any:
    """Returns a valid value that is not the default."""
    default = setting.default
    if setting.type is SettingType.BOOLEAN:
        return "false" if default else "true"
    if setting.choices is not None:
        present = default[0] if isinstance(default, tuple) else default
        return next(choice for choice in setting.choices if choice != present)
    if setting.type is SettingType.DOUBLE:
        return "0.25"
    if default is None:
        return "7"
    for candidate in (default - 1, default + 1, default + 2):
        try:
            setting.parse(str(candidate))
        except ConfigError:
            continue
        return str(candidate)
    raise AssertionError(setting)


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_defaults_of_topics_have_an_effect(name: str) -> None:
    """The broker's value applies to topics without a value of their own."""
    key = DEFAULTS[name].setting.name
    before = BrokerContext().control.topic_configs.defaults()[key]
    setting = Config.of().setting(name)
    assert setting is not None
    after = BrokerContext({name: other_value(setting)}).control.topic_configs.defaults()[key]
    assert after != before


# ---------------------------------------------------------------- checks of single settings


def internal_topic(setting: str) -> None:
    """The internal topic is created with the setting's value. A replication factor above the number of nodes prevents
    the creation.
    """
    prefix, _, key = setting.replace("transaction.state.log.", "transaction.state.topic.").rpartition(".topic.")
    topic = {
        "offsets": "__consumer_offsets",
        "transaction.state": "__transaction_state",
        "share.coordinator.state": "__share_group_state",
    }[prefix]
    value = {"num.partitions": 3, "replication.factor": 2, "segment.bytes": 1_048_576, "min.isr": 2}[key]
    node = BrokerContext({setting: value})
    created = node.control.internal_topics.ensure(topic)
    node.finish()
    image = node.topics.image
    info = image.by_name(topic)
    assert (info is not None) is created is (key != "replication.factor")
    if info is not None and key == "num.partitions":
        assert info.partitions == value
    elif info is not None:
        name = {"min.isr": "min.insync.replicas"}.get(key, key)
        assert image.settings_of(ConfigType.TOPIC, topic)[name] == str(value)


def of_the_cluster(setting: str) -> None:
    """The first start of a cluster stores the setting's value as the default of all brokers, as in Kafka."""
    assert engine(**{setting: "2"}).control.topic_configs.defaults()[setting] == 2
    assert engine().control.topic_configs.defaults()[setting] == 1


def rack(setting: str) -> None:
    node = engine(broker_rack="r1")
    node.cluster.advertise("PLAINTEXT", "h", 1)
    broker = node.cluster.broker(node.cluster.node_id, "PLAINTEXT")
    assert broker is not None
    assert broker.rack == "r1"


def key_location(setting: str) -> None:
    """A certificate without its key is refused, unless this setting names the file of the key."""
    with tempfile.TemporaryDirectory() as folder:
        text = Authority(Path(folder)).issue("both.pem", (NameOID.COMMON_NAME, "x")).read_text()
        key, _, chain = text.partition("-----BEGIN CERTIFICATE-----")
        files = Path(folder, "chain.pem"), Path(folder, "key.pem")
        for file, content in zip(files, ("-----BEGIN CERTIFICATE-----" + chain, key), strict=True):
            file.write_text(content)
        alone = {"ssl.keystore.location": str(files[0])}
        with pytest.raises(ConfigError):
            server_context(Config.of(alone).for_listener("X"), "X")
        server_context(Config.of(alone | {setting: str(files[1])}).for_listener("X"), "X")


def retry_of_keys(setting: str) -> None:
    values = {"sasl.oauthbearer.jwks.endpoint.url": "file:///none", setting: "7"}
    keys = KeySet(Config.of(values).for_listener("X"))
    assert (keys._max_retry_s if ".max." in setting else keys._retry_s) == 0.007


def replicas_of_topics(setting: str) -> None:
    assert BrokerContext().create("t", replicas=-1).error_code == 0
    assert BrokerContext({setting: 2}).create("t", replicas=-1).error_code == 38


def partitions_of_topics(setting: str) -> None:
    node = BrokerContext({setting: 3})
    assert node.create("t", partitions=-1).num_partitions == 3


def transaction_timeout(setting: str) -> None:
    """A transaction timeout above the maximum is refused. With an accepted timeout, the request reaches the next check,
    which returns NOT_COORDINATOR.
    """
    node = engine(**{setting: "1000"})
    for timeout_ms, code in ((1_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT), (1_000, ErrorCode.NOT_COORDINATOR)):
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=timeout_ms)
        response = node.apis[ApiKey.INIT_PRODUCER_ID].handle(RequestContext(4), request)
        node.commit()
        assert error_of(response) == code


def session_timeout(setting: str) -> None:
    node = engine(**{setting: "10000"})
    request = JoinGroupRequest(group_id="g", session_timeout_ms=10_001, protocol_type="consumer", protocols=[])
    assert error_of(node.apis[ApiKey.JOIN_GROUP].handle(RequestContext(5), request)) == 26


def group_size(setting: str) -> None:
    """With a maximum of one member, a second member of a classic group is refused."""
    node = engine(**{setting: "1", "group_initial_rebalance_delay_ms": "0"})
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    responses = []
    for _ in range(2):
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        responses.append(node.apis[ApiKey.JOIN_GROUP].handle(RequestContext(3), request))
        node.commit()
    assert error_of(responses[1]) == ErrorCode.GROUP_MAX_SIZE_REACHED


def one_assignor(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        engine(**{setting: "simple,simple"})


def fetch_sessions(setting: str) -> None:
    assert engine(**{setting: "7"}).fetch_sessions.max_slots == 7


def map_size(setting: str) -> None:
    """The LMDB map of a new folder has the size that the setting gives."""
    with (
        tempfile.TemporaryDirectory() as folder,
        kcore.open(Path(folder) / "data", config={setting: 3_145_728}) as node,
    ):
        assert node.engine.log._storage._environment._map_size_bytes == 3_145_728


def principal_rules(setting: str) -> None:
    listener = parse_listeners(Config.of())[0]
    security = ListenerSecurity(listener, engine(**{setting: "RULE:^CN=(.*)$/$1/U"}))
    assert security.principal_of("CN=ann") == "User:ANN"


def validator(setting: str) -> None:
    settings = Config.of({"sasl.enabled.mechanisms": "OAUTHBEARER", setting: "tests.security.tokens:validate"})
    node = engine()
    exchange_maker(settings.for_listener("X"), node)
    missing = Config.of({"sasl.enabled.mechanisms": "OAUTHBEARER", setting: "tests.security.tokens:missing"})
    with pytest.raises(ConfigError, match=setting):
        exchange_maker(missing.for_listener("X"), node)


def session_of_a_login(setting: str) -> None:
    """The setting limits how long a login is valid. The client must authenticate again before the end of this time."""
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret";'
    values = {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": users, setting: "5000"}
    login = exchange_maker(Config.of(values).for_listener("X"), engine())()
    login.handshake(1, "PLAIN", 0)
    login.evaluate(b"\0ann\0secret")
    assert login.evaluated(0, 0) == 5_000


def quota_windows(setting: str) -> None:
    config = Config.of({setting: "5"})
    quotas = ClientQuotas(Topics(), Now(ManualClock()), config)
    assert (quotas.samples, quotas.window_ms) == ((5, 1_000) if setting.endswith("num") else (11, 5_000))


CHECKS: dict[str, Callable[[str], None]] = {
    **{
        f"{topic}.{key}": internal_topic
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        for key in ("num.partitions", "replication.factor", "segment.bytes")
    },
    "transaction.state.log.min.isr": internal_topic,
    "share.coordinator.state.topic.min.isr": internal_topic,
    OF_THE_CLUSTER: of_the_cluster,
    "broker.rack": rack,
    "kcore.ssl.key.location": key_location,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": retry_of_keys,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": retry_of_keys,
    "default.replication.factor": replicas_of_topics,
    "num.partitions": partitions_of_topics,
    "transaction.max.timeout.ms": transaction_timeout,
    "group.max.session.timeout.ms": session_timeout,
    "group.max.size": group_size,
    "kcore.map.size": map_size,
    "group.share.assignors": one_assignor,
    "max.incremental.fetch.session.cache.slots": fetch_sessions,
    "ssl.principal.mapping.rules": principal_rules,
    "kcore.sasl.oauthbearer.validator": validator,
    "connections.max.reauth.ms": session_of_a_login,
    "quota.window.num": quota_windows,
    "quota.window.size.seconds": quota_windows,
    **NODE_CHECKS,
}


def failure_of(check: Callable[[str], None], name: str) -> str | None:
    """Runs a check of a setting's effect; returns its failure, or None if the setting has its effect."""
    try:
        check(name)
    except (AssertionError, ConfigError, pytest.fail.Exception) as failure:
        return f"{type(failure).__name__}: {failure}"
    return None


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_each_single_setting_has_an_effect(name: str) -> None:
    assert failure_of(CHECKS[name], name) is None


@pytest.mark.parametrize("name", sorted(VALIDATED))
def test_values_without_an_implementation_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(name)):
        Config.of({name: VALIDATED[name]})


# ---------------------------------------------------------------- checks of the checks

IN_PROCESS: dict[str, Callable[[str], None]] = {
    **dict.fromkeys(GROUPS, test_settings_of_groups_have_an_effect),
    **dict.fromkeys(DEFAULTS, test_defaults_of_topics_have_an_effect),
    **CHECKS,
}


@pytest.mark.parametrize("name", sorted(IN_PROCESS))
def test_a_check_fails_if_its_setting_has_no_effect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each setting ineffective in turn, and expects the setting's check to fail.

    test_ignored_settings.py does this for the tests that `NAMED` and `INDIRECT` list.
    """
    monkeypatch.setattr(*fixed(name), raising=False)
    assert failure_of(IN_PROCESS[name], name) is not None


# ---------------------------------------------------------------- the table


def test_every_setting_has_a_proof() -> None:
    """The proof of a setting is a check in this file, or a test that effects.py names."""
    proved = {*GROUPS, *DEFAULTS, *CHECKS, *NAMED, *INDIRECT, *VALIDATED}
    assert {*Config.SETTINGS, *NO_WARNING, *SAME_AS} <= proved


@cache
def functions(path: str) -> tuple[str, frozenset[str]]:
    text = (TESTS / path).read_text()
    return text, frozenset(
        node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_the_named_tests_exist() -> None:
    """A test in `NAMED` contains the setting's name, either Kafka's name or the name of the attribute."""
    for name in sorted({**NAMED, **INDIRECT}):
        path, _, test = (NAMED[name] if name in NAMED else INDIRECT[name][0]).partition("::")
        text, names = functions(path)
        assert test in names
        if name in NAMED:
            assert re.search(rf"{re.escape(name)}(?![.\w])|\b{name.replace('.', '_')}\b", text), f"{path}: no {name}"


def test_the_table_has_only_settings_with_an_effect() -> None:
    assert {*NAMED, *INDIRECT, *CHECKS, *VALIDATED} <= {*Config.SETTINGS, *NO_WARNING, *SAME_AS}
