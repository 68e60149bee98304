"""Decoys are invented salts for unknown users. They prevent a client from finding out whether a user exists, even by
repeated logins, later changes, or other listeners.
"""

from __future__ import annotations

import base64
import string
import zlib
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from kcore.log import MemoryLogEngine
from kcore.log.memory_engine import MemoryStorage
from kcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kcore.security.decoys import DEFAULT_FORMS, Decoys, SaltForm, SaltForms, SaltKind
from kcore.security.scram import MAX_SALT_BYTES, MIN_ITERATIONS, ScramCredential, ScramMechanism
from tests.security.exchange import client_first
from tests.security.test_sasl_wire import exchange, handshake
from tests.server.live import LiveServer, Raw

LISTENERS = ("PLAINTEXT", "ONE", "OTHER")
SETTINGS = {
    "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ONE:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT",
}
KAFKA_SALT = b"1k2v6hn0c8eqf9tzx5wpj3s7ay"  # in the format of kafka-configs: a number in base 36
MECHANISMS = tuple(ScramMechanism)


def upsert(user: str, salt: bytes, iterations: int) -> list[ScramCredentialUpsertion]:
    return [
        ScramCredentialUpsertion(
            name=user,
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            salted_password=mechanism.salted_password(b"secret", salt, iterations),
        )
        for mechanism in MECHANISMS
    ]


def seen(live: LiveServer, users: Sequence[str]) -> dict[tuple[str, str, str], tuple[bytes, int]]:
    """Returns a dict of (listener, mechanism, user) to the salt and the iterations that the server sends before
    authentication.
    """
    found = {}
    for listener in LISTENERS[1:]:
        for mechanism in MECHANISMS:
            for user in users:
                with Raw(live.server.addresses[listener][1]) as raw:
                    assert handshake(raw, mechanism.sasl_name).error_code == 0
                    first = exchange(raw, SaslAuthenticateRequest(auth_bytes=client_first(user)), 2)
                    parts = dict(part.split("=", 1) for part in bytes(first.auth_bytes).decode().split(","))
                    found[listener, mechanism.sasl_name, user] = base64.b64decode(parts["s"]), int(parts["i"])
    return found


def alter(live: LiveServer, *, upsertions: Any = (), deletions: Any = ()) -> None:
    """Sends a separate request for each change, because a request may name a user only once."""
    requests = [AlterUserScramCredentialsRequest(upsertions=[one]) for one in upsertions]
    requests += [AlterUserScramCredentialsRequest(deletions=[one]) for one in deletions]
    with live.connect() as connection:
        for request in requests:
            assert connection.send(request).results[0].error_code == 0


def form(salt: bytes, iterations: int) -> SaltForm:
    return SaltForm.of(ScramCredential(ScramMechanism.SCRAM_SHA_256, salt, b"", b"", iterations))


@pytest.mark.parametrize(("salt", "iterations"), [(bytes(range(32)), 4096), (KAFKA_SALT, 8192), (bytes(100), 5000)])
def test_decoys_look_like_users_on_every_listener_and_after_a_restart(salt: bytes, iterations: int) -> None:
    storage = MemoryStorage()
    with LiveServer(SETTINGS, log=MemoryLogEngine(storage)) as live:
        alter(live, upsertions=upsert("alice", salt, iterations) + upsert("bob", salt, iterations))
        before = seen(live, ("alice", "ghost", "spook"))
    forms = {form(*what) for what in before.values()}
    assert forms == {form(salt, iterations)}, "users and decoys have one form"
    for mechanism in MECHANISMS:
        salts = [before["ONE", mechanism.sasl_name, user][0] for user in ("alice", "ghost", "spook")]
        assert len(set(salts)) == 3, "each name has a salt of its own"
    for (_, mechanism_name, user), what in before.items():
        assert before["ONE", mechanism_name, user] == before["OTHER", mechanism_name, user] == what
    with LiveServer(SETTINGS, log=MemoryLogEngine(storage)) as live:
        assert seen(live, ("alice", "ghost", "spook")) == before


def test_without_users_decoys_have_the_form_of_new_ones_and_another_folder_has_others() -> None:
    found = []
    for _ in range(2):
        with LiveServer(SETTINGS) as live:
            found.append(seen(live, ("ghost",)))
    assert {form(*what) for some in found for what in some.values()} == set(DEFAULT_FORMS)
    assert set(found[0].values()).isdisjoint(found[1].values())


def test_the_forms_of_decoys_follow_the_users() -> None:
    """The form of a credential is the length of its salt and its number of iterations. Decoys have only forms that
    existing credentials have.

    When the last password of a form is replaced or deleted, no decoy has this form any longer.
    """
    storage = MemoryStorage()
    with LiveServer(SETTINGS, log=MemoryLogEngine(storage)) as live:
        alter(live, upsertions=upsert("alice", b"a" * 20, 5000) + upsert("bob", b"b" * 20, 5000))
        alter(live, upsertions=upsert("alice", bytes(24), 6000))
        alter(live, deletions=[ScramCredentialDeletion(name="bob", mechanism=int(one)) for one in MECHANISMS])
        forms = live.engine.topics.image.scram_forms
        assert {one: dict(forms[one]) for one in forms} == {
            one: {SaltForm(24, 6000, SaltKind.BYTES): 1} for one in MECHANISMS
        }
        assert {form(*what) for what in seen(live, ("ghost",)).values()} == {SaltForm(24, 6000, SaltKind.BYTES)}
        alter(live, deletions=[ScramCredentialDeletion(name="alice", mechanism=int(one)) for one in MECHANISMS])
        assert {form(*what) for what in seen(live, ("ghost",)).values()} == set(DEFAULT_FORMS)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 64, 65, 1_000])
@pytest.mark.parametrize("kind", [SaltKind.BYTES, SaltKind.LETTERS])
def test_a_decoy_has_a_salt_of_any_length_and_no_password(length: int, kind: SaltKind) -> None:
    decoys = Decoys(b"secret", lambda _: SaltForms({SaltForm(length, MIN_ITERATIONS, kind): 1}))
    for mechanism in MECHANISMS:
        one = decoys.credential("ghost", mechanism)
        assert one == decoys.credential("ghost", mechanism)
        assert (len(one.salt), one.iterations) == (length, MIN_ITERATIONS)
        assert length < 16 or one.salt[:16] not in one.stored_key
        assert not one.has_password("")
        if length > 30:
            assert form(one.salt, MIN_ITERATIONS).kind is kind


def kafka_salt(random: Random) -> bytes:
    """Makes a salt in the format of Kafka's clients: 130 random bits in base 36."""
    number, digits = random.getrandbits(130), ""
    while number:
        number, digit = divmod(number, 36)
        digits = (string.digits + string.ascii_lowercase)[digit] + digits
    return digits.encode()


def shape(salt: bytes) -> tuple[int, bool]:
    """Returns the length of a salt, and whether the salt begins with 1."""
    return len(salt), salt.startswith(b"1")


def test_decoys_of_kafkas_users_have_salts_of_the_same_lengths() -> None:
    """No length and no first character is more frequent among decoys than among users."""
    random, count = Random(1), 4_000
    users = [kafka_salt(random) for _ in range(count)]
    forms = Counter(form(salt, MIN_ITERATIONS) for salt in users)
    assert forms[SaltForm(0, MIN_ITERATIONS, SaltKind.KAFKA)] > 0.999 * count
    decoys = Decoys(b"secret", lambda _: SaltForms(forms))
    salts = [decoys.credential(f"ghost{number}", ScramMechanism.SCRAM_SHA_256).salt for number in range(count)]
    expected, found = Counter(map(shape, users)), Counter(map(shape, salts))
    assert {(26, True), (25, False), (25, True)} < expected.keys()
    for one in expected.keys() | found.keys():
        assert abs(expected[one] - found[one]) < 0.04 * count, one
    for position in (2, 12, 22):
        letters = Counter(salt[position] for salt in salts)
        assert len(letters) == 36
        assert max(letters.values()) < 1.7 * count / 36


def test_each_form_is_as_frequent_among_decoys_as_among_users() -> None:
    """A rare form must be as rare among decoys. Otherwise an attacker could recognize the users that have it."""
    forms = SaltForms(
        {
            SaltForm(32, 4096, SaltKind.BYTES): 50,
            SaltForm(0, 4096, SaltKind.KAFKA): 40,
            SaltForm(0, 8192, SaltKind.KAFKA): 10,
        }
    )
    decoys = Decoys(b"secret", lambda _: forms)
    names = [f"ghost{number}" for number in range(4_000)]

    def forms_of(names: list[str]) -> list[SaltForm]:
        made = [decoys.credential(name, ScramMechanism.SCRAM_SHA_256) for name in names]
        return [form(one.salt, one.iterations) for one in made]

    before = forms_of(names)
    found = Counter(before)
    for one, users in forms.items():
        assert abs(found[one] - 40 * users) < 160, one
    forms.add(SaltForm(0, 8192, SaltKind.KAFKA), 1)
    changed = sum(one != other for one, other in zip(before, forms_of(names), strict=True))
    assert 0 < changed < 0.03 * len(names), "one more user changes few decoys"


def test_a_decoy_of_thousands_of_forms_needs_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server chooses the form of a decoy among 12,000 forms with fewer than 300 hash computations, because it does
    so on the event loop.
    """
    computed = 0
    sign = ScramMechanism.hmac

    def counted(self: ScramMechanism, key: bytes, data: bytes) -> bytes:
        nonlocal computed
        computed += 1
        return sign(self, key, data)

    monkeypatch.setattr(ScramMechanism, "hmac", counted)
    forms = SaltForms({SaltForm(32, MIN_ITERATIONS + number, SaltKind.BYTES): 1 for number in range(12_000)})
    decoys = Decoys(b"secret", lambda _: forms)
    found = {decoys.credential(f"ghost{number}", ScramMechanism.SCRAM_SHA_256).iterations for number in range(20)}
    assert len(found) > 15
    assert computed / 20 < 300


@pytest.mark.parametrize("change", [1, -1])
def test_users_may_change_while_a_login_on_another_thread_chooses_a_form(change: int) -> None:
    """A login with PLAIN chooses the form of a decoy on another thread while the event loop adds or removes users. This
    must not raise an exception, because a user with the right password would be refused.
    """
    present = [SaltForm(32, 4_096 + number, SaltKind.BYTES) for number in range(300)]
    forms = SaltForms(dict.fromkeys(present, 1))
    more = [SaltForm(16, 4_096 + number, SaltKind.BYTES) for number in range(300)] if change > 0 else list(present)

    def draw(label: bytes) -> int:
        if more:
            forms.add(more.pop(), change)
        return zlib.crc32(label)

    assert forms.choose(draw) in (*present, None)
    more.clear()
    last = forms.choose(draw)
    assert last is None if not forms else last in forms


def test_removed_forms_leave_nothing_behind() -> None:
    forms = SaltForms()
    changes = [(SaltForm(32, 4_096 + number % 40, SaltKind.BYTES), number % 3 + 1) for number in range(200)]
    for one, count in changes:
        forms.add(one, count)
    assert len(forms) == 40
    assert sum(forms.values()) == sum(count for _, count in changes)
    for one, count in changes:
        forms.add(one, -count)
    assert (len(forms), forms._nodes, forms._leaves) == (0, {}, {})


def test_a_salt_that_would_make_decoys_slow_is_refused() -> None:
    with LiveServer(SETTINGS) as live, live.connect() as connection:
        for length, code in ((MAX_SALT_BYTES, 0), (MAX_SALT_BYTES + 1, 93)):
            request = AlterUserScramCredentialsRequest(upsertions=upsert("alice", b"a" * length, 4_096)[:1])
            assert connection.send(request).results[0].error_code == code
        assert {len(what[0]) for what in seen(live, ("ghost",)).values()} == {32, MAX_SALT_BYTES}
