"""Changes of settings in a cluster: each node changes its own loggers and checks its own key stores, and the controller
decides about all other settings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import pytest

from kcore.broker.cluster.forwarding import RETRY_FOR_MS
from kcore.broker.metadata.image import ConfigType
from kcore.cluster.memory_store import MemoryClusterStore
from kcore.config.security import STANDARD_AUTHORIZER
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_configs import AlterableConfig as WholeConfig
from kcore.protocol.messages.alter_configs import AlterConfigsRequest
from kcore.protocol.messages.alter_configs import AlterConfigsResource as WholeResource
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.cluster.world import ClusterWorld, Node
from tests.kit import create

LOGGER = "kcore.broker.cluster"
MOST_BYTES = "message.max.bytes"
KEYS = "listener.name.plaintext.ssl.keystore.location"


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld()
    world.start()
    level = logging.getLogger(LOGGER).level
    yield world
    logging.getLogger(LOGGER).setLevel(level)
    world.close()


def follower(world: ClusterWorld) -> Node:
    return next(node for node in world.up if node is not world.controller)


def resource(kind: ConfigType, name: object, setting: str, value: str) -> AlterConfigsResource:
    config = AlterableConfig(name=setting, config_operation=0, value=value)
    return AlterConfigsResource(resource_type=kind, resource_name=str(name), configs=[config])


def altered(node: Node, *resources: AlterConfigsResource, dry: bool = False, who: str = "User:a") -> list[int]:
    """Returns the error codes of the resources. Their results must be in the order of the request."""
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=dry)
    results = node.send(request, principal=who, wait_ms=2 * RETRY_FOR_MS).responses
    assert [(result.resource_type, result.resource_name) for result in results] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    return [result.error_code for result in results]


def setting_of(node: Node, name: str) -> object:
    assert node.engine is not None
    return node.engine.control.broker_config.config.get(name)


def test_one_request_changes_loggers_settings_and_topics(world: ClusterWorld) -> None:
    """Java's admin client sends the changes of a broker and the changes of its loggers to this
    broker in one request.
    """
    assert world.controller.send(create("t")).topics[0].error_code == 0
    world.advance(500)
    node = follower(world)
    codes = altered(
        node,
        resource(ConfigType.TOPIC, "t", "retention.ms", "1234"),
        resource(ConfigType.BROKER_LOGGER, node.node_id, LOGGER, "ERROR"),
        resource(ConfigType.BROKER, node.node_id, MOST_BYTES, "123456"),
        resource(ConfigType.BROKER, "", "log.retention.ms", "5000"),
        resource(ConfigType.TOPIC, "missing", "retention.ms", "1234"),
        resource(ConfigType.BROKER_LOGGER, world.controller.node_id, LOGGER, "DEBUG"),
    )
    invalid = ErrorCode.INVALID_REQUEST
    assert codes == [0, 0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, invalid]
    world.advance(500)
    assert logging.getLogger(LOGGER).level == logging.ERROR
    assert setting_of(node, MOST_BYTES) == 123456
    assert {setting_of(one, "log.retention.ms") for one in world.up} == {5000}
    assert setting_of(world.controller, MOST_BYTES) != 123456


def test_the_receiving_node_checks_the_bounds_of_a_cluster_wide_value(world: ClusterWorld) -> None:
    """A value beyond its bounds is refused, unless the node that received the request has a value of its own."""
    node, interval = follower(world), "group.consumer.assignment.interval.ms"
    beyond = resource(ConfigType.BROKER, "", interval, "100000000")
    for each in (node, world.controller):
        assert altered(each, beyond, dry=True) == [ErrorCode.INVALID_REQUEST]
    assert altered(node, resource(ConfigType.BROKER, node.node_id, interval, "1002")) == [0]
    world.advance(500)
    assert altered(world.controller, beyond, dry=True) == [ErrorCode.INVALID_REQUEST]
    assert altered(node, beyond, dry=True) == [0]
    assert altered(node, beyond) == [0]
    world.advance(500)
    assert setting_of(node, interval) == 1002


def test_a_dry_run_changes_nothing(world: ClusterWorld) -> None:
    node = follower(world)
    level, before = logging.getLogger(LOGGER).level, setting_of(node, MOST_BYTES)
    logger = resource(ConfigType.BROKER_LOGGER, node.node_id, LOGGER, "FATAL")
    assert altered(node, logger, resource(ConfigType.BROKER, node.node_id, MOST_BYTES, "123456"), dry=True) == [0, 0]
    world.advance(500)
    assert (logging.getLogger(LOGGER).level, setting_of(node, MOST_BYTES)) == (level, before)


class Keys:
    """A fake of the listeners' key stores. It refuses the file `damaged.pem` and accepts all other files."""

    def fault(self, changed: Mapping[str, str | None]) -> str | None:
        return "the file is damaged" if "damaged.pem" in changed.values() else None

    def reload(self) -> None:
        """Does nothing: there are no keys to load."""


def test_a_node_refuses_key_stores_that_it_cannot_load(world: ClusterWorld) -> None:
    """The controller cannot read the files of other nodes, and would accept any change."""
    node = follower(world)
    assert node.engine is not None
    node.engine.control.broker_config.keys = Keys()
    assert altered(node, resource(ConfigType.BROKER, node.node_id, KEYS, "damaged.pem")) == [ErrorCode.INVALID_REQUEST]
    assert altered(node, resource(ConfigType.BROKER, node.node_id, KEYS, "good.pem")) == [0]
    world.advance(500)
    assert node.engine.control.broker_config.own() == {KEYS: "good.pem"}


def test_a_resource_that_is_named_twice_is_refused(world: ClusterWorld) -> None:
    node = follower(world)
    for kind, setting, value in [
        (ConfigType.BROKER, MOST_BYTES, "123456"),
        (ConfigType.BROKER_LOGGER, LOGGER, "FATAL"),
    ]:
        twice = [resource(kind, node.node_id, setting, value)] * 2
        assert altered(node, *twice) == [ErrorCode.INVALID_REQUEST] * 2


def test_whole_changes_are_checked_and_forwarded_too(world: ClusterWorld) -> None:
    node = follower(world)

    def whole(value: str) -> int:
        config = WholeConfig(name=MOST_BYTES, value=value)
        request = AlterConfigsRequest(
            resources=[
                WholeResource(resource_type=ConfigType.BROKER, resource_name=str(node.node_id), configs=[config])
            ]
        )
        return int(node.send(request).responses[0].error_code)

    assert (whole("none"), whole("123456")) == (ErrorCode.INVALID_REQUEST, 0)
    world.advance(500)
    assert setting_of(node, MOST_BYTES) == 123456


def test_without_a_controller_only_the_own_loggers_are_changed(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = follower(world)
    monkeypatch.setattr(MemoryClusterStore, "take_controller", lambda *_: None)
    world.controller.kill()
    logger = resource(ConfigType.BROKER_LOGGER, node.node_id, LOGGER, "ERROR")
    assert altered(node, logger, resource(ConfigType.BROKER, node.node_id, MOST_BYTES, "123456")) == [
        0,
        ErrorCode.NOT_CONTROLLER,
    ]
    assert logging.getLogger(LOGGER).level == logging.ERROR


def test_clients_need_their_permissions_at_every_node() -> None:
    world = ClusterWorld(settings={"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:node;User:admin"})
    world.start()
    for node in world.up:
        changes = [
            resource(
                ConfigType.BROKER_LOGGER, node.node_id, LOGGER, logging.getLevelName(logging.getLogger(LOGGER).level)
            ),
            resource(ConfigType.BROKER, node.node_id, MOST_BYTES, "123456"),
            resource(ConfigType.TOPIC, "t", "retention.ms", "1"),
        ]
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert altered(node, *changes) == [refused, refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert altered(node, changes[1], who="User:admin") == [0]
    world.close()
