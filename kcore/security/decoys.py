"""Decoys: credentials for users that do not exist, so that clients cannot find out which users exist."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple, TypeVar

from kcore.counts import add_count
from kcore.security.scram import MAX_SALT_BYTES, MIN_ITERATIONS, NEW_SALT_BYTES, ScramCredential, ScramMechanism

_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"
_TEXTUAL = re.compile(rb"[0-9a-z]+")

_KAFKA_SALT = re.compile(rb"1[0-9a-z]{25}|[1-9a-z][0-9a-z]{23,24}")
_KAFKA_SALT_BITS = 130
"""Number of random bits in a salt of Kafka's own clients, which write it in base 36.

Such a salt has 25 or 26 characters, rarely 24. A salt of 26 characters always begins with 1. Less than one salt in
2,000 has fewer than 24 characters.
"""

K = TypeVar("K")

_LEVELS: Final = 3
_WAYS: Final = 64
_MAX_ATTEMPTS: Final = 100


class SaltKind(IntEnum):
    """The ways in which clients make salts."""

    BYTES = 0
    """Random bytes."""
    LETTERS = 1
    """Random digits and lower-case letters."""
    KAFKA = 2
    """Salts of the form that Kafka's own clients create. Their length is random, too."""


class SaltForm(NamedTuple):
    """The properties of a credential that a client can see before it authenticates, without the salt itself.

    Attributes:
        length: length of the salt in bytes; 0 if the kind determines it.
        iterations: the iteration count of PBKDF2.
        kind: the way in which the salt was made.
    """

    length: int
    iterations: int
    kind: SaltKind

    @classmethod
    def of(cls, credential: ScramCredential) -> SaltForm:
        """Returns the length and kind of the salt, and the iteration count, of a user's credential."""
        salt = credential.salt
        if _KAFKA_SALT.fullmatch(salt):
            return cls(0, credential.iterations, SaltKind.KAFKA)
        kind = SaltKind.LETTERS if _TEXTUAL.fullmatch(salt) else SaltKind.BYTES
        return cls(len(salt), credential.iterations, kind)


class SaltForms(Mapping[SaltForm, int]):
    """The forms of users' credentials, with the number of users of each.

    The forms are the leaves of a tree with `_WAYS` branches at each node, so that choosing a form does not visit all
    forms.

    Args:
        counts: the initial forms, with the number of users of each.
    """

    __slots__ = ("_leaves", "_nodes", "_own")

    def __init__(self, counts: Mapping[SaltForm, int] | None = None) -> None:
        self._own: dict[SaltForm, int] = {}
        self._nodes: dict[tuple[int, ...], dict[int, int]] = {}  # path to a node -> branch -> users below it
        self._leaves: dict[tuple[int, ...], dict[SaltForm, int]] = {}
        for form, count in (counts or {}).items():
            self.add(form, count)

    def __getitem__(self, form: SaltForm) -> int:
        return self._own[form]

    def __iter__(self) -> Iterator[SaltForm]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)

    def add(self, form: SaltForm, change: int) -> None:
        """Adds `change` to the number of users whose salts have a form."""
        path = _path_of(form)
        add_count(self._own, form, change)
        for depth in range(_LEVELS):
            branches = self._nodes.setdefault(path[:depth], {})
            add_count(branches, path[depth], change)
            if not branches:
                del self._nodes[path[:depth]]
        leaf = self._leaves.setdefault(path, {})
        add_count(leaf, form, change)
        if not leaf:
            del self._leaves[path]

    def choose(self, draw: Callable[[bytes], int]) -> SaltForm | None:
        """Chooses a form with a probability proportional to its number of users. Returns None if there are no forms.

        The method uses weighted rendezvous hashing: for the same `draw`, the result is the same. If the weight of a
        form changes, user names move only to or from this form. Logins on other threads call this method while `add`
        changes the tree. Therefore, it copies each node, and begins again if the chosen branch was removed meanwhile.

        Args:
            draw: called with a label, returns a random number below 2**53. Equal labels give equal numbers.
        """
        for _ in range(_MAX_ATTEMPTS):
            path: tuple[int, ...] = ()
            while len(path) < _LEVELS and (branches := self._nodes.get(path, {}).copy()):
                path += (_heaviest(branches, draw, partial(_label, path)),)
            leaf = self._leaves.get(path, {}).copy()
            if leaf:
                return _heaviest(leaf, draw, lambda form: b"form %d %d %d " % form)
            if not self._own:
                break
        return None


def _label(path: tuple[int, ...], branch: int) -> bytes:
    return "node {} ".format(" ".join(map(str, (*path, branch)))).encode()


def _path_of(form: SaltForm) -> tuple[int, ...]:
    number = zlib.crc32(b"%d %d %d" % form)
    return tuple(number // _WAYS**level % _WAYS for level in range(_LEVELS))


def _heaviest(weights: Mapping[K, int], draw: Callable[[bytes], int], label: Callable[[K], bytes]) -> K:
    """Returns the key with the highest score. The score is random, and grows with the weight of the key."""
    if len(weights) == 1:
        return next(iter(weights))
    # + 0.5 keeps the numbers between 0 and 1: the logarithm of 0 does not exist, and that of 1 is 0.
    return max(weights, key=lambda key: weights[key] / -math.log((draw(label(key)) + 0.5) / 2**53))


_DEFAULT_FORM: Final = SaltForm(NEW_SALT_BYTES, MIN_ITERATIONS, SaltKind.BYTES)
DEFAULT_FORMS = SaltForms({_DEFAULT_FORM: 1})
"""The form of the credentials that `kcore users add` creates."""


class Decoys:
    """Credentials for names of users that do not exist. A name keeps its credential, and no password matches it.

    Decoys prevent clients from detecting, by the responses or by their timing, which users exist. Therefore, mechanisms
    make a decoy for each name, even if the user exists. Each form of credentials is as frequent among decoys as among
    users, so that a rare form does not indicate an existing user. A change of the users changes only few decoys.

    Args:
        secret: random bytes that clients do not know; the same for every listener and after every restart.
        forms: returns the forms of the users' credentials for a mechanism; None if there are none.
    """

    __slots__ = ("_forms", "_secret")

    def __init__(
        self, secret: bytes, forms: Callable[[ScramMechanism], SaltForms | None] = lambda _: DEFAULT_FORMS
    ) -> None:
        self._secret = secret
        self._forms = forms

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """Creates the decoy of a user name."""
        name = user.encode("utf-8", "surrogatepass")
        key = mechanism.hmac(self._secret, b"key " + name)
        form = self._form(name, mechanism)
        return ScramCredential(mechanism, self._salt(name, mechanism, form), key, key, form.iterations)

    def _form(self, name: bytes, mechanism: ScramMechanism) -> SaltForm:
        """Chooses the form of the salt for the decoy of a user name."""

        def draw(label: bytes) -> int:
            return int.from_bytes(mechanism.hmac(self._secret, label + name)[:8], "big") >> 11

        forms = self._forms(mechanism)
        return (None if forms is None else forms.choose(draw)) or _DEFAULT_FORM

    def _salt(self, name: bytes, mechanism: ScramMechanism, form: SaltForm) -> bytes:
        if form.kind is SaltKind.KAFKA:
            return _base_36(int.from_bytes(self._random(name, mechanism, 64), "big") % 2**_KAFKA_SALT_BITS)
        length = min(form.length, MAX_SALT_BYTES)  # older credentials may have a longer salt
        if form.kind is SaltKind.LETTERS:
            drawn = self._random(name, mechanism, 4 * length)
            return bytes(_DIGITS[int.from_bytes(drawn[at : at + 4], "big") % 36] for at in range(0, len(drawn), 4))
        return self._random(name, mechanism, length)

    def _random(self, name: bytes, mechanism: ScramMechanism, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            data += mechanism.hmac(self._secret, b"salt %d " % len(data) + name)
        return bytes(data[:length])


def _base_36(number: int) -> bytes:
    digits = bytearray()
    while number:
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    digits.reverse()
    return bytes(digits)
