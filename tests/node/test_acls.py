"""Access control lists, on nodes with and without an authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kcore
from kcore import Acl, errors
from kcore.testing.server import ServerProcess
from tests.apache.broker import ApacheKafka
from tests.kit import wait_until
from tests.node.conftest import KAFKA, SETTINGS, TARGETS

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module", params=TARGETS)
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kcore.Node]:
    """Yields a node with an authorizer that allows every operation on resources without access control entries."""
    if request.param == "embedded":
        with kcore.open(config={**SETTINGS, **GUARDED}) as node:
            yield node
    elif request.param == "serve":
        with ServerProcess(settings={**SETTINGS, **GUARDED}) as server, kcore.connect(server.bootstrap) as node:
            yield node
    elif KAFKA != "start":
        pytest.skip("the broker of KCORE_TEST_KAFKA has its own authorizer")
    else:
        with (
            ApacheKafka(tmp_path_factory.mktemp("guarded"), GUARDED) as broker,
            kcore.connect(broker.bootstrap, wait=60.0) as node,
        ):
            yield node


def expect(node: kcore.Node, entries: list[Acl], **filters: Any) -> None:
    """Waits until the broker has these entries. Kafka's controller acknowledges a change before brokers apply it."""
    wait_until(lambda: node.acls.describe(**filters) == sorted(entries), f"the entries of {filters}")


def test_entries_are_created_described_and_deleted(guarded: kcore.Node, name: str) -> None:
    read = Acl("TOPIC", name, f"User:{name}", "READ")
    prefix = Acl("GROUP", name[:5], f"User:{name}", "ALL", host="10.0.0.1", pattern_type="PREFIXED")
    deny = Acl("TRANSACTIONAL_ID", "*", f"User:{name}", "WRITE", "DENY")
    assert guarded.acls.describe(principal=f"User:{name}") == []
    guarded.acls.create(read)
    expect(guarded, [read], principal=f"User:{name}")
    guarded.acls.create([prefix, deny, read])
    expect(guarded, [read, prefix, deny], principal=f"User:{name}")
    expect(guarded, [read], principal=f"User:{name}", resource_type="topic")
    expect(guarded, [deny], principal=f"User:{name}", permission="Deny")
    expect(guarded, [prefix], principal=f"User:{name}", pattern_type="prefixed")
    expect(guarded, [prefix], principal=f"User:{name}", host="10.0.0.1")
    expect(guarded, [read], principal=f"User:{name}", operation="Read")
    expect(guarded, [], principal=f"User:{name}", resource_name=name[:3])
    expect(guarded, [prefix], principal=f"User:{name}", resource_type="Group", resource_name=name, pattern_type="MATCH")
    assert set(guarded.acls.describe()) >= {read, prefix, deny}
    assert guarded.acls.delete(deny) == [deny]
    expect(guarded, [read, prefix], principal=f"User:{name}")
    assert guarded.acls.delete(deny) == []
    assert guarded.acls.delete(guarded.acls.describe(principal=f"User:{name}")) == sorted([read, prefix])
    expect(guarded, [], principal=f"User:{name}")
    assert guarded.acls.delete([]) == []
    guarded.acls.create([])


def test_an_entry_denies_an_operation(guarded: kcore.Node, name: str) -> None:
    topic = guarded.topics.create(name, 1)
    topic.append("a")
    deny = Acl("Topic", name, "User:*", "Write", "Deny")
    guarded.acls.create(deny)
    expect(guarded, [deny], resource_name=name)
    with pytest.raises(errors.TopicAuthorizationFailedError):
        topic.append("b")
    assert guarded.acls.delete(deny) == [deny]
    expect(guarded, [], resource_name=name)
    topic.append("c")


def test_the_server_refuses_an_entry(guarded: kcore.Node, name: str) -> None:
    valid = Acl("TOPIC", name, f"User:{name}", "READ")
    with pytest.raises(errors.InvalidRequestError):
        guarded.acls.create([valid, Acl("TOPIC", name, name, "READ")])  # the principal has no type
    guarded.acls.delete(valid)


def test_a_node_without_an_authorizer_refuses_all_calls(node: kcore.Node, name: str) -> None:
    entry = Acl("TOPIC", name, "User:alice", "READ")
    for call in (node.acls.describe, lambda: node.acls.create(entry), lambda: node.acls.delete(entry)):
        with pytest.raises(errors.SecurityDisabledError):
            call()


async def test_entries_on_an_event_loop(name: str) -> None:
    entry = Acl("TOPIC", name, "User:alice", "READ")
    async with kcore.open_async(config={**SETTINGS, **GUARDED}) as node:
        await node.acls.create(entry)
        assert await node.acls.describe() == [entry]
        assert await node.acls.delete(entry) == [entry]
        assert await node.acls.describe() == []


@pytest.mark.parametrize(
    ("field", "value", "valid"),
    [
        ("resource_type", "TOPICS", "'TOPIC', 'GROUP', 'CLUSTER', 'TRANSACTIONAL_ID', 'DELEGATION_TOKEN', 'USER'"),
        ("permission", "ANY", "'DENY', 'ALLOW'"),
        ("pattern_type", "MATCH", "'LITERAL', 'PREFIXED'"),
        ("operation", None, "'ALL', 'READ', 'WRITE', 'CREATE', "),
        ("operation", "unknown", "'ALL', 'READ', 'WRITE', 'CREATE', "),
    ],
)
def test_a_name_that_does_not_exist_is_refused(field: str, value: Any, valid: str) -> None:
    names = {"resource_type": "TOPIC", "resource_name": "t", "principal": "User:a", "operation": "READ", field: value}
    with pytest.raises(errors.ConfigError) as refused:
        Acl(**names)
    assert str(refused.value).startswith(f"{field}: {value!r} does not exist; valid: {valid}")


@pytest.mark.parametrize("field", ["resource_name", "principal", "host"])
def test_an_entry_has_no_field_that_matches_all_entries(field: str) -> None:
    names = {"resource_type": "TOPIC", "resource_name": "t", "principal": "User:a", "operation": "READ", field: None}
    with pytest.raises(TypeError, match=rf"^{field}: None is not a string"):
        Acl(**names)  # type: ignore[arg-type]


def test_an_entry_with_a_name_that_the_client_does_not_know_is_not_sent(guarded: kcore.Node, name: str) -> None:
    newer = Acl("TOPIC", name, "User:a", "UNKNOWN")  # as `describe` returns it from a newer server
    calls: list[Callable[[], Any]] = [
        lambda: guarded.acls.create(newer),
        lambda: guarded.acls.delete(newer),
        lambda: guarded.acls.describe(operation="UNKNOWN"),
    ]
    for call in calls:
        with pytest.raises(errors.ConfigError, match=r"^operation: 'UNKNOWN' does not exist; valid: "):
            call()


def test_a_wrong_filter_or_element_is_refused() -> None:
    entry: Any = ("TOPIC", "t", "User:a", "READ")
    with kcore.open() as node:
        with pytest.raises(
            errors.ConfigError, match=r"^pattern_type: 'REGEX' does not exist; valid: 'ANY', 'MATCH', 'LI"
        ):
            node.acls.describe(pattern_type="REGEX")
        for call in (node.acls.create, node.acls.delete):
            with pytest.raises(TypeError, match=r"\) is not a kcore\.Acl\(resource_type, resource_name, principal, op"):
                call([entry])


def test_names_equal_kafkas_names_in_any_spelling() -> None:
    assert Acl("TransactionalId", "x", "User:a", "IdempotentWrite", "allow") == Acl(
        "TRANSACTIONAL_ID", "x", "User:a", "IDEMPOTENT_WRITE", "ALLOW", "*", "LITERAL"
    )
