"""Connection limits of a single listener: `max.connections` and `max.connection.creation.rate` with the listener's
prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kcore.broker.metadata.image import ConfigType
from kcore.config.node import Config
from kcore.errors import ConfigError
from kcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.server.connection_quota import ListenerQuota
from tests.kit import wait_until
from tests.server.live import LiveServer, Raw

BEAT = HeartbeatRequest(group_id="g", member_id="m")
TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:0,EXT://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT",
}
COUNT = "listener.name.ext.max.connections"
RATE = "listener.name.ext.max.connection.creation.rate"


def served(raw: Raw) -> bool:
    """Sends a request and waits for the response."""
    raw.send(raw.request(BEAT, 4))
    return bool(raw.receive(BEAT, 4)[1].error_code == 25)


def ext(live: LiveServer) -> Raw:
    """Opens a connection to the listener EXT."""
    return Raw(live.server.addresses["EXT"][1])


def quota(live: LiveServer) -> ListenerQuota:
    return live.server.quota.of_listener("EXT")


def counts(live: LiveServer) -> tuple[int, int]:
    """Returns the numbers of open connections of EXT and of all listeners."""
    return live.call(lambda: (quota(live).count, live.server.quota.total))


def alter(live: LiveServer, changes: Mapping[str, str | None], broker: str = "1") -> tuple[int, str | None]:
    """Sets or deletes settings at run time. Returns the error code and the message."""
    configs = [
        AlterableConfig(name=name, config_operation=1 if value is None else 0, value=value)
        for name, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=ConfigType.BROKER, resource_name=broker, configs=configs)
    with live.connect() as connection:
        (result,) = connection.send(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return result.error_code, result.error_message


def described(live: LiveServer, name: str) -> list[tuple[Any, ...]]:
    """Returns the description of a setting of the broker."""
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=[name])
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    with live.connect() as connection:
        (result,) = connection.send(request, 4).results
    return [
        (
            row.value,
            row.config_source,
            row.read_only,
            row.is_sensitive,
            row.config_type,
            row.documentation,
            [(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms],
        )
        for row in result.configs
    ]


def test_a_full_listener_lets_its_clients_wait_and_others_pass(serve: Any, log_lines: list[str]) -> None:
    live: LiveServer = serve({**TWO, COUNT: "2"})
    first, second, waiting = ext(live), ext(live), ext(live)
    assert served(first)
    assert served(second)
    waiting.send(waiting.request(BEAT, 4))
    wait_until(lambda: log_lines, "the listener stops")
    with live.raw() as other:
        assert served(other), "the other listener has no limit"
        assert counts(live) == (2, 3)
        first.socket.close()
        assert waiting.receive(BEAT, 4)[1].error_code == 25
    for raw in (second, waiting):
        raw.socket.close()
    wait_until(lambda: counts(live) == (0, 0), "all connections have ended")
    assert log_lines == [
        f"new connections wait: the limit of 2 connections ({COUNT}) is reached; raise the limit, or close connections "
        "of clients"
    ]


def test_the_limit_of_the_server_applies_to_every_listener(serve: Any, log_lines: list[str]) -> None:
    live: LiveServer = serve({**TWO, COUNT: "2", "max.connections": "1"})
    with live.raw() as first, ext(live) as waiting:
        assert served(first)
        waiting.send(waiting.request(BEAT, 4))
        wait_until(lambda: log_lines, "the listener stops")
        assert counts(live) == (0, 1)
        first.socket.close()
        assert waiting.receive(BEAT, 4)[1].error_code == 25
        assert counts(live) == (1, 1)
    assert log_lines == [
        "new connections wait: the limit of 1 connection (max.connections) is reached; raise the limit, or close "
        "connections of clients"
    ]


def test_a_slot_of_another_listener_leaves_a_full_one_waiting(serve: Any, log_lines: list[str]) -> None:
    live: LiveServer = serve({**TWO, COUNT: "1"})
    with ext(live) as first, ext(live) as waiting:
        assert served(first)
        wait_until(lambda: log_lines, "the listener stops")
        with live.raw() as other:
            assert served(other)
        wait_until(lambda: counts(live) == (1, 1), "the other connection has ended")
        waiting.send(waiting.request(BEAT, 4))
        assert live.call(lambda: list(live.server.quota._waiting.values())) == [live.call(lambda: quota(live))]
        first.socket.close()
        assert waiting.receive(BEAT, 4)[1].error_code == 25


def test_a_limit_of_a_listener_changes_at_run_time(serve: Any) -> None:
    """The limit of a listener can be changed at run time, for one broker or, as in Kafka, for all brokers. After both
    values are deleted, the value of the settings file applies again.
    """
    live: LiveServer = serve({**TWO, COUNT: "1"})
    with ext(live) as first, ext(live) as second, ext(live) as third:
        assert served(first)
        assert alter(live, {COUNT: "2"}) == (0, None)
        assert served(second)
        assert alter(live, {COUNT: "3"}, broker="") == (0, None)
        assert live.call(lambda: quota(live).full), "the broker's own value has precedence"
        assert alter(live, {COUNT: None}) == (0, None)
        assert served(third)
        assert alter(live, {COUNT: None}, broker="") == (0, None)
        assert live.call(lambda: quota(live).reached()) == (3, COUNT)
        assert live.config.of_listener(COUNT, None) == 1


def test_a_limit_that_would_lock_clients_out_is_refused(serve: Any) -> None:
    live: LiveServer = serve(TWO)
    why = "0 is not valid at run time, because it would lock all clients out; valid: at least 1"
    for name in ("max.connections", "max.connections.per.ip"):
        for broker in ("1", ""):
            assert alter(live, {name: "0"}, broker=broker) == (42, f"{name}: {why}")
    for name in (COUNT, RATE):
        assert alter(live, {name: "0"}) == (42, f"{name}: {why}")
        assert alter(live, {name: "-1"})[0] == 42
        assert alter(live, {name: "many"})[0] == 42
        assert live.config.of_listener(name, None) is None


def test_addresses_without_an_override_may_be_locked_out(serve: Any) -> None:
    """As in Kafka, `max.connections.per.ip=0` is valid if some addresses have limits of their own."""
    live: LiveServer = serve({**TWO, "max.connections.per.ip.overrides": "127.0.0.1:5"})
    assert alter(live, {"max.connections.per.ip": "0"}) == (0, None)
    with ext(live) as client:
        assert served(client)


def test_a_listener_has_a_rate_of_its_own(serve: Any) -> None:
    """A listener and the server each have a limit of new connections per second. A connection waits for the longer of
    the two pauses, which are at most a second.
    """
    live: LiveServer = serve({**TWO, RATE: "1", "max.connection.creation.rate": "2"})
    server, of_listener = live.server.quota, quota(live)
    pauses = live.call(lambda: [of_listener.creation_pause_ms(1_000) for _ in range(12)])
    assert pauses == [0] * 10 + [1_000, 1_000]
    # The connections of EXT count for the server, too: 12 of the 20 that it may accept at once.
    other = live.server.quota.of_listener("PLAINTEXT")
    assert live.call(lambda: [other.creation_pause_ms(1_000) for _ in range(9)]) == [0] * 8 + [500]
    assert live.call(lambda: of_listener.creation_pause_ms(100_000)) == 0
    live.call(lambda: live.config.set(RATE, "2147483647", "test"))  # no client connects: real time would count, too
    assert live.call(lambda: [of_listener.creation_pause_ms(200_000) for _ in range(21)]) == [0] * 20 + [500]
    assert live.call(lambda: server.creation_pause_ms(300_000)) == 0


def test_connections_beyond_the_rate_of_a_listener_wait(serve: Any) -> None:
    live: LiveServer = serve({**TWO, RATE: "0"})
    with ext(live) as first, ext(live) as second:
        assert served(first)
        assert served(second), "connections wait and are not refused"


def test_a_limit_of_a_listener_is_described_with_its_sources(serve: Any) -> None:
    """DescribeConfigs lists a listener's limit with all its sources (synonyms). As in Kafka, these include the setting
    without the listener's prefix.

    A listener's setting without a value is not described.
    """
    live: LiveServer = serve({**TWO, COUNT: "5", "max.connections": "9"})
    static = [(COUNT, "5", 4), ("max.connections", "9", 4), ("max.connections", "2147483647", 5)]
    assert described(live, COUNT) == [("5", 4, True, False, 3, None, static)]
    alter(live, {COUNT: "6"})
    alter(live, {"max.connections": "8"}, broker="")
    dynamic = [(COUNT, "6", 2), ("max.connections", "8", 3), *static]
    assert described(live, COUNT) == [("6", 2, True, False, 3, None, dynamic)]
    assert described(live, RATE) == []


def test_a_file_may_have_limits_of_listeners() -> None:
    assert Config.of({COUNT: "0", RATE: "7"}).of_listener(RATE, None) == 7
    with pytest.raises(ConfigError, match=f"{COUNT}='-1' is out of range"):
        Config.of({COUNT: "-1"})
    with pytest.raises(ConfigError, match="cannot be set for a single listener"):
        Config.of({"listener.name.ext.max.connections.per.ip": "1"})
