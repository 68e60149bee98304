"""PLAIN (RFC 4616): name and password as they are. For listeners with TLS.

The users are those of SCRAM: a password is checked against what is stored of it, so that no password is kept anywhere.
"""

from __future__ import annotations

from typing import ClassVar

from kcore.security.mechanism import AuthenticationError, Mechanism
from kcore.security.scram import Credentials, Decoys, ScramMechanism


class Plain(Mechanism):
    """The server's side of one exchange: one token.

    Args:
        credentials: the users.
        decoys: stand for users that do not exist.
    """

    __slots__ = ("_credentials", "_decoys")

    name: ClassVar[str] = "PLAIN"
    blocking: ClassVar[bool] = True  # it derives a key of the password: a millisecond and more

    def __init__(self, credentials: Credentials, decoys: Decoys) -> None:
        super().__init__()
        self._credentials = credentials
        self._decoys = decoys

    def evaluate(self, token: bytes) -> bytes:
        """`[authzid] NUL user NUL password`; the answer is empty."""
        if self.complete:
            raise AuthenticationError("PLAIN: a message behind the last one")
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationError("PLAIN: a message that is no UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationError(f"PLAIN: expected three parts, found {len(parts)}")
        authzid, user, password = parts
        if not user or not password:
            raise AuthenticationError("PLAIN: user and password must not be empty")
        if authzid not in ("", user):
            raise AuthenticationError("PLAIN: nobody can act for another user here")
        if not self._fits(user, password):
            raise AuthenticationError("Authentication failed: the credentials for PLAIN are not valid")
        self.user = user
        self.complete = True
        return b""

    def _fits(self, user: str, password: str) -> bool:
        """Whether one of the user's credentials was made of the password.

        The work is the same for every user, and for one that does not exist: what is missing is a decoy.
        """
        for mechanism in ScramMechanism:
            found = self._credentials.find(user, mechanism)
            credential = found or self._decoys.credential(user, mechanism)
            if credential.has_password(password) and found is not None:
                return True
        return False
