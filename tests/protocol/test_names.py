"""API keys, error codes and uuids, and the cost of imports."""

import subprocess
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from kcore.errors import ConfigError, DataFolderError, KafkaError, KcoreError, LogError
from kcore.protocol import messages, uuids
from kcore.protocol.api_keys import (
    ApiKey,
    flexible_since,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tests.golden import kwire
from tests.protocol.strategies import all_messages, examples


def test_api_keys_are_kafkas() -> None:
    names = {s["api_key"]: name[: -len("Request")] for name, s in kwire.SCHEMAS.items() if s["kind"] == "request"}
    assert {int(key): key.name.replace("_", "").lower() for key in ApiKey} == {k: n.lower() for k, n in names.items()}


def test_classes_are_found_by_key_and_by_name() -> None:
    assert request_class(11) is JoinGroupRequest is messages.JoinGroupRequest
    assert response_class(ApiKey.JOIN_GROUP) is JoinGroupResponse is messages.JoinGroupResponse
    for cls in all_messages():
        if cls.__module__.startswith("kcore.protocol.messages."):
            assert getattr(messages, cls.__name__) is cls


@pytest.mark.parametrize("key", [-1, 4, 52, 1000])
def test_keys_without_messages_are_refused(key: int) -> None:
    with pytest.raises(KeyError, match="no messages are declared"):
        request_class(key)


@pytest.mark.parametrize("name", ["NoSuchRequest", "Heartbeat", "os", "__path_of_nothing__"])
def test_names_without_messages_are_not_attributes(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(messages, name)


def test_header_versions_follow_flexible_versions() -> None:
    """In flexible versions both headers have tagged fields, except in responses to ApiVersions (KIP-511)."""
    assert flexible_since(ApiKey.HEARTBEAT) == 4
    assert [request_header_version(12, v) for v in (3, 4, 99)] == [1, 2, 2]
    assert [response_header_version(12, v) for v in (3, 4)] == [0, 1]
    assert [request_header_version(18, v) for v in (-1, 2, 3, 77)] == [1, 1, 2, 2]
    assert [response_header_version(18, v) for v in (2, 3, 4)] == [0, 0, 0]
    assert request_header_version(17, 1) == 1
    assert response_header_version(47, 0) == 0


def test_a_program_imports_only_the_messages_that_it_uses() -> None:
    code = (
        "import sys, kcore.protocol.messages as m, kcore.protocol.api_keys\n"
        "m.HeartbeatRequest\n"
        "print(sorted(n for n in sys.modules if n.startswith('kcore.protocol.messages.')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['kcore.protocol.messages.heartbeat']"


def test_error_codes_are_kafkas() -> None:
    ours = {int(code): code.name for code in ErrorCode}
    assert sorted(ours) == list(range(-1, 134))
    assert ours == {int(code.value): code.name.upper() for code in KioErrorCode}
    assert ErrorCode(25) is ErrorCode.UNKNOWN_MEMBER_ID
    assert all(code.message.endswith((".", "!")) for code in ErrorCode)


def test_errors_have_their_texts() -> None:
    assert str(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)) == "UNKNOWN_MEMBER_ID: The group has no such member."
    assert str(KafkaError(ErrorCode.INVALID_REQUEST, "two of them")) == "INVALID_REQUEST: two of them"
    assert str(DataFolderError("/data", "locked")) == "/data: locked"
    assert all(issubclass(cls, KcoreError) for cls in (ConfigError, DataFolderError, LogError))
    assert not issubclass(KafkaError, KcoreError)


@examples(100, 1000)
@given(st.binary(min_size=16, max_size=16))
def test_uuid_texts_round_trip(raw: bytes) -> None:
    text = uuids.to_text(raw)
    assert len(text) == 22
    assert uuids.from_text(text) == raw
    assert uuids.from_text(text + "==") == raw


def test_uuid_texts_are_kafkas() -> None:
    assert uuids.to_text(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuids.to_text(uuids.METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuids.to_text(b"\xfb\xff" + bytes(14)) == "-_8AAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 21, "A" * 23, "+" * 22, "!" * 22, "ä" * 22, "A" * 24])
def test_texts_that_are_not_uuids_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a uuid"):
        uuids.from_text(text)


def test_uuids_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        uuids.to_text(b"short")


@examples(100, 1000)
@given(st.binary(min_size=16, max_size=16))
def test_uuids_in_hexadecimal_equal_pythons(drawn: bytes) -> None:
    assert uuids.to_hex(drawn) == str(uuid.UUID(bytes=drawn))


@examples(100, 1000)
@given(st.binary(min_size=16, max_size=16))
def test_random_uuids_equal_pythons(drawn: bytes) -> None:
    assert uuids.version_4(drawn) == uuid.UUID(bytes=drawn, version=4).bytes
