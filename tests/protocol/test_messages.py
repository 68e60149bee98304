"""Compares every message in every version, in both directions, with two codecs that share no code
with kcore's codec.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kcore.protocol.records.metadata import UserScramCredentialRecord
from kcore.protocol.schema import Message
from tests.golden import kwire
from tests.protocol import oracles
from tests.protocol.strategies import all_messages, at_version, examples, struct_strategy


def _versions(cls: type[Message]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_encoded_messages_equal_kwires_and_round_trip(cls: type[Message]) -> None:
    """In every version, kcore encodes a message to the same bytes as kwire, and both decode it to the same values.
    Bytes after the message are ignored.
    """

    @examples(6, 300)
    @given(struct_strategy(cls))
    def check(anything: Message) -> None:
        for version in _versions(cls):
            message = at_version(anything, version)
            data = message.encode(version)
            assert cls.decode(data, version) == message
            assert cls.decode(b"\x7f" + data + b"\x00\xff", version, 1) == message
            name = oracles.kwire_name(cls)
            if name is not None:
                assert kwire.encode(name, version, oracles.to_kwire(message, version)) == data
                assert kwire.decode(name, version, data) == oracles.to_kwire(message, version)

    check()


KIO_MESSAGES = [
    cls for cls in all_messages() if cls.__name__.endswith(("Request", "Response")) and cls.__name__ != "RequestHeader"
]
"""Request and response classes that kio can also encode and decode. Each test loads only one class of kio, because
loading all of them takes a second.
"""


@pytest.mark.parametrize("cls", KIO_MESSAGES, ids=lambda cls: cls.__name__)
def test_kio_reads_and_writes_the_same_bytes(cls: type[Message]) -> None:
    """kio decodes kcore's bytes to the same values, and encodes them to the same bytes, in every version that kio
    supports.
    """
    found = {version: oracles.kio_class(cls, version) for version in _versions(cls)}
    classes = {version: theirs for version, theirs in found.items() if theirs is not None}
    assert cls.MAX_VERSION in classes

    @examples(4, 200)
    @given(struct_strategy(cls, True))
    def check(anything: Message) -> None:
        for version, theirs in classes.items():
            message = at_version(anything, version)
            data = message.encode(version)
            entity = oracles.kio_read(theirs, data)
            assert oracles.same_as_kio(message, entity, version)
            assert oracles.kio_write(entity) == data

    check()


WITH_SECRETS = {SaslAuthenticateRequest, AlterUserScramCredentialsRequest, UserScramCredentialRecord}
"""Message classes whose repr omits fields with secrets."""


@pytest.mark.parametrize(
    "message",
    [
        SaslAuthenticateRequest(auth_bytes=b"s3cret"),
        AlterUserScramCredentialsRequest(
            upsertions=[ScramCredentialUpsertion(name="u", salt=b"s3cret", salted_password=b"s3cret")]
        ),
        UserScramCredentialRecord(name="u", salt=b"s3cret", stored_key=b"s3cret", server_key=b"s3cret"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_secrets_are_not_shown(message: Message) -> None:
    assert type(message) in WITH_SECRETS
    assert "[hidden]" in repr(message)
    assert "s3cret" not in repr(message)


@examples(30, 1000)
@given(st.sampled_from([cls for cls in all_messages() if cls not in WITH_SECRETS]), st.data())
def test_repr_is_the_call_that_makes_an_equal_message(cls: type[Message], data: st.DataObject) -> None:
    import sys

    message = data.draw(struct_strategy(cls))
    names: dict[str, object] = {}
    for module in {c.__module__ for c in (cls, *cls.__mro__)}:
        names |= vars(sys.modules[module])
    names |= {"inf": float("inf"), "ErrorCode": ErrorCode}
    assert eval(repr(message), names) == message
