"""AlterUserScramCredentials (key 51, version 0): adds, changes and removes users' credentials (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.control import ControlApi, client_code
from kcore.broker.metadata.records import scram_record, scram_removal_record
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kcore.security.scram import MAX_ITERATIONS, MAX_SALT_BYTES, MIN_ITERATIONS, ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from kcore.broker.metadata.image import MetadataImage
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Record

Fault = tuple[ErrorCode, str | None]

_MECHANISMS = frozenset(ScramMechanism)
_NO_KEYS: Fault = (ErrorCode.UNKNOWN_SERVER_ERROR, None)  # Kafka fails to compute the keys of an empty password
_TWICE: Fault = (ErrorCode.DUPLICATE_RESOURCE, "a user's credential cannot be altered twice in one request")


class AlterUserScramCredentialsApi(ControlApi[AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse]):
    """Handler of AlterUserScramCredentials requests. A refused change of one user does not affect other users.

    The client sends the salted password instead of the password. The metadata stores only two keys derived from it.
    """

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    request_type: ClassVar[type] = AlterUserScramCredentialsRequest
    response_type: ClassVar[type] = AlterUserScramCredentialsResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)

    def handle(self, context: RequestContext, request: AlterUserScramCredentialsRequest) -> Any:
        """Handles the request, in parts if it names many users."""
        items: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]

        def part(some: list[Any]) -> AlterUserScramCredentialsRequest:
            return AlterUserScramCredentialsRequest(
                deletions=[item for item in some if isinstance(item, ScramCredentialDeletion)],
                upsertions=[item for item in some if isinstance(item, ScramCredentialUpsertion)],
            )

        return self.in_parts(context, request, items, part, _merged, key=lambda item: item.name)

    def decide(
        self, machine: MetadataMachine, context: RequestContext, request: AlterUserScramCredentialsRequest
    ) -> Any:
        """Checks and applies each change. Refuses all changes of a user that the request names twice."""
        if not self.allowed(context, Operation.ALTER, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        faults: dict[str, Fault | None] = {}
        records: dict[str, Record] = {}
        for deletion in request.deletions:
            user = deletion.name
            faults[user] = _repeated(faults[user]) if user in faults else _deletion_fault(machine.image, deletion)
            if faults[user] is None:
                records[user] = scram_removal_record(user, deletion.mechanism)
        for upsertion in request.upsertions:
            user = upsertion.name
            faults[user] = _repeated(faults[user]) if user in faults else _upsertion_fault(upsertion)
            if faults[user] is None:
                records[user] = scram_record(user, _credential(upsertion))
        results = [_result(user, fault) for user, fault in faults.items()]
        decided = [record for user, record in records.items() if faults[user] is None]
        return machine.outcome(decided, AlterUserScramCredentialsResponse(results=results))

    def error(
        self,
        context: RequestContext,
        request: AlterUserScramCredentialsRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> AlterUserScramCredentialsResponse:
        """Makes a response with the same error code for each user."""
        code = client_code(code)
        changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
        users = dict.fromkeys(change.name for change in changes)
        return AlterUserScramCredentialsResponse(
            results=[_result(user, (code, message or code.message)) for user in users]
        )


def _merged(parts: list[AlterUserScramCredentialsResponse]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(results=[result for part in parts for result in part.results])


def _result(user: str, fault: Fault | None) -> AlterUserScramCredentialsResult:
    if fault is None:
        return AlterUserScramCredentialsResult(user=user, error_message=None)
    return AlterUserScramCredentialsResult(user=user, error_code=fault[0], error_message=fault[1])


def _repeated(fault: Fault | None) -> Fault:
    """Returns the error for a user that the request names twice.

    If the first change of the user is invalid, the function returns the error of this change. But if its only error is
    an empty salted password, the function returns the error for duplicates. Kafka checks for duplicates before it
    checks for empty salted passwords.

    Args:
        fault: the error of the first change; None if the change is valid.
    """
    return _TWICE if fault in (None, _NO_KEYS) else fault


def _fault(user: str, mechanism: int) -> Fault | None:
    if not user:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user's name is empty"
    if mechanism not in _MECHANISMS:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism {mechanism}"
    return None


def _deletion_fault(image: MetadataImage, deletion: ScramCredentialDeletion) -> Fault | None:
    fault = _fault(deletion.name, deletion.mechanism)
    if fault is None and deletion.mechanism not in image.scram.get(deletion.name, {}):
        return ErrorCode.RESOURCE_NOT_FOUND, "the user has no credential for this mechanism"
    return fault


def _upsertion_fault(upsertion: ScramCredentialUpsertion) -> Fault | None:
    fault = _fault(upsertion.name, upsertion.mechanism)
    if fault is None and not MIN_ITERATIONS <= upsertion.iterations <= MAX_ITERATIONS:
        return (
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{upsertion.iterations} iterations; valid: {MIN_ITERATIONS} to {MAX_ITERATIONS}",
        )
    if fault is None and len(upsertion.salt) > MAX_SALT_BYTES:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"the salt is longer than {MAX_SALT_BYTES} bytes"
    if fault is None and not upsertion.salted_password:
        return _NO_KEYS
    return fault


def _credential(upsertion: ScramCredentialUpsertion) -> ScramCredential:
    mechanism = ScramMechanism(upsertion.mechanism)
    salted, salt = bytes(upsertion.salted_password), bytes(upsertion.salt)
    return ScramCredential.of_salted(mechanism, salted, salt, upsertion.iterations)
