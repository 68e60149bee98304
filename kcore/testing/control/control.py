"""The state behind the control server: a broker, and the faults that requests have injected."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kcore.errors import KcoreError
from kcore.protocol.api_keys import api_name
from kcore.testing import faults
from kcore.testing.requests import api_key, groups_of

if TYPE_CHECKING:
    from kcore.testing.broker import Broker
    from kcore.testing.faults import ActiveFault, Fault, RandomFaults
    from kcore.testing.history import Event

MAX_FAULTS = 10_000
"""Maximum number of faults that exist at a time. A test suite that never removes faults must not exhaust the memory."""

ACTIONS = {
    "fail": faults.fail,
    "delay": faults.delay,
    "hold": faults.hold,
    "disconnect": faults.disconnect,
    "corrupt": faults.corrupt,
    "throttle": faults.throttle,
}
NEEDED = {"fail": "error", "delay": "seconds", "throttle": "seconds"}
NOT_OF_ALL = {
    "error": ("fail",),
    "message": ("fail",),
    "seconds": ("delay", "throttle"),
    "after": ("delay", "hold", "disconnect"),
}


def fault_of(body: Mapping[str, Any]) -> Fault:
    """Returns the fault that a request describes.

    Raises:
        ValueError: the fields do not fit the action, or an API or error is unknown.
    """
    options = {name: value for name, value in body.items() if name not in {"action", "api"}}
    action = body["action"]
    if (needed := NEEDED.get(action)) is not None and options.get(needed) is None:
        raise ValueError(f"action {action!r} needs the field {needed!r}")
    for name, actions in NOT_OF_ALL.items():
        if name in options and action not in actions:
            raise ValueError(f"action {action!r} has no field {name!r}")
    if not body["api"]:
        raise ValueError("api is empty; valid: the name of an API, several, or '*'")
    return ACTIONS[action](body["api"], **options)  # type: ignore[operator, no-any-return]


class Control:
    """A broker that is controlled from outside the process.

    Its methods may be called from several threads at a time.

    Args:
        broker: the running broker.

    Attributes:
        broker: the running broker.
        faults: the injected faults by id.
        random: the random faults; None if none were injected.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.faults: dict[int, ActiveFault] = {}
        self.random: RandomFaults | None = None
        self._last_id = 0
        self._lock = threading.Lock()
        self._lifecycle = threading.Lock()

    def inject(self, given: list[Fault], *, script: bool) -> list[int]:
        """Injects faults, and returns their ids.

        Raises:
            KcoreError: there are too many faults.
        """
        with self._lock:
            if len(self.faults) + len(given) > MAX_FAULTS:
                raise KcoreError(f"there are {len(self.faults)} faults already: remove them with DELETE /faults")
            added = self.broker.script(*given) if script else self.broker.inject(*given)
            ids = []
            for active in added:
                self._last_id += 1
                self.faults[self._last_id] = active
                ids.append(self._last_id)
            return ids

    def fault(self, text: str) -> ActiveFault:
        """Returns a fault by its id.

        Raises:
            LookupError: no fault has this id.
        """
        active = self.faults.get(int(text)) if text.isascii() and text.isdigit() and len(text) < 20 else None
        if active is None:
            raise LookupError(f"fault {text!r} does not exist")
        return active

    def clear(self, text: str | None = None) -> None:
        """Removes the fault with an id; None: all faults."""
        with self._lock:
            if text is None:
                self.broker.clear_faults()
                self.faults, self.random = {}, None
            else:
                self.broker.clear_faults(self.fault(text))
                del self.faults[int(text)]

    def inject_random(self, body: Mapping[str, Any]) -> RandomFaults:
        """Injects faults at random. They replace the random faults of an earlier call.

        Raises:
            ValueError: an API is unknown.
        """
        for name in body.get("apis", ()):
            api_key(name)  # raises for an unknown name
        with self._lock:
            self.random = self.broker.random_faults(**body)
            return self.random

    def restart(self, how: str) -> None:
        """Restarts the broker. If another restart is in progress, waits for its end first."""
        with self._lifecycle:
            self.broker.restart(kill=how == "kill", power=how == "power")

    # ---- JSON

    def faults_json(self) -> list[dict[str, Any]]:
        """Returns all faults as JSON objects."""
        with self._lock:
            return [self.fault_json(fault_id) for fault_id in sorted(self.faults)]

    def fault_json(self, fault_id: int) -> dict[str, Any]:
        """Returns a fault as a JSON object."""
        active = self.fault(str(fault_id))
        return {
            "id": fault_id,
            "action": active.fault.action,
            "apis": list(active.fault.apis),
            "description": active.fault.describe(),
            "seen": active.seen,
            "applied": active.applied,
            "exhausted": active.exhausted,
        }

    def held_json(self) -> list[dict[str, Any]]:
        """Returns the held requests as JSON objects."""
        return [
            {
                "api": api_name(held.request.API_KEY),
                "client_id": held.context.client_id,
                "groups": sorted(set(groups_of(held.request))),
            }
            for held in self.broker.held
        ]

    def group_json(self, group_id: str) -> dict[str, Any]:
        """Returns a group as a JSON object."""
        state = self.broker.groups[group_id].snapshot()
        members = [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "epoch": member.epoch,
                "partitions": positions(member.partitions),
                "joining": member.joining,
            }
            for member in state.members.values()
        ]
        return {
            "group_id": group_id,
            "kind": state.kind,
            "state": state.state,
            "epoch": state.epoch,
            "members": sorted(members, key=lambda member: str(member["member_id"])),
            "offsets": offsets(self.broker.groups[group_id].offsets),
        }

    def history_json(self, group_id: str) -> dict[str, Any]:
        """Returns the history of a group as a JSON object."""
        history = self.broker.history(group_id)
        return {"group_id": group_id, "events": [_event(event) for event in history], "table": history.table()}


def positions(partitions: Any) -> list[dict[str, Any]]:
    """Returns partitions as JSON objects."""
    return [{"topic": each.topic, "partition": each.partition} for each in sorted(partitions)]


def offsets(found: Mapping[Any, int]) -> list[dict[str, Any]]:
    """Returns the offsets of partitions as JSON objects."""
    return [
        {"topic": partition.topic, "partition": partition.partition, "offset": offset}
        for partition, offset in sorted(found.items())
    ]


def _event(event: Event) -> dict[str, Any]:
    return {
        "at": event.at,
        "kind": event.kind,
        "member_id": event.member_id,
        "client_id": event.client_id,
        "epoch": event.epoch,
        "partitions": positions(event.partitions),
        "offsets": offsets(event.offsets),
        "detail": event.detail,
        "cause": event.cause,
    }
