"""Writes the documents derived from the code, or checks that they are up to date.

python tools/generate_docs.py            writes the files of docs/ listed in `DOCUMENTS`
python tools/generate_docs.py --check    prints the stale ones, and fails if there are any
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from kcore.broker.share.states import TRANSITIONS as SHARE_PARTITION
from kcore.cli import VERBS, parser_for
from kcore.client.consumer_coordinator.states import CLASSIC, CONSUMER, ClassicState, ConsumerState
from kcore.config.node import Config
from kcore.config.setting import WIDTHS, Setting
from kcore.engine import Engine
from kcore.group.classic.states import STATES
from kcore.group.consumer.states import RECONCILIATION
from kcore.group.share.states import PHASES
from kcore.group.share.states import TRANSITIONS as SHARE_TRANSITIONS
from kcore.group.streams import states as streams_states
from kcore.protocol.api_keys import ApiKey, response_class
from kcore.runtime.shard_state import TRANSITIONS
from kcore.server.observe import METRICS
from kcore.spark.audit.finding import FINDINGS
from kcore.spark.audit.kinds import KINDS
from kcore.testing.control.openapi import text as control_description
from kcore.transaction.states import EMPTY, NAMES, PREVIOUS

DOCS = Path(__file__).resolve().parent.parent / "docs"
HELP_PYTHON = (3, 11)  # the wording of argparse's help differs between Python versions
BETWEEN_NODES = {ApiKey.ENVELOPE, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.ALTER_PARTITION, ApiKey.BROKER_HEARTBEAT}
"""APIs that only the nodes of a cluster send to each other. The engine of a single server does not serve them."""
STEPS_OF_MEMBERS = (
    "A member of a consumer group (KIP-848) approaches its target assignment in steps, one for each heartbeat. The "
    "table shows the step for every combination of four inputs.",
    "- *state*: the member's state. `STABLE`: the member has the whole target of its member epoch. `UNREVOKED`: the "
    "member must revoke partitions, and has not confirmed the revocation. `UNRELEASED`: other members still own "
    "partitions of the member's target. `UNKNOWN`: a later version of kcore has stored a state that this version does "
    "not know.",
    '- *target epoch*: "yes" if the member\'s epoch is the epoch of its target.',
    '- *must revoke*: "yes" if the member may still use partitions that it must revoke.',
    '- *subscription changed*: "yes" if this heartbeat changed the member\'s subscription.',
    "The steps:",
    "- *keep*: the assignment does not change.",
    "- *shrink*: the member revokes the partitions to which it no longer subscribes, and keeps its epoch.",
    "- *next*: the member moves towards its target. It keeps its epoch while it must revoke partitions.",
    "- *next in the target's epoch*: the member moves towards its target, and takes the target's epoch even if it must "
    "revoke partitions.",
    "- *fence*: the coordinator refuses the heartbeat. The member must give up all partitions and join again.",
)
"""Paragraphs and list items that precede the table of consumer group members in docs/states.md."""
STEPS_OF_STREAMS_MEMBERS = (
    "The table shows the step of a heartbeat in a streams group (KIP-1071). A change of the subscription is no input, "
    "and no step is *shrink*. All other states, inputs and steps are those of consumer groups, with tasks in place of "
    "partitions, with two exceptions:",
    "- `UNRELEASED`: a task of the member's target still runs in another member, or in the member's own process in "
    "another role.",
    "- *next, in the following epoch*: the member moves towards its target, and its epoch grows by one even if the "
    "member must revoke further tasks.",
)
"""Paragraphs and list items that precede the table of streams group members in docs/states.md."""
CLASSIC_CLIENT = "Members of classic groups: the client side"
CONSUMER_CLIENT = "Members of consumer groups: the client side"
ABOUT = {
    "Classic groups": "In `PreparingRebalance`, JoinGroup requests wait until all members have joined or the rebalance "
    "timeout ends. In `CompletingRebalance`, SyncGroup requests wait for the assignment of the group's leader. A group "
    "becomes `Dead` when its shard is unloaded.",
    "Share groups": "A group is `Stable` while it has members. `Dead` means deleted; only responses show this state.",
    "State of a share partition": "The records of a share group have three lists of share partitions: those whose "
    "state the share coordinator initializes, holds, or deletes. A share partition in none of these lists is `absent`.",
    "Share partitions on their leader": "The leader of a partition delivers its records to each share group through a "
    "share partition (KIP-932). If a share partition has failed or was fenced, the leader removes it, and the next "
    "ShareFetch creates a new one.",
    "Transactions": "These are the states of a transactional id. No response shows two of them: `PrepareEpochFence` "
    "exists only within one decision, and an id in the state `Dead` has expired and is deleted.",
    "Shards": "A shard replays its log while it is `loading`, and serves requests while it is `active`. A `failed` "
    "shard may load again.",
    CLASSIC_CLIENT: "These are the states of a member in kcore's own client. In `Preparing` and `Leaving`, the "
    "member commits its positions and gives up its partitions. In `Completing`, the program handles the new "
    "assignment.",
    CONSUMER_CLIENT: "These are the states of a member in kcore's own client. In `Acknowledging`, the member's next "
    "heartbeat reports the new assignment. In `Stale`, the member has left the group, because the program did not poll "
    "in time.",
}
"""Heading of a state diagram -> the text above the diagram."""
SECTIONS_OF_SETTINGS = {
    "node.id": "The node",
    "group.min.session.timeout.ms": "Classic groups",
    "group.coordinator.rebalance.protocols": "Kinds of groups",
    "group.consumer.session.timeout.ms": "Consumer groups",
    "group.share.session.timeout.ms": "Share groups",
    "group.streams.session.timeout.ms": "Streams groups",
    "offsets.topic.num.partitions": "Offsets",
    "transaction.state.log.num.partitions": "Transactions",
    "share.coordinator.state.topic.num.partitions": "Delivery state of share groups",
    "auto.create.topics.enable": "Topics and logs",
    "fetch.max.bytes": "Fetch",
    "socket.request.max.bytes": "Connections",
    "kcore.data.dir": "The data folder",
    "kcore.connection.buffer.bytes": "Memory and sizes of requests and responses",
    "kcore.http.listen": "Console and metrics",
    "listener.security.protocol.map": "Listeners",
    "ssl.keystore.type": "TLS",
    "sasl.enabled.mechanisms": "SASL",
    "authorizer.class.name": "Authorization",
}
"""The first setting of each section of docs/settings.md -> the heading of the section."""
NOTE = "<!-- Made by tools/generate_docs.py: change the code, then run `make docs`. -->\n"


def apis() -> str:
    """Renders every API key with its served versions and differences from Kafka."""
    engine = Engine.open(Config.of({"offsets.topic.num.partitions": "1"}))
    lines = [
        "# APIs",
        NOTE,
        *_wrapped(
            "This page lists the APIs of Kafka's protocol, with the versions that kcore serves and those that Apache "
            "Kafka 4.3 defines. The column *differs* has differences from Kafka's behaviour; "
            "[differences.md](differences.md) has more of them. Version 6 of InitProducerId is unstable, and disabled "
            "by default in Kafka 4.3.",
            "If a request has an API or a version that is not served, kcore closes the connection, as Kafka does. Only "
            "a request for another version of ApiVersions gets a response, with UNSUPPORTED_VERSION. Like Kafka, kcore "
            "lists Produce from v0 in ApiVersions. Otherwise, old releases of librdkafka would assume that the server "
            "does not support compression.",
        ),
        "| key | API | served | Kafka 4.3 | differs |",
        "|---|---|---|---|---|",
    ]
    for key in ApiKey:
        api = engine.apis.get(key)
        name = "".join(word.capitalize() for word in key.name.split("_"))
        try:
            known = response_class(key)
        except KeyError:
            continue  # APIs between brokers and controllers
        kafka = f"{known.MIN_VERSION}–{known.MAX_VERSION}"
        if api is None:
            missing = "served only between the nodes of a cluster" if key in BETWEEN_NODES else "not served yet"
            lines.append(f"| {int(key)} | {name} | – | {kafka} | {missing} |")
        else:
            low, high = max(api.versions[0], known.MIN_VERSION), api.versions[1]  # Produce lists v0-2, unserved
            lines.append(f"| {int(key)} | {name} | {low}–{high} | {kafka} | {api.differs} |")
    engine.close()
    return "\n".join(lines) + "\n"


def settings() -> str:
    """Renders every setting with its default and valid values."""
    lines = [
        "# Settings",
        NOTE,
        *_wrapped(
            "`kcore serve` reads these settings from a file (`--config FILE`) and from its command line "
            "(`-c NAME=VALUE`). `kcore serve --print-config` prints their values. An attribute of `kcore.Config` has "
            "the setting's name with underscores in place of dots: `group_max_size`.",
            "The end of a name gives the unit of its value: `ms`, `bytes`, `minutes`. A whole number must fit into "
            "32 or 64 bits, as in Kafka. Names that begin with `kcore.` are kcore's own.",
            "Settings of a single topic or group, such as `retention.ms` and `consumer.session.timeout.ms`, have "
            "Kafka's names, too. The settings on this page are their defaults and their bounds.",
            "More settings: nodes of a [cluster](cluster.md#settings), the windows of [quotas]"
            "(operations.md#quotas), and Kafka's settings [without effect](differences.md#settings).",
        ),
    ]
    for setting in Config.SETTINGS.values():
        if setting.name in SECTIONS_OF_SETTINGS:
            lines += ["", f"## {SECTIONS_OF_SETTINGS[setting.name]}", ""]
            lines += ["| setting | default | valid | effect |", "|---|---|---|---|"]
        default = setting.format(setting.default)
        lines.append(f"| `{setting.name}` | {default or '–'} | {_valid(setting)} | {setting.doc} |")
    missing = SECTIONS_OF_SETTINGS.keys() - Config.SETTINGS.keys()
    if missing:
        raise KeyError(f"SECTIONS_OF_SETTINGS names settings that do not exist: {sorted(missing)}")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _valid(setting: Setting) -> str:
    """Describes the valid values of a setting. Omits the bounds of a whole number that are those of its type."""
    if setting.choices is not None or setting.type not in WIDTHS:
        return setting.valid
    smallest, largest = WIDTHS[setting.type]
    low = None if setting.low is None or setting.low <= smallest else int(setting.low)
    high = None if setting.high is None or setting.high >= largest else int(setting.high)
    if low is None:
        return "a whole number" if high is None else f"a whole number up to {high}"
    return f"a whole number from {low}" if high is None else f"a whole number from {low} to {high}"


def metrics() -> str:
    """Renders every metric of /metrics from its table."""
    lines = [
        "# Metrics",
        NOTE,
        *_wrapped(
            "kcore serves these metrics at `/metrics` if `kcore.http.listen` is set; [operations.md](operations.md) "
            "explains their use. A gauge or counter whose name ends with a unit (`_bytes`, `_seconds`) is a value in "
            "this unit. Any other gauge or counter is a number of objects, unless its row says otherwise. The last "
            "column has Kafka's corresponding JMX metric. If Kafka's metric is a rate or a percentile, compute it with "
            "Prometheus from kcore's counter or histogram.",
            "The rows are grouped by subject: groups, share groups, committed offsets, partitions of coordinators, the "
            "engine, connections and requests, the log, topics, transactions, fetch sessions, compaction, quotas, "
            "authentication, the cluster, the process.",
        ),
        "| metric | type | labels | meaning | Kafka's |",
        "|---|---|---|---|---|",
    ]
    for metric in METRICS:
        labels = ", ".join(f"`{name}`" for name in metric.labels) or "–"
        lines.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.doc} | {metric.kafka or '–'} |")
    return "\n".join(lines) + "\n"


def states() -> str:
    """Renders the state machines from their tables."""
    classic = [(source.value, state.value) for state, rules in STATES.items() for source in rules.previous]
    shards = [(state.value, target.value) for state, targets in TRANSITIONS.items() for target in targets]
    transactions = [(NAMES[source], NAMES[state]) for state, sources in PREVIOUS.items() for source in sources]
    lines = ["# States", NOTE]
    lines += _wrapped(
        "This page shows the state machines of kcore: groups and their members, share partitions, transactional ids, "
        "shards, and the members of groups in kcore's own client. Each diagram has every transition that the code "
        "allows. `[*]` marks the initial state."
    )
    lines += _diagram("Classic groups", "Empty", classic)
    lines += [
        "## Members of consumer groups",
        "",
        *_wrapped(*STEPS_OF_MEMBERS),
        "| state | target epoch | must revoke | subscription changed | step |",
        "|---|---|---|---|---|",
    ]
    for situation in sorted(RECONCILIATION):
        columns = ["yes" if holds else "no" for holds in situation[1:]]
        lines.append(f"| {situation.state.name} | {' | '.join(columns)} | {RECONCILIATION[situation].value} |")
    moves = [(state.name, follower.name) for state, found in streams_states.MOVES.items() for follower in found]
    lines += ["", *_diagram("Members of streams groups", "STABLE", moves)]
    lines += _wrapped(*STEPS_OF_STREAMS_MEMBERS)
    lines += ["| state | target epoch | must revoke | step |", "|---|---|---|---|"]
    for case in sorted(streams_states.RECONCILIATION):
        inputs = ["yes" if value else "no" for value in case[1:]]
        lines.append(f"| {case.state.name} | {' | '.join(inputs)} | {streams_states.RECONCILIATION[case].value} |")
    share = [(state.value, target.value) for state, targets in SHARE_TRANSITIONS.items() for target in targets]
    phases = [(phase.value, target.value) for phase, targets in PHASES.items() for target in targets]
    lines += ["", *_diagram("Share groups", "Empty", share), *_diagram("State of a share partition", "absent", phases)]
    delivery = [(state.value, target.value) for state, targets in SHARE_PARTITION.items() for target in targets]
    lines += _diagram("Share partitions on their leader", "Empty", sorted(delivery))
    lines += [*_diagram("Transactions", NAMES[EMPTY], transactions), *_diagram("Shards", "initial", shards)]
    lines += _members(CLASSIC_CLIENT, CLASSIC, ClassicState.UNJOINED)
    lines += _members(CONSUMER_CLIENT, CONSUMER, ConsumerState.UNSUBSCRIBED)
    return "\n".join(lines).rstrip() + "\n"


def _wrapped(*parts: str) -> list[str]:
    """Wraps paragraphs and list items (which begin with "- ") to lines, with an empty line after each block."""
    lines: list[str] = []
    for part, following in zip(parts, (*parts[1:], ""), strict=True):
        item = part.startswith("- ")
        lines += textwrap.wrap(part, 118, subsequent_indent="  " if item else "", break_on_hyphens=False)
        if not (item and following.startswith("- ")):
            lines.append("")
    return lines


def _members(title: str, table: Mapping[Any, Iterable[Any]], first: Enum) -> list[str]:
    """Renders the state diagram of a group member, as the client's state machine defines it."""
    return _diagram(title, first.value, [(state.value, target.value) for state, row in table.items() for target in row])


def _diagram(title: str, first: str, moves: Iterable[tuple[str, str]]) -> list[str]:
    """Renders a state diagram: the initial state and every transition between two states, by name."""
    about = _wrapped(ABOUT[title]) if title in ABOUT else []
    lines = [f"## {title}", "", *about, "```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    return [*lines, *(f"    {source} --> {target}" for source, target in sorted(moves)), "```", ""]


def cli() -> str:
    """Renders the help of `kcore` and its verbs."""
    about = _wrapped(
        "Most commands read or change a data folder, `DIR`, while no server has it open. With `--bootstrap HOST:PORT` "
        "in place of `DIR`, they use a running server: kcore, Apache Kafka, or another server with Kafka's protocol. "
        "Some commands take the URL of a cluster's store: `postgresql://USER@HOST/DATABASE` of a "
        "[cluster](cluster.md), or `local://FOLDER` of [several processes](processes.md).",
        "The exit status is 0 after success, 1 after a failure or a finding, 2 after wrong usage, and 130 after "
        "Ctrl-C.",
    )
    lines = ["# Command line", NOTE, *about, "```", parser_for(None).format_help().rstrip(), "```"]
    for verb in VERBS:
        lines += ["", f"## kcore {verb}", ""]
        for title, text in _helps(verb):
            lines += [f"`{title}`", "", "```", text.rstrip(), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def audit() -> str:
    """Renders two tables about the Spark audit: the columns of the findings table, and every kind of finding."""
    lines = [
        "# Findings of the audit",
        NOTE,
        *_wrapped(
            "`kcore spark audit` checks the logs of coordinators, and writes its findings to a table. This page lists "
            "the kinds of findings and the columns of the table. [spark.md](spark.md#audit) describes the command, the "
            "severities and the exit status.",
        ),
    ]
    lines += [
        "## Kinds",
        "",
        *_wrapped(
            "The rows are grouped by subject: the log itself, groups, transactional ids, markers and data of "
            "producers, share partitions. The last column has the cases in which the audit reports nothing, because a "
            "log without a fault may look the same.",
        ),
        "| kind | severity | meaning | no finding if |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{name}` | {kind.severity} | {kind.meaning} | {kind.excuse or '–'} |" for name, kind in KINDS.items()]
    lines += ["", "## The table", "", "| column | type | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | `{kind}` | {meaning} |" for name, kind, meaning in FINDINGS]
    return "\n".join(lines) + "\n"


def _helps(verb: str) -> list[tuple[str, str]]:
    """Returns (command, help) of a verb and its actions."""
    parser = _choices(parser_for(verb))[verb]
    return [(f"kcore {verb}", parser.format_help())] + [
        (f"kcore {verb} {action}", sub.format_help()) for action, sub in _choices(parser).items()
    ]


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


DOCUMENTS: dict[str, Callable[[], str]] = {
    "apis.md": apis,
    "settings.md": settings,
    "metrics.md": metrics,
    "states.md": states,
    "cli.md": cli,
    "audit.md": audit,
    "control.openapi.json": control_description,
}


def main() -> int:
    """Writes or checks the documents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a document is stale")
    check = parser.parse_args().check
    stale = []
    for name, make in DOCUMENTS.items():
        if check and name == "cli.md" and sys.version_info[:2] != HELP_PYTHON:
            continue
        path, text = DOCS / name, make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
            print(f"wrote docs/{name}")
    if check and stale:
        print(f"stale: {', '.join(f'docs/{name}' for name in stale)}; run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"  # argparse wraps help at the terminal's width
    sys.exit(main())
