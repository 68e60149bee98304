"""Kafka's tools for operators, run by one script that uses every command that works on a single node.

`run` returns the output of each command, without the values that differ between two runs: ids, ports, folders and
times. The test compares the output with a recording of Apache Kafka 4.3.1, which `python -m
tests.clients.operators_tools` makes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.clients import java_programs

SOURCE = Path(__file__).with_name("tools_java")
RECORDED = Path(__file__).parents[1] / "data" / "operators-tools.json"
TIMEOUT_S = 280

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SETTINGS = {
    **AUTHORIZED,
    # The settings of the recorded broker (`tests.apache.broker`), which descriptions show.
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
}

MOVES = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}'
UNKNOWN_MOVES = '{"version":1,"partitions":[{"topic":"none","partition":0,"replicas":[1]}]}'
TOPICS = '{"version":1,"topics":[{"topic":"t"}]}'

CONFIGS, QUORUM = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.MetadataQuorumCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS, FEATURES = "org.apache.kafka.tools.LogDirsCommand", "org.apache.kafka.tools.FeatureCommand"
ACLS, TOKENS = "org.apache.kafka.tools.AclCommand", "org.apache.kafka.tools.DelegationTokenCommand"
CLUSTER, VERSIONS = "org.apache.kafka.tools.ClusterTool", "org.apache.kafka.tools.BrokerApiVersionsCommand"
TOPIC = "org.apache.kafka.tools.TopicCommand"

SCRIPT = [
    (TOPIC, "--create --topic t --partitions 2"),
    # kafka-configs: brokers
    (CONFIGS, "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.backoff.ms=14000"),
    (CONFIGS, "--describe --entity-type brokers --entity-name 1"),
    (CONFIGS, "--alter --entity-type brokers --entity-default --add-config message.max.bytes=2000000"),
    (CONFIGS, "--describe --entity-type brokers --entity-default"),
    (CONFIGS, "--alter --entity-type brokers --entity-name 1 --add-config num.partitions=3"),
    (CONFIGS, "--alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.backoff.ms"),
    (CONFIGS, "--alter --entity-type brokers --entity-default --delete-config message.max.bytes"),
    (CONFIGS, "--describe --entity-type brokers --entity-default"),
    (CONFIGS, "--describe --entity-type brokers --entity-name 9"),
    # kafka-configs: topics, groups, client metrics
    (CONFIGS, "--alter --entity-type topics --entity-name t "
              "--add-config retention.ms=1000,cleanup.policy=[compact,delete]"),
    (CONFIGS, "--describe --entity-type topics --entity-name t"),
    (CONFIGS, "--describe --all --entity-type topics --entity-name t"),
    (CONFIGS, "--alter --entity-type topics --entity-name t --delete-config retention.ms"),
    (CONFIGS, "--alter --entity-type topics --entity-name t --add-config retention.ms=x"),
    (CONFIGS, "--alter --entity-type topics --entity-name none --add-config retention.ms=1"),
    (CONFIGS, "--alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=50000"),
    (CONFIGS, "--describe --entity-type groups --entity-name g"),
    (CONFIGS, "--describe --all --entity-type groups --entity-name g"),
    (CONFIGS, "--alter --entity-type groups --entity-name g --delete-config consumer.session.timeout.ms"),
    (CONFIGS, "--alter --entity-type client-metrics --entity-name m --add-config interval.ms=1000"),
    (CONFIGS, "--describe --entity-type client-metrics --entity-name m"),
    (CONFIGS, "--describe --entity-type client-metrics"),
    (CONFIGS, "--alter --entity-type client-metrics --entity-name m --delete-config interval.ms"),
    # kafka-configs: quotas and users
    (CONFIGS, "--alter --entity-type users --entity-name ann "
              "--add-config producer_byte_rate=1024,request_percentage=50"),
    (CONFIGS, "--alter --entity-type users --entity-name ann --entity-type clients --entity-name c "
              "--add-config controller_mutation_rate=2.5"),
    (CONFIGS, "--alter --entity-type clients --entity-default --add-config consumer_byte_rate=2048"),
    (CONFIGS, "--alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=100"),
    (CONFIGS, "--describe --entity-type users --entity-name ann"),
    (CONFIGS, "--describe --entity-type users --entity-type clients"),
    (CONFIGS, "--describe --entity-type clients --entity-default"),
    (CONFIGS, "--describe --entity-type ips"),
    (CONFIGS, "--alter --entity-type users --entity-name ann --add-config producer_byte_rate=-1"),
    (CONFIGS, "--alter --entity-type users --entity-name ann --delete-config producer_byte_rate,request_percentage"),
    (CONFIGS, "--alter --entity-type users --entity-name bob --add-config SCRAM-SHA-256=[iterations=4096,password=pw]"),
    (CONFIGS, "--describe --entity-type users --entity-name bob"),
    (CONFIGS, "--alter --entity-type users --entity-name bob --delete-config SCRAM-SHA-256"),
    (CONFIGS, "--alter --entity-type users --entity-name bob --delete-config SCRAM-SHA-256"),
    # kafka-metadata-quorum
    (QUORUM, "describe --status"),
    (QUORUM, "describe --replication"),
    # kafka-reassign-partitions
    (REASSIGN, "--generate --topics-to-move-json-file {topics} --broker-list 1"),
    (REASSIGN, "--execute --reassignment-json-file {moves}"),
    (REASSIGN, "--verify --reassignment-json-file {moves}"),
    (REASSIGN, "--execute --throttle 1000000 --reassignment-json-file {moves}"),
    (CONFIGS, "--describe --entity-type topics --entity-name t"),
    (CONFIGS, "--describe --entity-type brokers --entity-name 1"),
    (REASSIGN, "--verify --reassignment-json-file {moves}"),
    (CONFIGS, "--describe --entity-type brokers --entity-name 1"),
    (REASSIGN, "--list"),
    (REASSIGN, "--cancel --reassignment-json-file {moves}"),
    (REASSIGN, "--execute --reassignment-json-file {unknown}"),
    # kafka-log-dirs, kafka-features
    (LOG_DIRS, "--describe --topic-list t --broker-list 1"),
    (FEATURES, "describe"),
    (FEATURES, "upgrade --feature group.version=1"),
    (FEATURES, "downgrade --feature group.version=0"),
    (FEATURES, "upgrade --feature group.version=1"),
    (FEATURES, "upgrade --feature none.version=1"),
    (FEATURES, "upgrade --release-version 9.9"),
    (FEATURES, "disable --feature share.version"),
    (FEATURES, "upgrade --feature share.version=1"),
    (FEATURES, "version-mapping --release-version 4.3"),
    (FEATURES, "feature-dependencies --feature transaction.version=2"),
    # kafka-acls
    (ACLS, "--add --allow-principal User:ann --operation read --topic t"),
    (ACLS, "--add --deny-principal User:bob --deny-host 10.0.0.1 --operation write --topic p "
              "--resource-pattern-type prefixed"),
    (ACLS, "--add --allow-principal User:ann --consumer --topic t --group g"),
    (ACLS, "--add --allow-principal User:tom --producer --idempotent --topic t --transactional-id x"),
    (ACLS, "--add --allow-principal User:tom --operation alter --cluster"),
    (ACLS, "--list"),
    (ACLS, "--list --principal User:ann --topic t"),
    (ACLS, "--remove --force --topic t --allow-principal User:ann --operation read"),
    (ACLS, "--remove --force --topic p --resource-pattern-type match"),
    (ACLS, "--list"),
    # kafka-delegation-tokens, kafka-cluster, kafka-broker-api-versions
    (TOKENS, "--describe --command-config {empty}"),
    (TOKENS, "--create --max-life-time-period -1 --command-config {empty}"),
    (CLUSTER, "cluster-id"),
    (CLUSTER, "list-endpoints"),
    (CLUSTER, "list-endpoints --include-fenced-brokers"),
    (CLUSTER, "unregister --id 9"),
    (VERSIONS, ""),
]  # fmt: skip


def run(bootstrap: str, folder: Path) -> list[dict[str, object]]:
    """Runs every command against a cluster. Returns the arguments, the output lines in order, and the exit status of
    each command.
    """
    files = {"topics": TOPICS, "moves": MOVES, "unknown": UNKNOWN_MOVES, "empty": ""}
    for name, text in files.items():
        (folder / name).write_text(text)
    lines = []
    for main, arguments in SCRIPT:
        words = [word.format(**{name: folder / name for name in files}) if word[0] == "{" else word
                 for word in arguments.split()]  # fmt: skip
        lines.append("\t".join([main, "--bootstrap-server", bootstrap, *words]))
        if main == CLUSTER:
            lines[-1] = "\t".join([main, words[0], "--bootstrap-server", bootstrap, *words[1:]])
    done = subprocess.run(
        java_programs.command("Tools", SOURCE),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    outputs = re.split(r"\n=== (-?\d+)\n", done.stdout)
    assert len(outputs) == 2 * len(SCRIPT) + 1, done.stdout
    return [
        {
            "command": f"{main.rpartition('.')[2]} {arguments}".strip(),
            "status": int(outputs[2 * index + 1]),
            "output": normalized(outputs[2 * index], str(folder), is_sorted=main == ACLS),
        }
        for index, (main, arguments) in enumerate(SCRIPT)
    ]


REPLACED = [
    (r"^(log4j|SLF4J|WARNING|\s+at ).*\n", ""),
    # Error texts differ between kcore and Kafka.
    (r"(org\.apache\.kafka\.common\.errors\.\w+): .*", r"\1"),
    (r"^(Could not upgrade none.version to 1\.).*", r"\1"),
    (r"(?:\d+\.\d+\.\d+\.\d+|localhost):\d+", "HOST:PORT"),
    (r"127\.0\.0\.1(\s+)\d{4,5}\b", r"127.0.0.1\1PORT"),
    (r"FOLDER/(logs|data)", "DIR"),
    (r"^CurrentVoters: .*", "CurrentVoters: ..."),  # Kafka has a listener for controllers, and its own format
    (r"((?:HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs|LeaderEpoch):\s+)-?\d+", r"\1N"),
    (r"^(Feature: kraft.version .*FinalizedVersionLevel: )\d", r"\1N"),  # 0 without dynamic voters
    (r"(?<![\w.-])[A-Za-z0-9_-]{22}(?![\w-])", "UUID"),
    (r'"(totalBytes|usableBytes|size)":-?\d+', r'"\1":N'),
    (r"Epoch: \d+", "Epoch: N"),
    (r"^1 +\tUUID\t\d+ .*", "1 UUID ..."),
]


def normalized(text: str, folder: str, *, is_sorted: bool) -> list[str]:
    """Returns the lines of an output, without the values that differ between two runs.

    Args:
        text: the output.
        folder: the folder with the data and the tool's files.
        is_sorted: True to sort the lines, because Java prints some sets in a different order in each process.
    """
    text = text.replace(folder, "FOLDER")
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return sorted(line.strip() for line in lines) if is_sorted else lines


def record() -> None:
    """Records the output of the tools with Apache Kafka."""
    from tests.apache import broker

    broker.PROPERTIES += "".join(f"{name}={value}\n" for name, value in AUTHORIZED.items())
    with tempfile.TemporaryDirectory() as folder, broker.ApacheKafka(Path(folder)) as kafka:
        results = run(kafka.bootstrap, Path(folder))
    RECORDED.write_text("[\n" + ",\n".join(json.dumps(result) for result in results) + "\n]\n")
    print(f"{RECORDED}: {len(results)} commands")


if __name__ == "__main__":
    sys.exit(record())
