"""AlterUserScramCredentials (API key 51): changing SCRAM credentials (KIP-554)."""

from kcore.protocol.schema import Array, Bytes, Int8, Int16, Int32, Message, NullableString, Request, String, Struct


class ScramCredentialDeletion(Struct):
    """One entry of `deletions` of AlterUserScramCredentialsRequest."""

    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Struct):
    """One entry of `upsertions` of AlterUserScramCredentialsRequest."""

    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""

    def __repr__(self) -> str:
        # The salted password is sufficient to log in.
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism}, [hidden])"


class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"], api_key=51, versions="0", flexible="0+"
):
    """The requested deletions and upsertions."""

    deletions: Array[ScramCredentialDeletion] = ()
    upsertions: Array[ScramCredentialUpsertion] = ()


class AlterUserScramCredentialsResult(Struct):
    """One entry of `results` of AlterUserScramCredentialsResponse."""

    user: String = ""
    error_code: Int16 = 0
    error_message: NullableString = ""


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    """One result per user."""

    throttle_time_ms: Int32 = 0
    results: Array[AlterUserScramCredentialsResult] = ()
