"""JAAS configurations of listeners: the users of PLAIN, and refused texts. No error message has the content of a
refused text.
"""

from __future__ import annotations

import pytest

from kcore.config.jaas import PLAIN_MODULE, plain_users
from kcore.config.node import Config
from kcore.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "users"),
    [
        (f'{PLAIN_MODULE} required user_alice="one" user_bob="two";', {"alice": "one", "bob": "two"}),
        (
            f'{PLAIN_MODULE} required username="admin" password="x" user_admin="x";',
            {"admin": "x"},
        ),
        (f"{PLAIN_MODULE} REQUIRED\n  user_a-b='it;s = \"q\"'\n  user_c=word ;\n", {"a-b": 'it;s = "q"', "c": "word"}),
        (f'{PLAIN_MODULE} required // users\n /* none\n but */ user_a="b\\"c\\\\d\\n";', {"a": 'b"c\\d\n'}),
        (f"{PLAIN_MODULE} required ;", {}),
    ],
)
def test_users_are_read_from_a_login_module(text: str, users: dict[str, str]) -> None:
    """Options that do not begin with `user_` are ignored, because they define the broker's own login as a client."""
    assert plain_users(text) == users


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'{PLAIN_MODULE} required user_a="hush"', "end with a semicolon"),
        ('hush required user_a="hush";', f"SASL/PLAIN needs the login module {PLAIN_MODULE}"),
        (f'{PLAIN_MODULE} hush user_a="hush";', "the control flag of a login module must be one of optional, "),
        (f'{PLAIN_MODULE} required user_a "hush";', "option 1 of the login module is not NAME="),
        (f'{PLAIN_MODULE} required x=y user_a="";', "option 2 of the login module has no user or no password"),
        (f'{PLAIN_MODULE} required user_="hush";', "option 1 of the login module has no user or no password"),
        (
            f"{PLAIN_MODULE} required user_a=hush user_a=hush;",
            "option 2 of the login module names the user of an earlier option",
        ),
        (
            f"{PLAIN_MODULE} required user_a=hush; {PLAIN_MODULE} required user_b=hush;",
            "must have exactly one login module",
        ),
        (f'{PLAIN_MODULE} required user_a="hush;', "has a syntax error at character "),
        ("hush", "a JAAS configuration must have the form MODULE FLAG OPTION=VALUE"),
    ],
)
def test_invalid_login_modules_are_refused(text: str, reason: str) -> None:
    """A node with such a setting does not start. The error message contains no password."""
    for name in ("plain.sasl.jaas.config", "sasl.jaas.config", "listener.name.x.plain.sasl.jaas.config"):
        with pytest.raises(ConfigError) as raised:
            Config({name: text})
        assert reason in str(raised.value)
        assert "hush" not in str(raised.value)


def test_the_name_without_a_mechanism_is_the_default_of_listeners() -> None:
    one, other = f"{PLAIN_MODULE} required user_a=b;", f"{PLAIN_MODULE} required user_c=d;"
    config = Config({"listeners": "X://:1", "sasl.jaas.config": one, "listener.name.x.plain.sasl.jaas.config": other})
    assert config.for_listener("X").plain_sasl_jaas_config == other
    assert config.for_listener("Y").plain_sasl_jaas_config == one
    assert config.without_effect() == []
    assert {entry.setting.format(entry.value) for entry in config.effective() if "jaas" in entry.setting.name} == {
        "[hidden]"
    }


SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="hush";'


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config",
        "listener.name.x.oauthbearer.sasl.jaas.config",
        "listener.name.x.gssapi.sasl.jaas.config",
    ],
)
def test_login_modules_of_other_mechanisms_have_no_effect(name: str) -> None:
    """Kafka's brokers use these login modules to connect to each other. The server starts, and warns that the modules
    have no effect.
    """
    config = Config.of({"listeners": "X://:1,SASL_SSL://:2", name: SCRAM})
    assert config.without_effect() == [name]
    assert config.for_listener("X").plain_sasl_jaas_config is None
    with pytest.raises(ConfigError) as refused:
        Config.of({name: "org.apache.kafka.common.security.scram.ScramLoginModule hush;"})
    assert "hush" not in str(refused.value)
