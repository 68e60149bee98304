"""The requests of the control server: path, fields, response and effect of each, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kcore.testing.control.control import Control, fault_of
from kcore.testing.control.fields import Field

Values = Mapping[str, Any]
Handler = Callable[[Control, Values, Values], Any]
"""A function that performs an operation.

Called with the parameters of the path and the fields of the body; returns a JSON object, or None.
"""

MAX_SECONDS: Final = 7 * 86_400
"""Maximum time in seconds, for a delay and for one step of the clock. A longer step would fire too many timers."""
MAX_WAIT_S: Final = 60
MAX_PARTITIONS: Final = 1_000

GROUP = Field("group", "string", "the group id")
CLIENT = Field("client_id", "string", "the client id")
PARTITION = (
    Field("topic", "string", "the topic", required=True),
    Field("partition", "integer", "the partition", required=True, minimum=0, maximum=2**31 - 1),
)
POSITION = (*PARTITION, Field("offset", "integer", "the offset", required=True, minimum=-1, maximum=2**63 - 1))
TIMEOUT = Field(
    "timeout", "number", "the maximum time to wait in seconds, 10 without it", minimum=0, maximum=MAX_WAIT_S
)
FAULT = (
    Field(
        "action",
        "string",
        "the kind of the fault",
        required=True,
        enum=("fail", "delay", "hold", "disconnect", "corrupt", "throttle"),
    ),
    Field("api", ("string", "array"), "an API by Kafka's name, several, or `*` for all", required=True),
    Field(
        "times",
        "integer",
        "the number of requests, null for all; 1 without it, for `hold` null",
        nullable=True,
        minimum=1,
        maximum=2**31 - 1,
    ),
    Field("skip", "integer", "the number of matching requests that pass before", minimum=0, maximum=2**31 - 1),
    Field("error", ("string", "integer"), "of `fail`: an error by Kafka's name or number"),
    Field("message", "string", "of `fail`: the error message, in responses that have one"),
    Field("seconds", "number", "of `delay` and `throttle`: the time", minimum=0, maximum=MAX_SECONDS),
    Field("after", "boolean", "of `delay`, `hold` and `disconnect`: true to carry the request out first"),
    Field("group", "string", "only requests of this group"),
    Field("topic", "string", "only requests about this topic"),
    Field("client_id", "string", "only requests of this client"),
    Field("principal", "string", "only requests of this principal, such as `User:alice`"),
    Field("transactional_id", "string", "only requests with this transactional id"),
)
ACTIVE_FAULT = (
    Field("id", "integer", "the fault's number", required=True),
    Field("action", "string", "the kind of the fault", required=True),
    Field("apis", "array", "the APIs", required=True),
    Field("description", "string", "the fault in words", required=True),
    Field("seen", "integer", "the number of matching requests", required=True),
    Field("applied", "integer", "the number of requests to which the fault was applied", required=True),
    Field("exhausted", "boolean", "true if the fault applies to no further request", required=True),
)
FAULTS = (Field("faults", "array", "the faults", required=True, items=ACTIVE_FAULT),)
RANDOM = (
    Field("seed", "integer", "the seed, which repeats a run", required=True),
    Field("injected", "array", "the injected faults in words, in order", required=True),
)
BROKER = (
    Field("bootstrap", "string", "the HOST:PORT that Kafka clients connect to", required=True),
    Field("connections", "integer", "the number of open connections of Kafka clients", required=True),
)
CLOCK = (
    Field("now", "number", "the broker's time in seconds since the epoch", required=True),
    Field("frozen", "boolean", "true while the clock stands still", required=True),
)
MEMBER = (
    Field("member_id", "string", "the member id", required=True),
    Field("instance_id", "string", "the instance id of a static member", required=True, nullable=True),
    Field("client_id", "string", "the client id", required=True),
    Field("epoch", "integer", "the member's epoch; the generation in a classic group", required=True),
    Field("partitions", "array", "the partitions that the member owns", required=True, items=PARTITION),
    Field("joining", "boolean", "true while its JoinGroup request waits", required=True),
)
GROUP_STATE = (
    Field("group_id", "string", "the group id", required=True),
    Field("kind", "string", "`classic`, `consumer`, `share` or `streams`; empty without a group", required=True),
    Field("state", "string", "the state in Kafka's words; `Dead` if the group does not exist", required=True),
    Field("epoch", "integer", "the generation or group epoch; -1 without a group", required=True),
    Field("members", "array", "the members", required=True, items=MEMBER),
    Field("offsets", "array", "the committed offsets", required=True, items=POSITION),
)
EVENT = (
    Field("at", "number", "seconds since the broker was created, on its clock", required=True),
    Field("kind", "string", "the kind of the event, such as `joined`, `committed`, `fenced`", required=True),
    Field("member_id", "string", "the member, if the event concerns one", required=True),
    Field("client_id", "string", "the client id", required=True),
    Field("epoch", "integer", "the generation or epoch after the event", required=True),
    Field("partitions", "array", "the partitions that the event concerns", required=True, items=PARTITION),
    Field("offsets", "array", "the committed offsets", required=True, items=POSITION),
    Field("detail", "string", "the error's name, or the old and the new state", required=True),
    Field("cause", "string", "the request, timeout, fault or control that caused the event", required=True),
)
HISTORY = (
    Field("group_id", "string", "the group id", required=True),
    Field("events", "array", "the events, the oldest first", required=True, items=EVENT),
    Field("table", "string", "the events as a table of text", required=True),
)
HELD = (
    Field("api", "string", "the API", required=True),
    Field("client_id", "string", "the client id", required=True),
    Field("groups", "array", "the groups that the request names", required=True),
)
SECONDS = Field("seconds", "number", "the time in seconds", required=True, minimum=0, maximum=MAX_SECONDS)
MEMBER_FIELDS = (
    Field("member_id", "string", "the member id; either this or `client_id`"),
    Field("client_id", "string", "the client id of exactly one member"),
)


@dataclass(frozen=True, slots=True)
class Operation:
    """A request of the control server.

    Attributes:
        method: the HTTP method.
        path: the path of the URL, in which `{name}` is a parameter.
        doc: the effect, in a sentence.
        run: carries the request out.
        body: the fields of the request's body.
        response: the fields of the response's body; empty for status 204 without a body.
        status: the status of the response.
    """

    method: str
    path: str
    doc: str
    run: Handler
    body: tuple[Field, ...] = ()
    response: tuple[Field, ...] = ()
    status: int = 200


def _inject(control: Control, _: Values, body: Values) -> Any:
    return control.fault_json(control.inject([fault_of(body)], script=False)[0])


def _script(control: Control, _: Values, body: Values) -> Any:
    ids = control.inject([fault_of(each) for each in body["faults"]], script=True)
    return {"faults": [control.fault_json(each) for each in ids]}


def _list_faults(control: Control, _: Values, __: Values) -> Any:
    return {"faults": control.faults_json()}


def _get_fault(control: Control, path: Values, _: Values) -> Any:
    control.fault(path["id"])
    return control.fault_json(int(path["id"]))


def _wait_for_fault(control: Control, path: Values, body: Values) -> Any:
    active, count = control.fault(path["id"]), body.get("applied", 1)
    _wait(control, body, lambda: active.applied >= count, f"fault {path['id']} was applied {count} times")
    return control.fault_json(int(path["id"]))


def _random(control: Control, _: Values, body: Values) -> Any:
    control.inject_random(body)
    return _get_random(control, {}, {})


def _get_random(control: Control, _: Values, __: Values) -> Any:
    found = control.random
    if found is None:
        raise LookupError("there are no random faults")
    return {"seed": found.seed, "injected": list(found.injected)}


def _wait_for_held(control: Control, _: Values, body: Values) -> Any:
    count = body.get("count", 1)
    _wait(control, body, lambda: len(control.broker.held) >= count, f"{count} requests are held")
    return {"held": control.held_json()}


def _wait(control: Control, body: Values, condition: Callable[[], bool], message: str) -> None:
    control.broker.wait_for(lambda _: condition(), body.get("timeout", 10), message=f"'{message}'")


def _release(control: Control, _: Values, body: Values) -> Any:
    return {"released": control.broker.release(**body)}


def _topic(control: Control, _: Values, body: Values) -> None:
    control.broker.check_disk()
    control.broker.node.topics.create(body["name"], partitions=body.get("partitions", 1), exist_ok=True)


def _broker(control: Control, _: Values, __: Values) -> Any:
    return {"bootstrap": control.broker.bootstrap, "connections": control.broker.connection_count}


def _clock(control: Control, _: Values, __: Values) -> Any:
    return {"now": control.broker.clock.now, "frozen": control.broker.clock.frozen}


def _advance(control: Control, _: Values, body: Values) -> Any:
    control.broker.clock.advance(body["seconds"])
    return _clock(control, {}, {})


def _step(control: Control, _: Values, body: Values) -> Any:
    control.broker.clock.step_wall(body["seconds"])
    return _clock(control, {}, {})


def _freeze(control: Control, _: Values, __: Values) -> Any:
    control.broker.clock.freeze()
    return _clock(control, {}, {})


def _resume(control: Control, _: Values, __: Values) -> Any:
    control.broker.clock.resume()
    return _clock(control, {}, {})


def _member_id(control: Control, path: Values, body: Values) -> str:
    if len(body) != 1:
        raise ValueError("give either member_id or client_id")
    if "member_id" in body:
        return str(body["member_id"])
    return control.broker.groups[path["group"]].member(body["client_id"]).member_id


def _expire(control: Control, path: Values, body: Values) -> None:
    control.broker.groups[path["group"]].expire(_member_id(control, path, body))


def _fence(control: Control, path: Values, body: Values) -> None:
    control.broker.groups[path["group"]].fence(_member_id(control, path, body))


def _wait_for_group(control: Control, path: Values, body: Values) -> Any:
    group = control.broker.groups[path["group"]]
    state, members = body.get("state"), body.get("members")
    wanted = {(row["topic"], row["partition"]): row["offset"] for row in body.get("offsets", ())}

    awaited = ", ".join(f"{name}={value}" for name, value in body.items() if name != "timeout")

    def reached() -> bool:
        now = group.snapshot()
        return (
            (state is None or now.state == state)
            and (members is None or len(now.members) == members)
            and (not wanted or wanted.items() <= {tuple(k): v for k, v in group.offsets.items()}.items())
        )

    _wait(control, body, reached, f"group {path['group']} has {awaited}")
    return control.group_json(path["group"])


def _assert_committed(control: Control, path: Values, body: Values) -> None:
    offsets = {(row["topic"], row["partition"]): row["offset"] for row in body["offsets"]}
    control.broker.assert_committed(path["group"], offsets)


def _records(body: Values) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["partition"], row["offset"]) for row in body["records"]]


def _assert_once(control: Control, path: Values, body: Values) -> None:
    control.broker.assert_no_double_processing(_records(body), path["group"])


def _assert_nothing_skipped(control: Control, path: Values, body: Values) -> None:
    control.broker.assert_nothing_skipped(_records(body), path["group"])


RECORDS = (Field("records", "array", "the processed records", required=True, items=POSITION),)

OPERATIONS: Final = (
    Operation("GET", "/broker", "Returns the broker's address.", _broker, (), BROKER),
    Operation(
        "POST",
        "/broker/restart",
        "Restarts the broker on the same port: cleanly, as after SIGKILL, or as after a power failure, which also "
        "loses the records written since `/disk/stop-syncing`.",
        lambda control, _, body: control.restart(body.get("how", "clean")),
        (Field("how", "string", "`clean` without it", enum=("clean", "kill", "power")),),
    ),
    Operation(
        "POST",
        "/topics",
        "Creates a topic, unless it exists.",
        _topic,
        (
            Field("name", "string", "its name", required=True),
            Field("partitions", "integer", "the number of partitions, 1 without it", minimum=1, maximum=MAX_PARTITIONS),
        ),
    ),
    Operation("POST", "/faults", "Injects a fault.", _inject, FAULT, ACTIVE_FAULT, 201),
    Operation("GET", "/faults", "Returns the faults, also exhausted ones.", _list_faults, (), FAULTS),
    Operation(
        "DELETE",
        "/faults",
        "Removes all faults, the script and the random faults. Held requests stay held.",
        lambda control, _, __: control.clear(),
    ),
    Operation(
        "POST",
        "/faults/script",
        "Injects faults one after another: each becomes active when the one before it is exhausted.",
        _script,
        (Field("faults", "array", "the faults in order", required=True, items=FAULT),),
        FAULTS,
        201,
    ),
    Operation(
        "POST",
        "/faults/random",
        "Injects faults at random, the same for the same seed and order of requests.",
        _random,
        (
            Field("seed", "integer", "the seed; a new one without it", minimum=0, maximum=2**63 - 1),
            Field("probability", "number", "the probability for each request, 0.05 without it", minimum=0, maximum=1),
            Field("apis", "array", "the APIs; the frequent ones of producers and consumers without it"),
        ),
        RANDOM,
        201,
    ),
    Operation("GET", "/faults/random", "Returns the random faults until now.", _get_random, (), RANDOM),
    Operation("GET", "/faults/{id}", "Returns a fault.", _get_fault, (), ACTIVE_FAULT),
    Operation("DELETE", "/faults/{id}", "Removes a fault.", lambda control, path, _: control.clear(path["id"])),
    Operation(
        "POST",
        "/faults/{id}/wait",
        "Waits until the fault was applied.",
        _wait_for_fault,
        (Field("applied", "integer", "the number of requests, 1 without it", minimum=0, maximum=2**31 - 1), TIMEOUT),
        ACTIVE_FAULT,
    ),
    Operation(
        "GET",
        "/held",
        "Returns the held requests and responses.",
        lambda control, _, __: {"held": control.held_json()},
        (),
        (Field("held", "array", "the requests, in order", required=True, items=HELD),),
    ),
    Operation(
        "POST",
        "/held/wait",
        "Waits until requests are held.",
        _wait_for_held,
        (Field("count", "integer", "the number, 1 without it", minimum=0, maximum=2**31 - 1), TIMEOUT),
        (Field("held", "array", "the requests, in order", required=True, items=HELD),),
    ),
    Operation(
        "POST",
        "/held/release",
        "Carries on with held requests in their order.",
        _release,
        (GROUP, CLIENT, Field("keep_holding", "boolean", "true to hold later requests still")),
        (Field("released", "integer", "the number of released requests", required=True),),
    ),
    Operation(
        "POST",
        "/connections/disconnect",
        "Closes the connections of Kafka clients.",
        lambda control, _, body: control.broker.disconnect(client_id=body.get("client_id")) and None,
        (Field("client_id", "string", "only those of this client"),),
    ),
    Operation(
        "POST",
        "/connections/refuse",
        "Refuses new connections of Kafka clients.",
        lambda control, _, body: control.broker.refuse_connections(close=body.get("close", True)),
        (Field("close", "boolean", "false to leave open connections open"),),
    ),
    Operation(
        "POST",
        "/connections/accept",
        "Accepts connections again.",
        lambda control, _, __: control.broker.accept_connections(),
    ),
    Operation(
        "GET",
        "/groups",
        "Returns the ids of the groups.",
        lambda control, _, __: {"groups": control.broker.groups.ids()},
        (),
        (Field("groups", "array", "the group ids", required=True),),
    ),
    Operation(
        "GET",
        "/groups/{group}",
        "Returns a group's state, members and offsets. The group need not exist.",
        lambda control, path, _: control.group_json(path["group"]),
        (),
        GROUP_STATE,
    ),
    Operation(
        "GET",
        "/groups/{group}/history",
        "Returns the history of a group: joins, generations, owners, commits and fencing, with their causes.",
        lambda control, path, _: control.history_json(path["group"]),
        (),
        HISTORY,
    ),
    Operation(
        "POST",
        "/groups/{group}/wait",
        "Waits until a group has a state, a number of members or committed offsets.",
        _wait_for_group,
        (
            Field("state", "string", "the state in Kafka's words"),
            Field("members", "integer", "the number of members", minimum=0, maximum=2**31 - 1),
            Field("offsets", "array", "committed offsets", items=POSITION),
            TIMEOUT,
        ),
        GROUP_STATE,
    ),
    Operation(
        "POST",
        "/groups/{group}/rebalance",
        "Begins a rebalance.",
        lambda control, path, _: control.broker.groups[path["group"]].rebalance(),
    ),
    Operation("POST", "/groups/{group}/expire", "Ends the session of a member.", _expire, MEMBER_FIELDS),
    Operation(
        "POST", "/groups/{group}/fence", "Fences a member: its later requests are refused.", _fence, MEMBER_FIELDS
    ),
    Operation(
        "POST",
        "/groups/{group}/unload-coordinator",
        "Takes the coordinator away: requests get NOT_COORDINATOR.",
        lambda control, path, _: control.broker.groups[path["group"]].unload_coordinator(),
    ),
    Operation(
        "POST",
        "/groups/{group}/load-coordinator",
        "Loads the coordinator from its log.",
        lambda control, path, _: control.broker.groups[path["group"]].load_coordinator(),
    ),
    Operation(
        "POST",
        "/groups/{group}/move-coordinator",
        "Moves the coordinator away and back.",
        lambda control, path, _: control.broker.groups[path["group"]].move_coordinator(),
    ),
    Operation(
        "POST",
        "/groups/{group}/assert-committed",
        "Asserts that exactly these offsets are committed, for the partitions that are named.",
        _assert_committed,
        (Field("offsets", "array", "the offsets", required=True, items=POSITION),),
    ),
    Operation(
        "POST",
        "/groups/{group}/assert-no-double-processing",
        "Asserts that no record was processed twice.",
        _assert_once,
        RECORDS,
    ),
    Operation(
        "POST",
        "/groups/{group}/assert-nothing-skipped",
        "Asserts that every record before the committed offsets was processed.",
        _assert_nothing_skipped,
        RECORDS,
    ),
    Operation(
        "POST",
        "/assert-at-rest",
        "Asserts that no rebalance, no held request and no transaction is in progress.",
        lambda control, _, __: control.broker.assert_at_rest(),
    ),
    Operation(
        "POST",
        "/producers/{transactional_id}/fence",
        "Fences the producers of a transactional id, and aborts its transaction.",
        lambda control, path, _: control.broker.fence_producer(path["transactional_id"]),
    ),
    Operation(
        "POST",
        "/disk/fill",
        "Makes every write fail for lack of space.",
        lambda control, _, __: control.broker.fill_disk(),
    ),
    Operation("POST", "/disk/free", "Ends `/disk/fill`.", lambda control, _, __: control.broker.free_disk()),
    Operation(
        "POST",
        "/disk/stop-syncing",
        "Acknowledges later records without writing them to the disk: a power failure loses them.",
        lambda control, _, __: control.broker.stop_syncing(),
    ),
    Operation("POST", "/disk/sync", "Ends `/disk/stop-syncing`.", lambda control, _, __: control.broker.sync()),
    Operation("GET", "/clock", "Returns the broker's time.", _clock, (), CLOCK),
    Operation(
        "POST",
        "/clock/advance",
        "Moves the clock forward: every timeout of the broker in this time ends. The clients' clocks do not move.",
        _advance,
        (SECONDS,),
        CLOCK,
    ),
    Operation(
        "POST",
        "/clock/step-wall",
        "Moves the time of records' timestamps; timeouts are not affected.",
        _step,
        (Field("seconds", "number", "forward or back", required=True, minimum=-MAX_SECONDS, maximum=MAX_SECONDS),),
        CLOCK,
    ),
    Operation("POST", "/clock/freeze", "Stops the clock.", _freeze, (), CLOCK),
    Operation("POST", "/clock/resume", "Lets the clock run on.", _resume, (), CLOCK),
)
"""The requests of the control server, except GET /openapi.json."""
