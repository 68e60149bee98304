"""The exception classes of Kafka's error codes, and the error of a request that fails for some of its partitions."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kcore
from kcore import errors
from kcore.errors import ConnectionClosedError, KafkaError, KcoreError, PartitionErrors, raise_partition_errors
from kcore.errors.by_code import BY_CODE
from kcore.log.errors import CorruptLogError, InvalidBatchError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.topic_partition import TopicPartition

ROOT = Path(__file__).parents[1]
A, B, C = (TopicPartition("t", number) for number in range(3))


def test_generated_classes_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/generate_errors.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_each_code_has_a_class_of_its_own_under_its_name() -> None:
    assert {code for code in ErrorCode if code} == set(BY_CODE)
    for code, kind in BY_CODE.items():
        error = KafkaError.of(code)
        assert (type(error), error.code, str(error)) == (kind, code, f"{error.code.name}: {error.code.message}")
        assert getattr(errors, kind.__name__) is kind
        assert type(pickle.loads(pickle.dumps(error))) is kind
    assert errors.FencedMemberEpochError("text").code == ErrorCode.FENCED_MEMBER_EPOCH


def test_retriable_errors_are_kafkas() -> None:
    assert KafkaError.of(ErrorCode.NOT_COORDINATOR).retriable
    assert not KafkaError.of(ErrorCode.ILLEGAL_GENERATION).retriable
    assert not KafkaError.of(ErrorCode.REBALANCE_IN_PROGRESS).retriable


def test_a_code_of_a_newer_server_is_an_unknown_server_error() -> None:
    error = KafkaError.of(999, "text")
    assert type(error) is errors.UnknownServerError
    assert (
        str(error) == "UNKNOWN_SERVER_ERROR: error code 999 of a newer server, unknown to this version of kcore: text"
    )


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchError"):
        errors.NoSuchError  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="'TimeoutError'; TimeoutError is a class of Python itself"):
        errors.TimeoutError  # type: ignore[attr-defined]  # noqa: B018


def test_no_code_raises_nothing() -> None:
    raise_partition_errors("commit", {A: 0, B: (0, None)}, 2)


def test_one_code_for_all_partitions_is_raised_as_its_class() -> None:
    with pytest.raises(errors.UnknownTopicOrPartitionError) as caught:
        raise_partition_errors("commit", {A: 3, B: 3}, 2)
    assert caught.value.partitions == (A, B)
    assert str(caught.value).startswith("t-0, t-1: UNKNOWN_TOPIC_OR_PARTITION")


def test_a_failure_in_part_is_a_group_that_names_the_partitions() -> None:
    with pytest.raises(PartitionErrors, match=r"commit: 2 of 3 partitions were refused") as caught:
        raise_partition_errors("commit", {A: 3, B: 0, C: (29, "no")}, 3)
    assert {partition: type(error) for partition, error in caught.value.errors.items()} == {
        A: errors.UnknownTopicOrPartitionError,
        C: errors.TopicAuthorizationFailedError,
    }
    part = caught.value.subgroup(errors.TopicAuthorizationFailedError)
    assert isinstance(part, PartitionErrors)
    assert list(part.errors) == [C]


def test_importing_kcore_errors_does_not_create_the_classes() -> None:
    code = "import sys, kcore.errors; sys.exit('kcore.errors.by_code' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_repr_of_an_error_has_its_text_and_its_partitions() -> None:
    error = KafkaError.of(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, [TopicPartition("jobs", 3)])
    assert repr(error) == f"GroupAuthorizationFailedError({str(error)!r})"
    assert "jobs-3: GROUP_AUTHORIZATION_FAILED: " in repr(error)
    assert repr(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "gone")) == "KafkaError('UNKNOWN_MEMBER_ID: gone')"


def test_an_empty_message_of_a_server_is_replaced_by_the_text_of_the_code() -> None:
    assert str(KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")).endswith(
        "The server has no such topic or partition."
    )


def test_a_lost_connection_is_an_error_of_kcore_and_of_the_operating_system() -> None:
    error = pickle.loads(pickle.dumps(ConnectionClosedError("the connection broke")))
    assert isinstance(error, KcoreError)
    assert isinstance(error, ConnectionError)
    assert str(error) == "the connection broke"


LOST = ConnectionClosedError("the connection broke")
LOST.retriable = False
REFUSED = KafkaError.of(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no", [A, B])
REFUSED.add_note("a note")


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        LOST,
        KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "gone"),
        errors.MalformedResponseError("localhost:9092", "Metadata", "no broker"),
        errors.LogTruncationError("truncated", {A: 3}),
        errors.EngineInterruptedError(),
        errors.ReentrantCallError(),
        errors.AuthenticationError("refused", "expired"),
        errors.DataFolderError("data", "is locked"),
        CorruptLogError(("t", 0), 7, "no batch"),
        InvalidBatchError("too short"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("duplicate", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_a_copy_of_an_error_equals_the_error(error: Exception, duplicate: Callable[[Exception], Exception]) -> None:
    """A pool of processes pickles the errors of its workers. multiprocessing.Pool waits forever for an error that
    cannot be unpickled.
    """
    made = duplicate(error)
    assert (type(made), made.args, str(made), repr(made)) == (type(error), error.args, str(error), repr(error))
    assert vars(made) == vars(error)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("kcore", "kcore.__all__"),
        ("kcore.testing", "kcore.testing.__all__"),
        ("kcore.errors", "['NotCoordinatorError', 'LogTruncationError', 'MalformedResponseError', 'KafkaError']"),
    ],
)
def test_dir_lists_public_names_before_their_first_use(module: str, names: str) -> None:
    """A Python shell completes names with `dir`."""
    program = f"import {module}; print(sorted(set({names}) - set(dir({module}))), {names}[0] in vars({module}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"


@pytest.mark.parametrize("expression", ["kcore.errors.ImplausibleTimeWarning", "kcore.client.ClientSecurity.of_file"])
def test_a_program_needs_no_import_of_a_submodule(expression: str) -> None:
    """docs/python-api.md uses these names after `import kcore` alone."""
    done = subprocess.run([sys.executable, "-c", f"import kcore; {expression}"], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in kcore.__all__ if getattr(kcore, name, None) is None] == []
    assert {"KafkaError", "MemberEvent", "MemberState", "Protocol"} <= set(kcore.__all__)
