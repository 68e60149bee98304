"""DescribeUserScramCredentials (API key 50): SCRAM credentials of users (KIP-554)."""

from kcore.protocol.schema import Array, Int8, Int16, Int32, Message, NullableString, Request, String, Struct


class UserName(Struct):
    """One entry of `users` of DescribeUserScramCredentialsRequest."""

    name: String = ""


class DescribeUserScramCredentialsRequest(
    Request["DescribeUserScramCredentialsResponse"], api_key=50, versions="0", flexible="0+"
):
    """The users to describe."""

    users: Array[UserName] | None = ()


class CredentialInfo(Struct):
    """One entry of `credential_infos` of DescribeUserScramCredentialsResult."""

    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    """One entry of `results` of DescribeUserScramCredentialsResponse."""

    user: String = ""
    error_code: Int16 = 0
    error_message: NullableString = ""
    credential_infos: Array[CredentialInfo] = ()


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    """Mechanisms and iterations, never the secrets."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    results: Array[DescribeUserScramCredentialsResult] = ()
