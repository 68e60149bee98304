"""Access control lists: Kafka's rules (compared with a search without an index), filters, APIs, and durability."""

from __future__ import annotations

import random
from sys import getsizeof
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.broker.acl.authorizer import ENTRY_BYTES, MAX_CACHED_BYTES, MAX_CACHED_CHARACTERS, AclAuthorizer
from kcore.broker.acl.entries import IMPLIED_BY, Acl, AclFilter, AclTable, PatternType, Permission, covers
from kcore.broker.apis.delete_acls import DESCRIPTION_COST_US, STEP_ENTRIES
from kcore.clock import ManualClock, Now
from kcore.errors import CloseConnectionError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation as Op
from kcore.protocol.authorizer import ResourceType as Kind
from kcore.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kcore.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kcore.protocol.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.runtime import RequestContext
from kcore_ext.broker.acl import AclTableCore
from tests.kit import create, fetch
from tests.security.guarded import ADMIN, ALICE, ANY_PRINCIPAL, HOST, Guarded, acl

DENY, ALLOW = Permission.DENY, Permission.ALLOW
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def implies(entry: Acl, operation: int) -> bool:
    """Returns True if an entry applies to an operation. Implied operations count only in ALLOW entries."""
    if entry.operation in (operation, Op.ALL):
        return True
    return entry.permission == ALLOW and entry.operation in IMPLIED_BY.get(operation, frozenset())


def decide(*entries: Acl, operation: Op = Op.READ, name: str = "orders", who: str = ALICE) -> bool | None:
    table = AclTable()
    for number, entry in enumerate(entries):
        table.add(number.to_bytes(16, "big"), entry)
    return table.decide(who, HOST, operation, Kind.TOPIC, name)


@pytest.mark.parametrize(
    ("entries", "allowed"),
    [
        ([], None),
        ([acl(Op.READ, name="orders")], True),
        ([acl(Op.READ, name="order")], None),
        ([acl(Op.READ, name="*")], True),
        ([acl(Op.READ, name="ord", pattern=PREFIXED)], True),
        ([acl(Op.READ, name="orders", pattern=PREFIXED)], True),
        ([acl(Op.READ, name="orders-2", pattern=PREFIXED)], None),
        ([acl(Op.READ, name="*", pattern=PREFIXED)], None),
        ([acl(Op.READ, Kind.GROUP, "orders")], None),
        ([acl(Op.READ, name="orders", principal="User:bob")], False),
        ([acl(Op.READ, name="orders", principal=ANY_PRINCIPAL)], True),
        ([acl(Op.READ, name="orders", principal="Group:*")], False),
        ([acl(Op.READ, name="orders", host=HOST)], True),
        ([acl(Op.READ, name="orders", host="10.0.0.8")], False),
        ([acl(Op.WRITE, name="orders")], False),
        ([acl(Op.ALL, name="orders")], True),
        ([acl(Op.READ, name="orders"), acl(Op.READ, name="orders", permission=DENY)], False),
        ([acl(Op.ALL, name="orders"), acl(Op.READ, name="*", principal=ANY_PRINCIPAL, permission=DENY)], False),
        ([acl(Op.READ, name="*"), acl(Op.ALL, name="o", pattern=PREFIXED, permission=DENY)], False),
        ([acl(Op.READ, name="orders"), acl(Op.WRITE, name="orders", permission=DENY)], True),
        ([acl(Op.READ, name="orders"), acl(Op.READ, name="orders", permission=DENY, host="10.0.0.8")], True),
        ([acl(Op.READ, name="orders"), acl(Op.READ, name="orders", permission=DENY, principal="User:bob")], True),
    ],
)
def test_a_decision_follows_from_the_entries(entries: list[Acl], allowed: bool | None) -> None:
    """Each case has a list of entries, and the decision whether alice may READ the topic "orders": True, False, or None
    if no entry covers the topic.

    A DENY entry has precedence. The order of the entries does not matter.
    """
    assert decide(*entries) is allowed
    assert decide(*reversed(entries)) is allowed


@pytest.mark.parametrize(
    ("written", "client", "same"),
    [
        ("::1", "::1", True),
        ("0:0:0:0:0:0:0:1", "::1", True),  # Java's notation, in which Kafka's lists have it
        ("0000:0000:0000:0000:0000:0000:0000:0001", "::1", True),
        ("2001:DB8:0:0:0:0:0:A", "2001:db8::a", True),
        ("2001:db8:0:0:0:0:0:a", "2001:db8::b", False),
        ("fe80:0:0:0:0:0:0:1%2", "fe80::1%2", True),
        ("fe80::1%3", "fe80::1%2", False),
        ("::ffff:7f00:1", "::ffff:127.0.0.1", True),
        ("no:address", "::1", False),
        ("127.0.0.1", "::1", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("*", "::1", True),
    ],
)
def test_the_host_of_an_entry_may_have_any_notation(written: str, client: str, same: bool) -> None:
    """A DENY entry with an IPv6 host denies this host in every notation."""
    table = AclTable()
    table.add(b"1" * 16, acl(Op.READ, name="orders"))
    table.add(b"2" * 16, acl(Op.READ, name="orders", permission=DENY, host=written))
    assert table.decide(ALICE, client, Op.READ, Kind.TOPIC, "orders") is not same
    table.add(b"3" * 16, acl(Op.WRITE, name="orders", host=written))
    assert table.decide_any(ALICE, client, Op.WRITE, Kind.TOPIC) is same


@pytest.mark.parametrize("granted", list(Op)[2:])
def test_some_operations_imply_others(granted: Op) -> None:
    """READ, WRITE, DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS; ALL implies all operations.
    A DENY entry denies only its own operation, unless that is ALL.
    """
    implied = {Op.DESCRIBE: {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER}, Op.DESCRIBE_CONFIGS: {Op.ALTER_CONFIGS}}
    denial = (acl(Op.ALL, name="orders"), acl(granted, name="orders", permission=DENY))
    for requested in list(Op)[3:]:
        expected = granted in {requested, Op.ALL} | implied.get(requested, set())
        assert decide(acl(granted, name="orders"), operation=requested) is expected
        assert decide(*denial, operation=requested) is (granted not in {requested, Op.ALL})


class CountedOperations(frozenset[int]):
    """A set of operations that counts how often it is searched. The authorizer searches it once for each ALLOW entry
    that it reads.
    """

    reads = 0

    def __contains__(self, operation: object) -> bool:
        CountedOperations.reads += 1
        return super().__contains__(operation)


def test_a_decision_reads_no_entries_of_other_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may name thousands of resources, whose checks must not read the entries of other users."""
    monkeypatch.setattr(CountedOperations, "reads", 0)
    table = AclTableCore({Op.DESCRIBE: CountedOperations({Op.READ})}, str)
    for number in range(100):
        for name, pattern, principal, host in (
            ("*", LITERAL, f"User:{number}", "*"), ("*", LITERAL, ALICE, f"10.1.0.{number}"),
            ("o", PREFIXED, f"User:{number}", "*"), (f"t{number}", LITERAL, ALICE, HOST),
            (f"t{number}", PREFIXED, ALICE, HOST),
        ):  # fmt: skip
            table.add_rule(Kind.TOPIC, name, pattern, principal, host, Op.READ, ALLOW)
    table.add_rule(Kind.TOPIC, "*", LITERAL, ALICE, HOST, Op.READ, ALLOW)
    assert table.decide(ALICE, HOST, Op.DESCRIBE, Kind.TOPIC, "orders") is True
    assert CountedOperations.reads == 1
    assert table.decide("User:nobody", HOST, Op.DESCRIBE, Kind.TOPIC, "orders") is False
    assert CountedOperations.reads == 1


NAMES = st.text("ab*", min_size=1, max_size=4)
ACLS = st.builds(
    Acl,
    st.sampled_from([Kind.TOPIC, Kind.GROUP]),
    NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from([ALICE, "User:bob", ANY_PRINCIPAL]),
    st.sampled_from(["*", HOST, "10.0.0.8"]),
    st.sampled_from([Op.ALL, Op.READ, Op.WRITE, Op.DESCRIBE]),
    st.sampled_from([DENY, ALLOW]),
)


@given(st.sets(ACLS, max_size=12), NAMES, st.sampled_from([Op.READ, Op.WRITE, Op.DESCRIBE]), st.integers(0, 2**32))
def test_the_index_finds_what_a_linear_search_finds(entries: set[Acl], name: str, operation: Op, seed: int) -> None:
    """The test adds and removes entries in any order."""
    table = AclTable()
    ids = {entry: number.to_bytes(16, "big") for number, entry in enumerate(entries)}
    for entry in entries:
        table.add(ids[entry], entry)
    gone = random.Random(seed).sample(sorted(entries), len(entries) // 2)
    for entry in gone:
        table.remove(ids[entry])
    left = entries - set(gone)
    covering = [entry for entry in left if entry.resource_type == Kind.TOPIC and covers(entry, name)]
    assert table.patterns == len({(e.resource_type, e.resource_name, e.pattern_type) for e in left})
    assert table.principals == len({(e.resource_type, e.principal) for e in left})
    mine = [e for e in covering if e.principal in (ALICE, ANY_PRINCIPAL) and e.host in (HOST, "*")]
    speaking = {e.permission for e in mine if implies(e, operation)}
    expected = None if not covering else DENY not in speaking and ALLOW in speaking
    assert table.decide(ALICE, HOST, operation, Kind.TOPIC, name) is expected
    own = [
        e
        for e in left
        if e.resource_type == Kind.TOPIC
        and e.principal in (ALICE, ANY_PRINCIPAL)
        and e.host in (HOST, "*")
        and e.operation in (operation, Op.ALL)
    ]
    denials = [e for e in own if e.permission == DENY]
    expected = any(
        not any(denies_all_of(denial, e) for denial in denials) for e in own if e.permission == ALLOW
    ) and not any(denial.pattern_type == LITERAL and denial.resource_name == "*" for denial in denials)
    assert table.decide_any(ALICE, HOST, operation, Kind.TOPIC) is expected
    for entry in left:
        table.remove(ids[entry])
    assert table.patterns == table.principals == 0
    assert table.names_of(ALICE, HOST, Op.READ, Kind.TOPIC) == (set(), set(), set(), set())


@given(
    st.sets(ACLS, max_size=12),
    NAMES,
    st.sampled_from([Op.READ, Op.WRITE, Op.DESCRIBE]),
    st.sampled_from([ALICE, "User:bob", ANY_PRINCIPAL, ADMIN]),
    st.sampled_from([f"/{HOST}", "/10.0.0.8", "/10.0.0.9"]),
    st.booleans(),
)
def test_the_authorizer_decides_as_its_reference(
    entries: set[Acl], name: str, operation: Op, principal: str, client_host: str, allow_if_none: bool
) -> None:
    """The authorizer gives the same results as a linear search through all entries.

    The test varies the client and the setting `allow.everyone.if.no.acl.found`.
    """
    table = AclTable()
    for number, entry in enumerate(entries):
        table.add(number.to_bytes(16, "big"), entry)
    topics: Any = SimpleNamespace(image=SimpleNamespace(acls=table))
    authorizer = AclAuthorizer(topics, frozenset({ADMIN}), allow_if_none, Now(ManualClock()))
    covering = [entry for entry in entries if entry.resource_type == Kind.TOPIC and covers(entry, name)]
    applying = {
        entry.permission
        for entry in covering
        if entry.principal in (principal, ANY_PRINCIPAL)
        and entry.host in (client_host[1:], "*")
        and implies(entry, operation)
    }
    expected = ALLOW in applying and DENY not in applying if covering else allow_if_none
    for _ in range(2):
        assert authorizer.allowed(Context(principal, client_host), operation, Kind.TOPIC, name) is (
            expected or principal == ADMIN
        )


def denies_all_of(denial: Acl, allowed: Acl) -> bool:
    """Returns True if the names that a DENY entry covers include all names that an ALLOW entry covers."""
    if allowed.pattern_type == LITERAL and allowed.resource_name == "*":
        return False
    if denial.pattern_type == PREFIXED:
        return allowed.resource_name.startswith(denial.resource_name)
    return allowed.pattern_type == LITERAL and denial.resource_name == allowed.resource_name


def test_the_notations_of_one_host_are_one_rule() -> None:
    table = AclTable()
    notations = ["::1", "0::1", "0:0:0:0:0:0:0:1"]
    for number, host in enumerate(notations):
        table.add(number.to_bytes(16, "big"), acl(Op.READ, name="orders", host=host))
    for number, host in enumerate(notations):
        assert table.decide(ALICE, "0:0:0:0:0:0:0:1", Op.READ, Kind.TOPIC, "orders") is True, host
        table.remove(number.to_bytes(16, "big"))
    assert table.decide(ALICE, "::1", Op.READ, Kind.TOPIC, "orders") is None


def test_a_permission_on_any_resource_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer may be idempotent if it may write to at least one topic. The authorizer searches all entries for this
    only once, and again after an entry has changed.
    """
    engine = Guarded()
    engine.allow(acl(Op.WRITE, name="orders"))
    calls = []
    original = AclTable.decide_any
    monkeypatch.setattr(AclTable, "decide_any", lambda *arguments: calls.append(1) or original(*arguments))
    for _ in range(3):
        assert engine.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)).error_code == 0
    assert len(calls) == 1
    engine.allow(acl(Op.WRITE, name="orders", permission=DENY))
    assert engine.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)).error_code == 31
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("entries", "allowed"),
    [
        ([], False),
        ([acl(Op.WRITE)], True),
        ([acl(Op.ALL, name="*")], True),
        ([acl(Op.DESCRIBE)], False),
        ([acl(Op.WRITE, principal="User:bob")], False),
        ([acl(Op.WRITE), acl(Op.WRITE, permission=DENY)], False),
        ([acl(Op.WRITE), acl(Op.WRITE, name="*", permission=DENY)], False),
        ([acl(Op.WRITE, name="*"), acl(Op.WRITE, permission=DENY)], True),
        ([acl(Op.WRITE, name="ta"), acl(Op.WRITE, pattern=PREFIXED, permission=DENY)], False),
        ([acl(Op.WRITE, pattern=PREFIXED), acl(Op.WRITE, name="ta", pattern=PREFIXED, permission=DENY)], True),
        ([acl(Op.WRITE, name="ta", pattern=PREFIXED), acl(Op.WRITE, pattern=PREFIXED, permission=DENY)], False),
    ],
)
def test_a_producer_may_be_idempotent_if_it_may_write_to_any_topic(entries: list[Acl], allowed: bool) -> None:
    """WRITE on any topic permits InitProducerId (KIP-679), even if the topic of the entry does not exist."""
    engine = Guarded()
    engine.allow(*entries)
    code = engine.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)).error_code
    assert code == (0 if allowed else 31)


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (PatternType.ANY, None, {0, 1, 2, 3}),
        (PatternType.ANY, "foo", {0}),
        (LITERAL, None, {0, 1}),
        (LITERAL, "*", {1}),
        (PREFIXED, None, {2, 3}),
        (PREFIXED, "fo", {2}),
        (PatternType.MATCH, "foo", {0, 1, 2}),
        (PatternType.MATCH, "bar", {1, 3}),
        (PatternType.MATCH, None, {0, 1, 2, 3}),
    ],
)
def test_filters_match_names_by_pattern_type(pattern: PatternType, name: str | None, found: set[int]) -> None:
    """A filter with MATCH finds the entries that cover its name (KIP-290). Other filters find the entries with its
    name.
    """
    entries = [
        acl(Op.READ, name="foo"), acl(Op.READ, name="*"), acl(Op.READ, name="fo", pattern=PREFIXED),
        acl(Op.READ, name="bar", pattern=PREFIXED),
    ]  # fmt: skip
    pattern_filter = AclFilter(Kind.ANY, name, pattern, None, None, Op.ANY, Permission.ANY)
    assert {number for number, entry in enumerate(entries) if pattern_filter.matches(entry)} == found


def any_entry(**fields: Any) -> dict[str, Any]:
    any_ = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
            "host_filter": None, "operation": 1, "permission_type": 1}  # fmt: skip
    return any_ | fields


def test_entries_are_created_once_described_by_resource_and_deleted_by_filter() -> None:
    """Creating an entry again succeeds without effect. If an entry matches several filters of a DeleteAcls, the result
    of each of them contains the entry.

    All changes survive a restart.
    """
    engine = Guarded()
    read, write, prefixed = acl(Op.READ), acl(Op.WRITE), acl(Op.READ, name="t", pattern=PREFIXED)
    engine.allow(read, write, read, prefixed)
    engine.allow(read)
    engine.restart()
    assert engine.entries == {read, write, prefixed}
    shown = engine.send(DescribeAclsRequest(**any_entry(pattern_type_filter=3)), 3, ADMIN)
    assert (shown.error_code, list(shown.resources)) == (
        0,
        [DescribeAclsResource(resource_type=2, resource_name="t", acls=[
            AclDescription(principal=ALICE, host="*", operation=3, permission_type=3),
            AclDescription(principal=ALICE, host="*", operation=4, permission_type=3),
        ])],
    )  # fmt: skip
    filters = [DeleteAclsFilter(**any_entry(operation=3)), DeleteAclsFilter(**any_entry(pattern_type_filter=3))]
    results = engine.send(DeleteAclsRequest(filters=[*filters, DeleteAclsFilter(**any_entry(operation=99))]), 3, ADMIN)
    assert [result.error_code for result in results.filter_results] == [0, 0, 42]
    assert [len(result.matching_acls) for result in results.filter_results] == [2, 2, 0]
    assert engine.entries == set()
    engine.restart()
    assert engine.entries == set()


@pytest.mark.parametrize(
    "wrong",
    [
        acl(Op.READ, Kind.ANY), acl(Op.ANY), acl(Op.READ, name=""), acl(Op.READ, pattern=PatternType.ANY),
        acl(Op.READ, pattern=PatternType.MATCH), acl(Op.READ, permission=Permission.ANY), acl(Op.READ, principal="bob"),
        acl(Op.READ)._replace(resource_type=99), acl(Op.READ)._replace(operation=99),
        acl(Op.ALTER, Kind.CLUSTER)._replace(resource_name="other"),
    ],
)  # fmt: skip
def test_invalid_entries_are_refused(wrong: Acl) -> None:
    """An invalid entry gets INVALID_REQUEST (42) with a message. The valid entry of the request is created."""
    engine, good = Guarded(), acl(Op.READ)
    results = engine.create(wrong, good)
    assert [(result.error_code, bool(result.error_message)) for result in results] == [(42, True), (0, False)]
    assert engine.entries == {good}


def test_the_code_of_unknown_closes_the_connection() -> None:
    """A request with the resource type, operation or pattern type UNKNOWN (0) closes the connection, as in Kafka."""
    engine = Guarded()
    for request in (
        DescribeAclsRequest(**any_entry(operation=0)),
        CreateAclsRequest(creations=[AclCreation(resource_type=2, operation=3)]),
        DeleteAclsRequest(filters=[DeleteAclsFilter(**any_entry(resource_type_filter=0))]),
    ):
        with pytest.raises(CloseConnectionError):
            engine.engine.submit(RequestContext(3, principal=ADMIN), request)


def test_super_users_are_allowed_everything() -> None:
    """The name of a super user may contain commas. A DENY entry for a super user has no effect."""
    engine = Guarded()
    engine.send(create("t"), who=ADMIN)
    engine.allow(acl(Op.ALL, name="*", principal=ANY_PRINCIPAL, permission=DENY))
    assert engine.codes(fetch("t"), 12, ALICE) == {29}
    assert engine.codes(fetch("t"), 12, ADMIN) == engine.codes(fetch("t"), 12, "User:CN=ops,O=kcore") == set()


def test_everyone_is_allowed_where_no_entry_is_found() -> None:
    """With `allow.everyone.if.no.acl.found`, any client may read a topic as long as no entry covers the topic.

    Once an entry allows bob to write to the topic, other clients and operations are denied.
    """
    engine = Guarded(allow_everyone_if_no_acl_found="true")
    engine.send(create("t"), who=ADMIN)
    assert engine.codes(fetch("t"), 12) == set()
    engine.allow(acl(Op.WRITE, principal="User:bob"))
    assert engine.codes(fetch("t"), 12) == {29}


def test_a_change_has_effect_at_once_and_for_each_host_separately() -> None:
    """A denied request is allowed as soon as an entry allows it, but only from the entry's host. It is denied again as
    soon as the entry is deleted. So a cached denial ends with each change of the entries.
    """
    engine = Guarded()
    engine.send(create("t"), who=ADMIN)
    assert engine.codes(fetch("t"), 12) == {29}
    engine.allow(acl(Op.READ, host=HOST))
    assert engine.codes(fetch("t"), 12) == set()
    there = engine.send(fetch("t"), 12, ALICE, "10.0.0.8").responses[0].partitions[0].error_code
    assert there == 29
    engine.forget()
    assert engine.codes(fetch("t"), 12) == {29}


class Context(NamedTuple):
    """A replacement of a request context, with only those fields that the authorizer reads."""

    principal: str = ALICE
    client_host: str = f"/{HOST}"


def cached_bytes(authorizer: AclAuthorizer) -> int:
    """Returns the real size of the cache of denials: the set, and every key with its strings."""
    keys = list(authorizer._denied)
    strings = {id(text): getsizeof(text) for key in keys for text in (key[0], key[1], key[4])}
    return getsizeof(authorizer._denied) + sum(map(getsizeof, keys)) + sum(strings.values())


@pytest.mark.parametrize("characters", [20, MAX_CACHED_CHARACTERS])
def test_cached_denials_are_bounded_by_bytes(characters: int) -> None:
    """Each character of the names has four bytes. The cache never exceeds its limit, and decisions stay correct."""
    engine = Guarded()
    engine.allow(acl(Op.READ, name="\N{PILE OF POO}", pattern=PatternType.PREFIXED))
    authorizer = engine.engine.authorizer
    assert isinstance(authorizer, AclAuthorizer)
    largest = 0
    for number in range(2 * MAX_CACHED_BYTES // (4 * characters + ENTRY_BYTES)):
        name = f"\N{PILE OF POO}{number}".ljust(characters, "x")
        assert authorizer.allowed(Context(), Op.READ, Kind.TOPIC, name)
        assert not authorizer.allowed(Context(), Op.WRITE, Kind.TOPIC, name)
        assert not authorizer.allowed(Context(), Op.DELETE, Kind.TOPIC, name)
        if number % 500 == 0:
            largest = max(largest, cached_bytes(authorizer))
    assert MAX_CACHED_BYTES // 4 < largest <= MAX_CACHED_BYTES
    assert 0 < authorizer._denied_bytes <= MAX_CACHED_BYTES


def test_denials_with_long_names_are_not_cached() -> None:
    engine = Guarded()
    engine.allow(acl(Op.READ, name="x", pattern=PatternType.PREFIXED))
    authorizer = engine.engine.authorizer
    assert isinstance(authorizer, AclAuthorizer)
    long, longest = "x" * (MAX_CACHED_CHARACTERS + 1), "x" * 32_767
    for name in (long, longest):
        assert authorizer.allowed(Context(), Op.READ, Kind.TOPIC, name)
        assert not authorizer.allowed(Context(), Op.WRITE, Kind.TOPIC, name)
        assert not authorizer.allowed(Context(f"User:{name}"), Op.READ, Kind.TOPIC, "t")
    assert authorizer._denied == set()
    assert not authorizer.allowed(Context(), Op.WRITE, Kind.TOPIC, long[1:])
    assert len(authorizer._denied) == 1


def test_a_repeated_denial_is_logged_once_until_an_entry_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kcore.authorizer")
    node = Guarded()
    authorizer = node.engine.authorizer
    assert authorizer is not None
    for _ in range(3):
        assert not authorizer.allowed(Context(), Op.READ, Kind.TOPIC, "t")
    assert len(caplog.records) == 1
    node.allow(acl(Op.READ, name="other"))
    for _ in range(3):
        assert not authorizer.allowed(Context(), Op.READ, Kind.TOPIC, "t")
    assert len(caplog.records) == 2


def test_the_log_of_denied_operations_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    """At most ten denials are logged in ten seconds for the same principal, operation and resource type. Further
    denials are only counted.
    """
    caplog.set_level("INFO", "kcore.authorizer")
    node = Guarded()

    def denied(first: int, count: int, who: str = ALICE) -> list[str]:
        caplog.clear()
        for number in range(first, first + count):
            node.engine.authorizer.allowed(
                RequestContext(0, principal=who, client_host=f"/{HOST}"), Op.READ, Kind.TOPIC, f"t{number}"
            )
        return [record.getMessage() for record in caplog.records]

    lines = [
        f"authorizer: denied READ on TOPIC 't{number}' for principal 'User:alice' from /{HOST}; if the principal needs "
        "this access, add an ACL that allows it"
        for number in range(200)
    ]
    limit = (
        "authorizer: further denials of READ on resources of type TOPIC for principal 'User:alice' are only counted, "
        "not logged, for up to 10 s"
    )
    omitted = (
        "authorizer: 95 further denials of READ on resources of type TOPIC for principal 'User:alice' were not "
        "logged, because the limit is 10 log lines in 10 s"
    )
    assert denied(0, 100) == [*lines[:10], limit]
    assert denied(0, 1, "User:bob") == [lines[0].replace("alice", "bob")]
    node.engine.advance(9_999)
    assert denied(100, 5) == []
    node.engine.advance(1)
    assert denied(105, 1) == [omitted, lines[105]]


def test_the_entries_of_many_acls_are_compared_in_small_steps() -> None:
    """A DeleteAcls for 80,000 entries must not block the loop, so its steps run in slices."""
    node = Guarded()
    count = 3 * STEP_ENTRIES
    for first in range(0, count, 1_000):
        node.create(*(acl(Op.READ, name=f"t{number}") for number in range(first, first + 1_000)))
    api = node.engine.apis[ApiKey.DELETE_ACLS]
    every = DeleteAclsFilter(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    costs = list(api._select(node.engine.control.shard.machine, DeleteAclsRequest(filters=[every])))
    assert max(costs) == DESCRIPTION_COST_US * STEP_ENTRIES
    assert sum(costs) > count * (2 + DESCRIPTION_COST_US)
