"""Users and access control lists administered by unmodified clients, on a server that enforces them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kcore.config.security import STANDARD_AUTHORIZER
from tests.nodes import node_of
from tests.server.live import LiveServer

pytestmark = pytest.mark.clients

ALLOW, LITERAL = AclPermissionType.ALLOW, ResourcePatternType.LITERAL


@pytest.fixture
def live() -> Iterator[LiveServer]:
    """Yields a server with a user `admin`, which is created before the tests connect."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with LiveServer(settings) as one:
        with one.connect() as connection:
            node_of(connection).users.set_password("admin", "admin-secret", mechanisms=["SCRAM-SHA-256"])
        yield one


def settings_of(live: LiveServer, user: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{live.server.addresses['SASL_PLAINTEXT'][1]}",
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": user,
        "sasl.password": f"{user}-secret", "log_level": 0,
    }  # fmt: skip


def test_a_user_gets_a_password_and_permissions_and_loses_them(live: LiveServer) -> None:
    """confluent-kafka creates and describes a user, and creates, describes and deletes entries. Each change takes
    effect at once.
    """
    admin = AdminClient(settings_of(live, "admin"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion("alice", info, b"alice-secret")
    admin.alter_user_scram_credentials([upsertion])["alice"].result(20)
    described = admin.describe_user_scram_credentials(["alice"])["alice"].result(20)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_512, 4096)
    ]
    alice = AdminClient(settings_of(live, "alice", "SCRAM-SHA-512"))
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        alice.create_topics([NewTopic("t", 1, 1)])["t"].result(20)

    create = AclBinding(ResourceType.TOPIC, "t", LITERAL, "User:alice", "*", AclOperation.CREATE, ALLOW)
    write = AclBinding(ResourceType.TOPIC, "t", LITERAL, "User:alice", "127.0.0.1", AclOperation.WRITE, ALLOW)
    for future in admin.create_acls([create, write]).values():
        future.result(20)
    alice.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
    assert deliver(live) is None
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        alice.create_acls([create])[create].result(20)
    assert alice.describe_acls(everything()).result(20) == []  # librdkafka hides the refusal (31)

    assert set(admin.describe_acls(everything()).result(20)) == {create, write}
    entry_filter = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.WRITE, AclPermissionType.ANY
    )
    assert set(admin.delete_acls([entry_filter])[entry_filter].result(20)) == {write}
    assert "TOPIC_AUTHORIZATION_FAILED" in str(deliver(live))

    deletion = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([deletion])["alice"].result(20)
    with pytest.raises(KafkaException):
        AdminClient(settings_of(live, "alice", "SCRAM-SHA-512")).list_topics(timeout=1)


def everything() -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )


def deliver(live: LiveServer) -> Any:
    """Produces a record as alice. Returns the error of its delivery, or None."""
    errors: list[Any] = []
    settings = settings_of(live, "alice", "SCRAM-SHA-512") | {"message.timeout.ms": 10_000}
    producer = Producer(settings)
    producer.produce("t", b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    (error,) = errors
    return error and error.name()
