"""Protocol faults: their kinds, and the filters that select the requests to which a fault applies."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from kcore.protocol.api_keys import api_name, response_class
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import RequestContext
from kcore.served_apis import SERVED_APIS
from kcore.testing.arguments import check_count, check_function, check_seconds, check_text, check_type
from kcore.testing.requests import api_key, error_code, groups_of, like, may_name, transactional_ids_of

if TYPE_CHECKING:
    from kcore.errors import KafkaError

Action = Literal["fail", "delay", "hold", "disconnect", "corrupt", "throttle"]
ErrorOf = Callable[[Any], "str | int | None"]
"""A function that receives a request. It returns an error, or None to let the request pass."""

ACTIONS = ("fail", "delay", "hold", "disconnect", "corrupt", "throttle")
ONLY_OF = {
    "error": ("fail",),
    "message": ("fail",),
    "seconds": ("delay", "throttle"),
    "after": ("delay", "hold", "disconnect", "corrupt", "throttle"),
}
"""Attribute of `Fault` -> the actions that use it. All actions use the attributes that are not listed."""

MAX_THROTTLE_S = (2**31 - 1) // 1000  # the protocol has an int32 of milliseconds

ANY_API = "*"
MAX_DELAY_S = 0.05  # of random faults: short, because a random test injects many


@dataclass(frozen=True, slots=True)
class Filter:
    """The requests to which a fault applies: requests that match every attribute that is not None.

    Attributes:
        group: the group id that the request names.
        topic: a topic that the request names, or that its fetch session or share session contains.
        client_id: the client id of the request.
        principal: the authenticated principal, such as "User:alice".
        transactional_id: the transactional id that the request names.
        where: a function that receives the typed request and returns True if the fault applies.
    """

    group: str | None = None
    topic: str | None = None
    client_id: str | None = None
    principal: str | None = None
    transactional_id: str | None = None
    where: Callable[[Any], bool] | None = None

    def __post_init__(self) -> None:
        for name in ("group", "topic", "client_id", "principal", "transactional_id"):
            check_text(name, getattr(self, name), optional=True)
        check_function("where", self.where, optional=True)

    def matches(self, context: RequestContext, request: Any, topics_of: Callable[[Any], Iterable[str | None]]) -> bool:
        """Returns True if the request matches every attribute that is not None."""
        return (
            (self.client_id is None or context.client_id == self.client_id)
            and (self.principal is None or context.principal == self.principal)
            and (self.group is None or self.group in groups_of(request))
            and (self.topic is None or self.topic in topics_of(request))
            and (self.transactional_id is None or self.transactional_id in transactional_ids_of(request))
            and (self.where is None or bool(self.where(request)))
        )

    def describe(self) -> str:
        """Returns the attributes that are not None in words: "group g, topic jobs"."""
        names = ("group", "topic", "client_id", "principal", "transactional_id")
        given = [f"{name} {value}" for name in names if (value := getattr(self, name)) is not None]
        return ", ".join(given if self.where is None else [*given, "where ..."])


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. The functions `fail`, `delay`, ... of this module create them.

    Attributes:
        action: the effect of the fault, such as "delay".
        apis: the names of the APIs; ("*",) for all.
        filter: the requests to which it applies.
        times: the maximum number of requests to which it applies; None: without a limit.
        skip: the number of matching requests that pass before the fault applies for the first time.
        error: the error of `fail`: a name, a number, or a function that receives the request.
        message: the error message of `fail`.
        seconds: the delay of `delay`, or the throttle time of `throttle`, in seconds.
        after: True if the broker carries the request out first, and the fault concerns the response.

    Raises:
        TypeError: a value has a wrong type.
        ValueError: a value is not valid, or the action has no such attribute.
    """

    action: Action
    apis: tuple[str, ...]
    filter: Filter = field(default_factory=Filter)
    times: int | None = 1
    skip: int = 0
    error: str | int | ErrorOf | None = None
    message: str | None = None
    seconds: float = 0.0
    after: bool = False

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"action={self.action!r}: valid are {', '.join(ACTIONS)}")
        if not self.apis:
            raise ValueError(f"{self.action}() needs the name of an API, several, or '*'")
        check_type("filter", self.filter, Filter)
        for name in self.apis:
            if name != ANY_API:
                self._check_api(name)
        check_count("times", self.times, 1, optional=True)
        check_count("skip", self.skip, 0)
        check_text("message", self.message, optional=True)
        check_type("after", self.after, bool)
        check_seconds("seconds", self.seconds, **({"maximum": MAX_THROTTLE_S} if self.action == "throttle" else {}))
        for name, actions in ONLY_OF.items():
            if self.action not in actions and getattr(self, name):
                raise ValueError(f"{self.action}() has no argument {name}")
        if self.action == "fail" and not callable(self.error):
            if self.error is None:
                raise ValueError("fail() needs an error, such as error='NOT_COORDINATOR'")
            if not error_code(self.error):
                raise ValueError(
                    f"fail() with error={self.error!r}, which is not an error: clients would see a success"
                )

    def _check_api(self, name: str) -> None:
        """Checks that the fault can apply to requests of an API.

        Raises:
            TypeError: the name is not a string.
            ValueError: no API has this name, or no request of the API can match the fault.
        """
        key = api_key(name)
        if all(row.key != key for row in SERVED_APIS):
            raise ValueError(f"{self.action}({name!r}) would never apply: a broker of kcore does not serve this API")
        if self.action == "throttle" and all(each.name != "throttle_time_ms" for each in response_class(key).FIELDS):
            raise ValueError(f"throttle({name!r}) would have no effect: responses of this API have no throttle time")
        for attribute in ("group", "topic", "transactional_id"):
            if getattr(self.filter, attribute) is not None and not may_name(key, attribute):
                raise ValueError(
                    f"{self.action}({name!r}, {attribute}={getattr(self.filter, attribute)!r}) would never apply: "
                    f"requests of this API have no {attribute} for the filter; valid: client_id, principal or where"
                )

    def concerns(self, key: int) -> bool:
        """Returns True if the fault can apply to requests of an API."""
        return any(name == ANY_API or api_key(name) == key for name in self.apis)

    def error_for(self, request: Any) -> ErrorCode | None:
        """Returns the error for a request; None if the fault's function lets it pass."""
        error = self.error(request) if callable(self.error) else self.error
        return None if error is None else error_code(error) or None

    def describe(self) -> str:
        """Returns the fault in words, for histories."""
        how = {
            "fail": f" with {getattr(self.error, '__name__', self.error)}",
            "delay": f" for {self.seconds} s",
            "throttle": f" for {self.seconds} s",
        }.get(self.action, " the response" if self.after else "")
        only = self.filter.describe()
        return f"injected: {self.action} {','.join(self.apis)}{how}{only and f' ({only})'}"


def _apis(api: str | Iterable[str]) -> tuple[str, ...]:
    return (api,) if isinstance(api, str) or not isinstance(api, Iterable) else tuple(api)


def _fault(action: Action, api: str | Iterable[str], which: dict[str, Any], times: int | None, **values: Any) -> Fault:
    skip = which.pop("skip", 0)
    valid = tuple(Filter.__dataclass_fields__)
    for name in which:
        if name not in valid:
            valid = ("times", "skip", *values, *valid)
            hint = like(name, valid) or f"; valid: {', '.join(valid)}"
            raise TypeError(f"{action}() has no argument {name!r}{hint}")
    return Fault(action, _apis(api), Filter(**which), times=times, skip=skip, **values)


def fail(
    api: str | Iterable[str],
    error: str | int | type[KafkaError] | ErrorOf,
    *,
    message: str | None = None,
    times: int | None = 1,
    **which: Any,
) -> Fault:
    """Returns a fault that refuses requests; the broker does not carry them out.

    Args:
        api: an API or several, such as "OffsetCommit"; "*" for all.
        error: a name in Kafka ("NOT_COORDINATOR"), a number, a class of `kcore.errors`, or a function that
            receives the typed request and returns a name, a number or None.
        message: the error message, in responses that have one.
        times: the number of requests; None: all.
        which: other arguments: `skip`, and the attributes of `Filter`.
    """
    name = error_code(error).name if isinstance(error, type) else error
    return _fault("fail", api, which, times, error=name, message=message)


def delay(
    api: str | Iterable[str], seconds: float, *, after: bool = False, times: int | None = 1, **which: Any
) -> Fault:
    """Returns a fault that delays requests by a time on the broker's clock; with `after`, it delays their responses.

    Args:
        api: an API or several; "*" for all.
        seconds: the length of the delay.
        after: True to carry the request out first and to delay its response.
        times: the number of requests; None: all.
        which: other arguments: `skip`, and the attributes of `Filter`.
    """
    return _fault("delay", api, which, times, seconds=seconds, after=after)


def hold(api: str | Iterable[str], *, after: bool = False, times: int | None = None, **which: Any) -> Fault:
    """Returns a fault that holds requests until `Broker.release`; with `after`, it holds their responses."""
    return _fault("hold", api, which, times, after=after)


def disconnect(api: str | Iterable[str], *, after: bool = False, times: int | None = 1, **which: Any) -> Fault:
    """Returns a fault that closes the connection and does not carry the request out.

    With `after` the broker carries the request out and closes the connection instead of responding: the client cannot
    know the result.
    """
    return _fault("disconnect", api, which, times, after=after)


def corrupt(api: str | Iterable[str], *, times: int | None = 1, **which: Any) -> Fault:
    """Returns a fault that damages responses: the records of a Fetch response fail their checksum, and any other
    response is truncated before its connection closes."""
    return replace(_fault("corrupt", api, which, times), after=True)


def throttle(api: str | Iterable[str], seconds: float, *, times: int | None = 1, **which: Any) -> Fault:
    """Returns a fault that makes clients pause: responses have a throttle time, like the responses of a broker with
    quotas.

    The broker itself does not pause the connection.
    """
    return replace(_fault("throttle", api, which, times, seconds=seconds), after=True)


class ActiveFault:
    """A fault that was injected, with the numbers of requests that it matched and changed.

    Args:
        fault: the fault to apply.

    Raises:
        TypeError: `fault` is not a `Fault`.

    Attributes:
        fault: the fault to apply.
        seen: number of matching requests.
        applied: number of requests to which the fault was applied.
    """

    def __init__(self, fault: Fault) -> None:
        check_type("fault", fault, Fault)
        self.fault = fault
        self.seen = 0
        self.applied = 0

    @property
    def exhausted(self) -> bool:
        """True if the fault applies to no further request."""
        return self.fault.times is not None and self.applied >= self.fault.times

    def takes(self, context: RequestContext, request: Any, topics_of: Callable[[Any], Iterable[str | None]]) -> bool:
        """Returns True if the fault applies to this request, and counts it."""
        if self.exhausted or not self.fault.filter.matches(context, request, topics_of):
            return False
        self.seen += 1
        if self.seen <= self.fault.skip:
            return False
        self.applied += 1
        return True

    def __repr__(self) -> str:
        return f"<{self.fault.describe()}: {self.applied} applied>"


class RandomFaults:
    """Random faults. Equal seeds and an equal order of requests give equal faults.

    Args:
        seed: the start of the random numbers; None: a new seed. To repeat a run, print the attribute `seed` and pass it
            here.
        probability: the probability of a fault for each request of `apis`, from 0 to 1.
        apis: names of the APIs whose requests may have faults.
        faults: the faults to choose from; None: retriable errors, short delays, and lost connections and responses.
            Their `times` and `skip` have no effect.

    Raises:
        TypeError: a value has a wrong type.
        ValueError: a value is not valid, or an API is unknown.

    Attributes:
        seed: the passed or new seed.
        apis: names of the APIs whose requests may have faults.
        keys: the API keys of `apis`.
        injected: descriptions of the injected faults, in order.
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        probability: float = 0.05,
        apis: Iterable[str] = ("Produce", "Fetch", "OffsetCommit", "OffsetFetch", "Heartbeat", "FindCoordinator"),
        faults: Sequence[Fault] | None = None,
    ) -> None:
        check_type("seed", seed, int, optional=True)
        check_type("probability", probability, int, float)
        if not 0 <= probability <= 1:
            raise ValueError(f"probability={probability}: valid are 0 to 1")
        self.seed = secrets.randbelow(2**32) if seed is None else seed
        self.apis = _apis(apis)
        self.keys = frozenset(api_key(name) for name in self.apis)
        for fault in faults or ():
            check_type("a fault", fault, Fault)
        self.injected: list[str] = []
        self._random = random.Random(self.seed)
        self._probability = probability
        self._faults = tuple(faults) if faults is not None else _usual_faults()

    def draw(self, key: int, matches: Callable[[Filter], bool]) -> Fault | None:
        """Returns the fault for the next request of an API, or None.

        Args:
            key: the API's key.
            matches: returns True if the request has the properties of a filter.
        """
        if self._random.random() >= self._probability:
            return None
        candidates = [fault for fault in self._faults if fault.concerns(key)]
        chosen = self._random.choice(candidates) if candidates else None
        if chosen is None or not matches(chosen.filter):
            return None
        fault = replace(chosen, apis=(api_name(key),))
        self.injected.append(fault.describe())
        return fault


_RETRIABLE = {
    "Produce": "NOT_LEADER_OR_FOLLOWER",
    "Fetch": "NOT_LEADER_OR_FOLLOWER",
    "OffsetCommit": "COORDINATOR_LOAD_IN_PROGRESS",
    "OffsetFetch": "COORDINATOR_LOAD_IN_PROGRESS",
    "Heartbeat": "NOT_COORDINATOR",
    "FindCoordinator": "COORDINATOR_NOT_AVAILABLE",
}


def _usual_faults() -> tuple[Fault, ...]:
    return (
        *(fail(name, error) for name, error in _RETRIABLE.items()),
        delay("*", MAX_DELAY_S),
        disconnect("*"),
        disconnect("*", after=True),
    )
