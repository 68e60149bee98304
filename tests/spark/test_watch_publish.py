"""The streaming job publishes to a topic over TLS and SASL, and continues after the job and the server were killed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from cryptography.x509.oid import NameOID

import kcore
from kcore.testing import ServerProcess
from tests.kit import wait_until
from tests.security.certificates import Authority
from tests.spark.maven_packages import KAFKA_SOURCE, packages
from tests.spark.processes import watching
from tests.spark.test_kafka_source import SPARK

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.clients, pytest.mark.timeout(1800)]

USER, PASSWORD = "watcher", "a-password-of-the-tests"
TOPIC: Final = "watched"
ALERT_S: Final = 400


def begin_transaction(client: dict[str, Any], name: str) -> Producer:
    """Begins a transaction that will exceed its timeout of a second. The server does not abort it in this test."""
    producer = Producer({**client, "transactional.id": name, "transaction.timeout.ms": 1_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"value")
    producer.flush(30)
    return producer


def published(client: dict[str, Any], expected: set[str]) -> Counter[str]:
    """Reads the published alerts of hanging transactions, by transactional id, until all expected alerts have come."""
    consumer = Consumer({**client, "group.id": "reader", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([TOPIC])
    found: Counter[str] = Counter()

    def read() -> bool:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            row = json.loads(message.value())
            if row["table"] == "alerts" and row["kind"] == "hanging-transaction":
                found[row["subject"]] += 1
        return found.keys() >= expected

    wait_until(read, f"the publication of the alerts {sorted(expected)}", ALERT_S)
    for _ in range(50):
        read()
    consumer.close()
    return found


def test_alerts_are_published_once_over_tls_and_sasl(tmp_path: Path) -> None:
    """A transaction hangs, then the job and the server are killed and restarted, and another transaction hangs. The
    alert of each is published exactly once.
    """
    jars = packages(KAFKA_SOURCE)
    authority = Authority(tmp_path)
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "ssl.keystore.location": str(authority.issue("server.pem", (NameOID.COMMON_NAME, "server"))),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "num.partitions": "1",
    }
    with kcore.open(
        tmp_path / "data", config={name: settings[name] for name in settings if "partitions" in name}
    ) as node:
        node.users.set_password(USER, PASSWORD)
        for topic in ("orders", TOPIC):
            node.topics.create(topic, partitions=1)
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority.file}\nsasl.jaas.config="
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{PASSWORD}";\n'
    )
    with ServerProcess(tmp_path / "data", settings) as server:
        client = {
            "bootstrap.servers": server.bootstrap, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER, "sasl.password": PASSWORD, "ssl.ca.location": str(authority.file),
        }  # fmt: skip
        arguments = ["--kafka", server.bootstrap, "--kafka-config", str(properties), "--out", str(tmp_path / "out")]
        arguments += ["--publish", f"{server.bootstrap}/{TOPIC}", "--trigger-ms", "1000", "--grace-ms", "0"]
        arguments += ["--without-events", "--master", "local[2]"]
        for name, value in {**SPARK, "spark.jars": ",".join(map(str, jars))}.items():
            arguments += ["--conf", f"{name}={value}"]
        first = begin_transaction(client, "first")
        with watching(arguments, tmp_path / "output"):
            published(client, {"first"})
        server.kill()
        server.start()
        second = begin_transaction(client, "second")
        with watching(arguments, tmp_path / "output"):
            assert published(client, {"first", "second"}) == {"first": 1, "second": 1}
        del first, second  # until here, no client has ended its transaction
