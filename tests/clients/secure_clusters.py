"""Clusters of three nodes with SASL and ACLs. Either the nodes are processes over one folder, or they share a
PostgreSQL database.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from kcore.cluster.urls import open_store
from tests.kit import wait_until
from tests.postgresql.nodes import NodeProcesses
from tests.postgresql.servers import Servers
from tests.processes.supervised import Supervised

NODES: Final = (1, 2, 3)
KINDS: Final = ("processes", "postgresql")
PROTOCOL: Final = "SASL_PLAINTEXT"
ADMIN: Final = ("admin", "admin-password")
PLAIN_USER: Final = ("paula", "paula-password")
"""A user without permissions, whose password is in each node's configuration."""
SCRAM: Final = "SCRAM-SHA-512"
ENDS_S: Final = 60.0

_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="node-password" user_node="node-password" '
    f'user_{ADMIN[0]}="{ADMIN[1]}" user_{PLAIN_USER[0]}="{PLAIN_USER[1]}";'
)
SETTINGS: Final = {
    "sasl.enabled.mechanisms": f"PLAIN,SCRAM-SHA-256,{SCRAM}",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:node;User:{ADMIN[0]}",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


class SecureCluster:
    """A running cluster.

    Attributes:
        kind: "processes" or "postgresql".
        url: the URL of its store.
        addresses: the address of each node.
    """

    def __init__(self, kind: str, url: str, addresses: dict[int, str], logs: Path) -> None:
        self.kind = kind
        self.url = url
        self.addresses = addresses
        self._logs = logs
        self._admins: dict[int, AdminClient] = {}

    def others(self, node_id: int) -> list[int]:
        """Returns the ids of the other nodes: first the ids above `node_id`, then the ids below it."""
        return [(node_id + step - 1) % len(NODES) + 1 for step in range(1, len(NODES))]

    def controller(self) -> int:
        """Returns the node that is the controller."""
        with closing(open_store(self.url)) as store:
            lease = wait_until(store.controller, "a controller", ENDS_S)
        return int(lease.holder)

    def follower(self) -> int:
        """Returns a node that is not the controller."""
        return self.others(self.controller())[0]

    def admin(self, node_id: int) -> AdminClient:
        """Returns an admin client of the super user. The client has the address of only this node."""
        client = self._admins.get(node_id)
        if client is None:
            client = self._admins[node_id] = AdminClient(settings_of(self.addresses[node_id], ADMIN))
        return client

    def log(self) -> str:
        """Returns the lines of all nodes."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._logs.glob("*.log")))


@contextmanager
def running(kind: str, folder: Path, settings: dict[str, str] | None = None) -> Iterator[SecureCluster]:
    """Runs a cluster.

    Args:
        kind: "processes" or "postgresql".
        folder: the folder for data and logs.
        settings: settings that replace those of `SETTINGS`. The value "" removes a setting.
    """
    chosen = {name: value for name, value in {**SETTINGS, **(settings or {})}.items() if value}
    prefix = f"{PROTOCOL}://" if "sasl.enabled.mechanisms" in chosen else ""
    if kind == "processes":
        with Supervised(folder, len(NODES), chosen, prefix) as processes:
            addresses = {node: f"127.0.0.1:{port}" for node, port in enumerate(processes.ports, 1)}
            yield SecureCluster(kind, f"local://{processes.data}", addresses, folder)
            assert processes.stop() == 0
        return
    servers = Servers()
    try:
        url = servers.server("secure").create().url("postgres")
        with NodeProcesses(url, folder, len(NODES), chosen, prefix) as nodes:
            addresses = {node: f"127.0.0.1:{port}" for node, port in nodes.ports.items()}
            yield SecureCluster(kind, url, addresses, folder)
    finally:
        servers.close()


def settings_of(address: str, user: tuple[str, str], mechanism: str = "PLAIN", **others: Any) -> dict[str, Any]:
    """Returns librdkafka's settings for a user, given by name and password."""
    return {
        "bootstrap.servers": address,
        "security.protocol": PROTOCOL,
        "sasl.mechanism": mechanism,
        "sasl.username": user[0],
        "sasl.password": user[1],
        "log_level": int(os.environ.get("KCORE_TEST_LOG_LEVEL", "0")),
        **{name.replace("_", "."): value for name, value in others.items()},
    }
