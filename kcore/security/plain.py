"""PLAIN (RFC 4616): name and password in clear text, for listeners with TLS.

It uses the SCRAM users: a password is checked against the stored SCRAM credential, so that no password is stored. A
listener whose settings define users (`plain.sasl.jaas.config`) uses the users of the settings instead.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import ClassVar

from kcore.errors import AuthenticationError
from kcore.security.decoys import Decoys
from kcore.security.mechanism import Mechanism
from kcore.security.scram import Credentials, ScramMechanism


class Plain(Mechanism):
    """The server side of one PLAIN exchange, which consists of one token.

    Args:
        credentials: the users.
        decoys: credentials for users that do not exist, so that a login takes the same time.
    """

    __slots__ = ("_credentials", "_decoys")

    name: ClassVar[str] = "PLAIN"
    # Key derivation takes a millisecond or more of a processor, which the event loop and commits need, too.
    threads: ClassVar[int] = 2

    def __init__(self, credentials: Credentials, decoys: Decoys) -> None:
        super().__init__()
        self._credentials = credentials
        self._decoys = decoys

    def evaluate(self, token: bytes) -> bytes:
        """Evaluates `[authzid] NUL user NUL password`; the response is empty."""
        if self.complete:
            raise AuthenticationError("PLAIN: unexpected message after the end of the authentication")
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationError("PLAIN: the message is not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationError(f"PLAIN: expected three parts, found {len(parts)}")
        authzid, user, password = parts
        if not user or not password:
            raise AuthenticationError("PLAIN: user and password must not be empty")
        if authzid not in ("", user):
            raise AuthenticationError("PLAIN: an authorization id is not supported")
        if not self._fits(user, password):
            raise AuthenticationError("Authentication failed: the credentials for PLAIN are not valid")
        self.user = user
        self.complete = True
        return b""

    def _fits(self, user: str, password: str) -> bool:
        """Returns True if any of the user's credentials belongs to the password.

        The work is the same for every user name, because a decoy replaces a missing credential.
        """
        for mechanism in ScramMechanism:
            stored = self._credentials.find(user, mechanism)
            decoy = self._decoys.credential(user, mechanism)  # made even if the user exists
            if (stored or decoy).has_password(password) and stored is not None:
                return True
        return False


class PlainOfSettings(Plain):
    """The server side of one PLAIN exchange with the users of the listener's settings.

    Args:
        passwords: user -> password.
    """

    __slots__ = ("_passwords",)

    threads: ClassVar[int] = 0  # nothing is derived from the password

    def __init__(self, passwords: Mapping[str, str]) -> None:
        Mechanism.__init__(self)
        self._passwords = passwords

    def _fits(self, user: str, password: str) -> bool:
        """Returns True if the password is the user's; the time depends on neither the user nor the password."""
        expected = self._passwords.get(user)
        is_equal = hmac.compare_digest((expected or "").encode(), password.encode())
        return is_equal and expected is not None
