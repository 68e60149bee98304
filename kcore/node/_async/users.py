"""Users that authenticate with a password, as SCRAM credentials (KIP-554)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from kcore.client.sasl import MAX_ITERATIONS
from kcore.errors import KafkaError
from kcore.node._async.calls import AsyncCalls
from kcore.node.arguments import check_count, check_text, filters
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kcore.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kcore.security.scram import MIN_ITERATIONS, NEW_SALT_BYTES, ScramMechanism

MECHANISMS = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
"""Name of a mechanism -> the mechanism. The names are "SCRAM-SHA-256" and "SCRAM-SHA-512"."""


class AsyncUsers:
    """The users of a node: `node.users`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return f"AsyncUsers({str(self._calls.transport)!r})"

    async def list(self) -> dict[str, dict[str, int]]:
        """Returns the users by name: for each user, mechanism -> the number of iterations of the salted password."""

        def read(response: Any) -> dict[str, dict[str, int]]:
            if response.error_code:
                raise KafkaError.of(response.error_code, response.error_message)
            for row in response.results:
                if row.error_code:
                    raise KafkaError.of(row.error_code, row.error_message)
            return {
                row.user: {ScramMechanism(info.mechanism).sasl_name: info.iterations for info in row.credential_infos}
                for row in sorted(response.results, key=lambda row: str(row.user))
            }

        return await self._calls.call(DescribeUserScramCredentialsRequest(users=None), read)

    async def set_password(
        self, user: str, password: str, *, mechanisms: Iterable[str] | None = None, iterations: int = MIN_ITERATIONS
    ) -> None:
        """Adds a user, or changes a password. The client sends the salted password, never the password itself.

        Args:
            user: the user's name.
            password: the new password, as a text.
            mechanisms: "SCRAM-SHA-256", "SCRAM-SHA-512"; None: all.
            iterations: the number of iterations of the salted password.

        Raises:
            ConfigError: a mechanism does not exist.
            TypeError: an argument has another type.
            UnacceptableCredentialError: the server refuses the name or the number of iterations. The client itself
                refuses a number above 1,000,000, because the computation would take minutes.
        """
        check_text("user", user)
        check_text("password", password)
        check_count("iterations", iterations)
        if iterations > MAX_ITERATIONS:
            raise KafkaError.of(
                ErrorCode.UNACCEPTABLE_CREDENTIAL,
                f"{iterations} iterations are too many; the maximum is {MAX_ITERATIONS}",
            )
        for mechanism in _mechanisms(mechanisms):
            salt = secrets.token_bytes(NEW_SALT_BYTES)
            salted = mechanism.salted_password(password.encode(), salt, max(iterations, 1))
            upsertion = ScramCredentialUpsertion(
                name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
            )
            # A request may change each user only once.
            await self._alter(AlterUserScramCredentialsRequest(upsertions=[upsertion]))

    async def remove(self, user: str, mechanisms: Iterable[str] | None = None) -> None:
        """Removes a user's passwords.

        Args:
            user: the user's name.
            mechanisms: the mechanisms whose passwords to remove; None: all mechanisms for which the user has a
                password.

        Raises:
            ConfigError: a mechanism does not exist.
            ResourceNotFoundError: the user does not exist, or has no password of a mechanism.
        """
        check_text("user", user)
        if mechanisms is None:
            mechanisms = (await self.list()).get(user)
        for mechanism in _mechanisms(mechanisms):
            deletion = ScramCredentialDeletion(name=user, mechanism=mechanism)
            await self._alter(AlterUserScramCredentialsRequest(deletions=[deletion]))

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        def read(response: Any) -> None:
            for row in response.results:
                if row.error_code:
                    raise KafkaError.of(row.error_code, row.error_message or f"user {row.user!r}")

        await self._calls.call(request, read)


def _mechanisms(names: Iterable[str] | None) -> Sequence[ScramMechanism]:
    """Returns the mechanisms with these names; None: all mechanisms.

    Raises:
        ConfigError: a mechanism does not exist.
    """
    if names is None:
        return list(ScramMechanism)
    return [MECHANISMS[name] for name in filters("mechanisms", names, {name: name for name in MECHANISMS})]
