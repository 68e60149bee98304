"""Writes the documents derived from the code, or checks that they are up to date.

python tools/generate_docs.py            writes the files of docs/ listed in `DOCUMENTS`
python tools/generate_docs.py --check    prints the stale ones, and fails if there are any
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from kcore.broker.share.states import TRANSITIONS as SHARE_PARTITION
from kcore.cli import VERBS, parser_for
from kcore.client.consumer_coordinator.states import CLASSIC, CONSUMER, ClassicState, ConsumerState
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.group.classic.states import STATES
from kcore.group.consumer.states import RECONCILIATION
from kcore.group.share.states import PHASES
from kcore.group.share.states import TRANSITIONS as SHARE_TRANSITIONS
from kcore.group.streams import states as streams_states
from kcore.protocol.api_keys import ApiKey, response_class
from kcore.runtime.shard import TRANSITIONS
from kcore.server.observe import METRICS
from kcore.spark.audit.finding import FINDINGS
from kcore.spark.audit.kinds import KINDS
from kcore.testing.control.openapi import text as control_description
from kcore.transaction.states import EMPTY, NAMES, PREVIOUS

DOCS = Path(__file__).resolve().parent.parent / "docs"
HELP_PYTHON = (3, 11)  # the wording of argparse's help differs between Python versions
BETWEEN_NODES = {ApiKey.ENVELOPE, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.ALTER_PARTITION, ApiKey.BROKER_HEARTBEAT}
"""APIs that only the nodes of a cluster use, which have an engine of their own."""
STEPS_OF_MEMBERS = (
    "*holds*: the member may still use partitions that it must revoke. *keep*: no change. *shrink*: in its epoch, the",
    "member revokes partitions to which it no longer subscribes. *next*: a step towards the target. *next in the",
    "target's epoch*: the member takes the target's epoch even if it must still revoke partitions. *fence*: it must",
    "drop everything and rejoin.",
)
"""The legend of the table of consumer groups' members."""
NOTE = "<!-- Made by tools/generate_docs.py: change the code, then run `make docs`. -->\n"


def apis() -> str:
    """Renders every API key with its served versions and differences from Kafka."""
    engine = Engine.open(Config.of({"offsets.topic.num.partitions": "1"}))
    lines = [
        "# APIs",
        NOTE,
        "Versions are those of Apache Kafka 4.3. A request for any other API closes the connection, as in Kafka.",
        "",
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
            lines.append(f"| {int(key)} | {name} | {api.versions[0]}–{api.versions[1]} | {kafka} | {api.differs} |")
    engine.close()
    return "\n".join(lines) + "\n"


def settings() -> str:
    """Renders every setting with its default and valid values."""
    lines = [
        "# Settings",
        NOTE,
        "For `kcore serve --config FILE` and `-c name=value`, and as attributes of `kcore.Config` with underscores.",
        "",
        "| setting | default | valid | effect |",
        "|---|---|---|---|",
    ]
    for setting in Config.SETTINGS.values():
        default = setting.format(setting.default)
        lines.append(f"| `{setting.name}` | {default or '–'} | {setting.valid} | {setting.doc} |")
    return "\n".join(lines) + "\n"


def metrics() -> str:
    """Renders every metric of /metrics from its table."""
    lines = [
        "# Metrics",
        NOTE,
        "The content of `/metrics`, served if `kcore.http.listen` is set; [operations.md](operations.md) explains it.",
        "The last column has the corresponding JMX metric. If that is a rate or a percentile, Prometheus computes it",
        "from kcore's counter or histogram.",
        "",
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
    lines = ["# States", NOTE, *_diagram("Classic groups", "Empty", classic)]
    lines += [
        "## Members of consumer groups",
        "",
        "The step of a heartbeat with its member's assignment (KIP-848), by the member's state, its epoch, the",
        "partitions that it must still revoke, and changes of its subscription.",
        "",
        *STEPS_OF_MEMBERS,
        "",
        "| state | at its target | holds | changed | step |",
        "|---|---|---|---|---|",
    ]
    for situation, step in RECONCILIATION.items():
        columns = ["yes" if holds else "no" for holds in situation[1:]]
        lines.append(f"| {situation.state.name} | {' | '.join(columns)} | {step.value} |")
    moves = [(state.name, follower.name) for state, found in streams_states.MOVES.items() for follower in found]
    lines += ["", *_diagram("Members of streams groups", "STABLE", moves)]
    lines += [
        "The step of a heartbeat (KIP-1071): by the member's state, whether its epoch is the target's, and whether it",
        "still holds tasks that it must revoke. The words are those of consumer groups, with tasks for partitions, and",
        "*next, in the following epoch*: a step towards the target, in which the member's epoch grows by one.",
        "",
        "| state | at its target | holds | step |",
        "|---|---|---|---|",
    ]
    for case, task_step in streams_states.RECONCILIATION.items():
        inputs = ["yes" if value else "no" for value in case[1:]]
        lines.append(f"| {case.state.name} | {' | '.join(inputs)} | {task_step.value} |")
    share = [(state.value, target.value) for state, targets in SHARE_TRANSITIONS.items() for target in targets]
    phases = [(phase.value, target.value) for phase, targets in PHASES.items() for target in targets]
    lines += ["", *_diagram("Share groups", "Empty", share), *_diagram("State of a share partition", "absent", phases)]
    delivery = [(state.value, target.value) for state, targets in SHARE_PARTITION.items() for target in targets]
    lines += ["", *_diagram("Share partitions on their leader", "Empty", sorted(delivery))]
    lines += [*_diagram("Transactions", NAMES[EMPTY], transactions), *_diagram("Shards", "initial", shards)]
    lines += _members("Members of classic groups: the client side", CLASSIC, ClassicState.UNJOINED)
    lines += _members("Members of consumer groups: the client side", CONSUMER, ConsumerState.UNSUBSCRIBED)
    return "\n".join(lines).rstrip() + "\n"


def _members(title: str, table: Mapping[Any, Iterable[Any]], first: Enum) -> list[str]:
    """Renders the state diagram of a member in a client."""
    return _diagram(title, first.value, [(state.value, target.value) for state, row in table.items() for target in row])


def _diagram(title: str, first: str, moves: Iterable[tuple[str, str]]) -> list[str]:
    """Renders a state diagram: the initial state and every transition between two states, by name."""
    lines = [f"## {title}", "", "```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    return [*lines, *(f"    {source} --> {target}" for source, target in sorted(moves)), "```", ""]


def cli() -> str:
    """Renders the help of `kcore` and its verbs."""
    lines = ["# Command line", NOTE, "```", parser_for(None).format_help().rstrip(), "```"]
    for verb in VERBS:
        lines += ["", f"## kcore {verb}", ""]
        for title, text in _helps(verb):
            lines += [f"`{title}`", "", "```", text.rstrip(), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def audit() -> str:
    """Renders the findings of the Spark audit: the columns of the table, and every kind."""
    lines = ["# Findings of the audit", NOTE, "Findings of `kcore spark audit`; see [spark.md](spark.md#audit).", ""]
    lines += ["## The table", "", "| column | type | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | `{kind}` | {meaning} |" for name, kind, meaning in FINDINGS]
    lines += ["", "## Kinds", "", "| kind | severity | meaning | no finding if |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {kind.severity} | {kind.meaning} | {kind.excuse or '–'} |" for name, kind in KINDS.items()]
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
