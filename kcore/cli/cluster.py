"""`kcore cluster`: creates the store of a cluster, shows its nodes, drains and fences them, and moves leaders."""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

from kcore.cli import output
from kcore.cluster.store import METADATA
from kcore.cluster.urls import initialise, open_store
from kcore.errors import KcoreError
from kcore.printable import counted

if TYPE_CHECKING:
    from kcore.cluster.store import ClusterStore, RegisteredNode

COLUMNS = ("node", "state", "controller", "leaders", "lease_ms", "rack", "endpoints")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    creating = actions.add_parser("init", help="create the tables of a cluster, or migrate them to this version")
    creating.add_argument(
        "--node-role",
        metavar="ROLE",
        help="the PostgreSQL role of the nodes; it gets the right to change rows, but not tables. Default: nodes "
        "connect as the owner of the tables",
    )
    showing = actions.add_parser("status", help="show the nodes, their leases and the number of partitions they lead")
    draining = actions.add_parser("drain", help="let the controller move all leaders away from a node")
    draining.add_argument("--stop", action="store_true", help="stop draining: let the node lead partitions again")
    fencing = actions.add_parser("fence", help="refuse all writes of a node whose lease has expired")
    fencing.add_argument(
        "--force",
        action="store_true",
        help="fence the node even if its lease has not expired; it may serve reads until the lease expires",
    )
    moving = actions.add_parser(
        "move", help="move a partition to another leader; the present leader first commits its pending writes"
    )
    spreading = actions.add_parser("rebalance", help="let the controller spread the leaders evenly over the nodes")
    for action in (creating, showing, draining, fencing, moving, spreading):
        local = "" if action is creating else ", or local://FOLDER of `kcore serve --processes`"
        action.add_argument(
            "url",
            metavar="URL",
            help=f"postgresql://USER@HOST[,HOST]/DATABASE{local}; PostgreSQL's password is read from PGPASSWORD or "
            "~/.pgpass",
        )
    moving.add_argument("partition", metavar="PARTITION", help="the partition, as TOPIC-NUMBER")
    for action in (moving, spreading):
        action.add_argument(
            "--command-config",
            metavar="FILE",
            help="a properties file with Kafka's names for the connection to a node: security.protocol, "
            "sasl.mechanism, sasl.jaas.config, ssl.truststore.location (PEM), ...",
        )
    for action in (draining, fencing, moving):
        action.add_argument("node", metavar="NODE", type=int, help="the node's id")
    output.add_arguments(showing)


def run(options: argparse.Namespace) -> int:
    """Creates, shows or changes a cluster's store."""
    if options.action == "init":
        return init(options.url, options.node_role)
    with closing(open_store(options.url)) as store:
        if options.action == "status":
            return status(store, options.format)
        if options.action in ("move", "rebalance"):
            from kcore.cli import cluster_moves  # noqa: PLC0415 - the other actions need no client

            if options.action == "move":
                return cluster_moves.move(store, options.partition, options.node, options.command_config)
            return cluster_moves.rebalance(store, options.command_config)
        if options.action == "drain":
            return drain(store, options.node, not options.stop)
        return fence(store, options.node, options.force)


def init(url: str, node_role: str | None) -> int:
    """Creates or migrates the store, and prints warnings about its settings."""
    done = initialise(url, node_role)
    for warning in done.warnings:
        output.complain(f"warning: {warning}")
    change = "unchanged" if done.before == done.after else "created" if done.before == 0 else f"was {done.before}"
    output.say(f"cluster {done.cluster_id}: schema version {done.after} ({change})")
    return 0


def status(store: ClusterStore, form: str) -> int:
    """Prints the registered nodes."""
    nodes, controller = store.nodes(), store.controller()
    leaders = store.leaders()
    counts = Counter(row.leader for row in leaders if row.key != METADATA)
    holder = controller.holder if controller is not None and controller.remaining_ms else None
    rows = [
        (
            node.node_id,
            _state(node),
            node.node_id == holder,
            counts[node.node_id],
            node.lease.remaining_ms,
            node.description.rack,
            ",".join(f"{each.listener}://{each.host}:{each.port}" for each in node.description.endpoints),
        )
        for node in nodes
    ]
    output.print_rows(COLUMNS, rows, form)
    if form == "text":
        serving = {node.node_id for node in nodes if _state(node) in ("alive", "draining")}
        unserved = sum(count for leader, count in counts.items() if leader not in serving)
        total = counted(sum(counts.values()), "partitions")
        output.say(f"cluster {store.cluster_id()}: {total}, {unserved} without a leader alive")
    return 0


def _state(node: RegisteredNode) -> str:
    if node.fenced:
        return "fenced"
    if not node.lease.remaining_ms:
        return "expired"
    return "draining" if node.draining else "alive"


def drain(store: ClusterStore, node_id: int, draining: bool) -> int:
    """Starts or ends a drain, during which the controller moves all leaders away from a node."""
    if not store.set_draining(node_id, draining):
        raise KcoreError(f"node {node_id} is not registered in this cluster")
    if draining:
        output.say(f"node {node_id}: the controller moves its leaders away; `kcore cluster status` shows the rest")
    else:
        output.say(f"node {node_id}: may lead partitions again")
    return 0


def fence(store: ClusterStore, node_id: int, force: bool) -> int:
    """Fences a node: the store refuses the node's writes and lease renewals from now on."""
    node = next((each for each in store.nodes() if each.node_id == node_id), None)
    if node is None:
        raise KcoreError(f"node {node_id} is not registered in this cluster")
    if node.fenced:
        output.say(f"node {node_id}: is fenced already")
        return 0
    if not store.fence(node.lease, None, force):
        raise KcoreError(
            f"node {node_id} is alive: its lease is valid for another {node.lease.remaining_ms} ms. Use --force to "
            "fence the node anyway"
        )
    output.say(f"node {node_id}: fenced. The controller gives its partitions to other nodes")
    if node.lease.remaining_ms:
        output.say(f"node {node_id}: may serve reads for {node.lease.remaining_ms} ms more, until it notices the fence")
    return 0
