"""The errors that kcore raises.

There are two families. `KafkaError` is an error of a client's request and carries the protocol's error code. The server
turns it into an error response. The client API raises the code's own class, such as `FencedMemberEpochError`.
`KcoreError` and its subclasses are for the program that embeds kcore: its settings, its data folder, its disk.
Malformed bytes raise `kcore.protocol.DecodeError`. Any other exception is a bug in kcore.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kcore.protocol.error_codes import RETRIABLE, ErrorCode
from kcore.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kcore.errors.by_code import *  # noqa: F403
    from kcore.errors.malformed import MalformedResponseError as MalformedResponseError
    from kcore.errors.truncation import LogTruncationError as LogTruncationError

_SUFFIXES = ("_EXCEPTION", "_ERROR")
_UNKNOWN_CODE = "error code {} of a newer server, unknown to this version of kcore"


def class_name(code: ErrorCode) -> str:
    """Returns the name of the exception class of a code: FENCED_MEMBER_EPOCH is FencedMemberEpochError."""
    name = code.name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return "".join(word.capitalize() for word in name.split("_")) + "Error"


class KafkaError(Exception):
    """The error of a refused request. The server sends the error code in the response.

    `kcore.errors` has a subclass for each code, for example `kcore.errors.FencedMemberEpochError`. The client API
    raises these subclasses; the engine's own code raises this class with a code.

    Attributes:
        code: the error code of the response.
        message: the error message, for responses that have a field for it; None: the code's default message.
        partitions: the partitions that were refused with this code, if the error concerns partitions.
    """

    CODE: ClassVar[ErrorCode]

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.partitions: tuple[TopicPartition, ...] = ()

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed later."""
        return self.code in RETRIABLE

    @classmethod
    def of(cls, code: int, message: str | None = None, partitions: Iterable[TopicPartition] = ()) -> KafkaError:
        """Creates an exception of the code's own class.

        Args:
            code: the error code; a code that this version does not know becomes UNKNOWN_SERVER_ERROR.
            message: the server's message, if it sent one.
            partitions: the partitions that the error concerns.
        """
        from kcore.errors.by_code import BY_CODE  # noqa: PLC0415 - 130 classes: only a failed request needs them

        known = BY_CODE.get(code)
        if known is None:
            message = _UNKNOWN_CODE.format(code) if message is None else f"{_UNKNOWN_CODE.format(code)}: {message}"
            known = BY_CODE[ErrorCode.UNKNOWN_SERVER_ERROR]
        error = known(message)
        error.partitions = tuple(partitions)
        return error

    def __str__(self) -> str:
        text = f"{self.code.name}: {self.message or self.code.message}"
        if not self.partitions:
            return text
        shown = ", ".join(map(str, self.partitions[:_MAX_SHOWN]))
        more = len(self.partitions) - _MAX_SHOWN
        return f"{shown}{f' and {more} more' if more > 0 else ''}: {text}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


_MAX_SHOWN = 10


def _restored(kind: type[BaseException], args: tuple[Any, ...], attributes: Mapping[str, Any]) -> BaseException:
    """Creates a copy of an exception, for `pickle` and `copy`.

    Python would call the class with `args` instead. Many classes have other parameters, from which they make their
    text.
    """
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class PartitionErrors(ExceptionGroup[KafkaError]):
    """An exception group for a request that failed for some of its partitions, or with several error codes.

    Attributes:
        errors: the error of each refused partition. For all other partitions the request succeeded.
    """

    errors: Mapping[TopicPartition, KafkaError]

    def __new__(cls, message: str, exceptions: Sequence[KafkaError]) -> PartitionErrors:
        """Creates the exception group. Each error lists the partitions that it concerns."""
        self = super().__new__(cls, message, exceptions)
        self.errors = {partition: error for error in exceptions for partition in error.partitions}
        return self

    def derive(self, excs: Sequence[Any]) -> Any:
        """Returns an exception group of the same class with the given errors. Python calls it for `except*`."""
        return type(self)(self.message, excs)


def raise_partition_errors(
    action: str, codes: Mapping[TopicPartition, int | tuple[int, str | None]], total: int
) -> None:
    """Raises an exception if a response has an error code for any partition.

    Args:
        action: the requested operation, such as "commit of group 'g'", for the message of a `PartitionErrors`.
        codes: partition -> its error code, or the tuple (error code, server's message). Code 0 means success, and so
            does a missing partition.
        total: the number of partitions that the request named.

    Raises:
        KafkaError: all partitions were refused with the same code; raised as the code's own class.
        PartitionErrors: some partitions were refused, or the codes differ.
    """
    by_code: dict[tuple[int, str | None], list[TopicPartition]] = {}
    for partition, value in codes.items():
        code, message = value if isinstance(value, tuple) else (value, None)
        if code:
            by_code.setdefault((code, message), []).append(partition)
    if not by_code:
        return
    errors = [KafkaError.of(code, message, partitions) for (code, message), partitions in by_code.items()]
    refused = sum(map(len, by_code.values()))
    if len(errors) == 1 and refused == total:
        raise errors[0]
    raise PartitionErrors(f"{action}: {refused} of {total} partitions were refused", errors)


class KcoreError(Exception):
    """The base of the errors that kcore raises to the embedding program.

    Refused requests raise `KafkaError` and `PartitionErrors` instead. A program that must keep running while no server
    is available catches `KafkaError`, `ConnectionClosedError` (also an `OSError`), and `TimeoutError`.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


class ConfigError(KcoreError, ValueError):
    """An invalid setting or argument: unknown, of the wrong type, out of bounds, or in conflict with another
    setting.
    """


class ImplausibleTimeWarning(UserWarning):
    """A time in seconds that is so large that the caller probably meant milliseconds."""


class EngineClosedError(KcoreError):
    """The engine is closed. It decides no further requests, and parked requests receive no response."""


class EngineInterruptedError(EngineClosedError):
    """The engine stopped, because an exception interrupted it while it changed its state in memory.

    For example, a signal handler raised the exception. The state in memory may no longer match the log, so the engine
    decides and writes no more requests. Every acknowledged write is in the log. Close the engine, which releases the
    data folder, and open it again.
    """

    def __init__(self, what: str = "an exception interrupted a change of the engine's state") -> None:
        super().__init__(f"{what}: close the engine and open it again; every acknowledged write is in its log")


class ReentrantCallError(KcoreError, RuntimeError):
    """A call that could never return, because the calling code itself runs inside the engine or the member.

    This error has two causes:

    - A signal handler or a group's watcher called the engine while its thread was running the engine's code.
    - A listener or another callback of a member closed the member or its node.

    Instead, let a signal handler set a flag or raise an exception. Let a watcher or a listener pass the event to code
    that runs later.
    """

    def __init__(
        self,
        text: str = "this thread is inside the engine already: do not call the engine from a signal handler or from a "
        "watcher",
    ) -> None:
        super().__init__(text)


class ConcurrentCallError(KcoreError, RuntimeError):
    """Two tasks or threads waited for the records of one consumer, or for the events of one member, at the same time.

    The second call raises this error. Each call marks the records or the event of the previous call as processed. Two
    calls at the same time would therefore mark records that the program has not processed. Let one task or thread poll,
    and pass records to the others. Any task or thread may close the consumer.

    An asynchronous node also raises this error for calls from other event loops and threads than its own. These callers
    must use `asyncio.run_coroutine_threadsafe`.
    """


class CloseConnectionError(KcoreError):
    """A failed request for which the protocol has no error response. The server closes the connection instead."""


class ConnectionClosedError(KcoreError, ConnectionError):
    """The server closed the connection without a response, or is unreachable (also a `ConnectionError`).

    Attributes:
        retriable: False if a retry cannot succeed: TLS was refused, or the listener seems to require another
            `security.protocol`. Calls of a node do not repeat their request after such an error.
    """

    retriable: bool = True


class AuthenticationError(KcoreError):
    """A client or a server failed to authenticate.

    The text may be sent to the peer and logged: it must not contain any part of a token, nor reveal whether a user
    exists.

    Args:
        text: the text for the peer and the log.
        reason: a more precise reason, for the log only; it must not contain any part of a token either.
    """

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class CommitFailedError(KcoreError):
    """A member's commit was refused because the member has left the group, was fenced, or lost its partitions.

    The member joins again automatically. Its partitions may have new owners, so do not repeat the commit. A transaction
    that contains the commit can only be aborted. If the coordinator refused the commit, its error is the cause
    (`__cause__`) of this exception.
    """


class MemberClosedError(KcoreError):
    """The member has left its group."""


class LogError(KcoreError):
    """A partition log could not be read or written.

    After a failed write, kcore discards the staged records, which are the records that were waiting for this write.
    """


class DataFolderError(KcoreError):
    """A data folder that cannot be opened.

    Attributes:
        path: the folder.
        what: the problem with the folder.
    """

    def __init__(self, path: str | Path, what: str) -> None:
        super().__init__(str(path), what)
        self.path = Path(path)
        self.what = what

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


if not TYPE_CHECKING:  # type checkers read the names from the import above

    def __getattr__(name: str) -> Any:
        """Imports the class of an error code at its first use."""
        if name == "LogTruncationError":
            from kcore.errors.truncation import LogTruncationError  # noqa: PLC0415

            return LogTruncationError
        if name == "MalformedResponseError":
            from kcore.errors.malformed import MalformedResponseError  # noqa: PLC0415

            return MalformedResponseError
        if name.endswith("Error") and not name.startswith("_"):
            from kcore.errors import by_code  # noqa: PLC0415

            found = getattr(by_code, name, None)
            if found is not None:
                globals()[name] = found
                return found
        builtin = f"; {name} is a class of Python itself" if hasattr(builtins, name) else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{builtin}", name=name)

    def __dir__() -> list[str]:
        """Returns all names, including classes of error codes that are not imported yet."""
        from kcore.errors import by_code  # noqa: PLC0415

        coded = {kind.__name__ for kind in by_code.BY_CODE.values()}
        return sorted({*globals(), *coded, "LogTruncationError", "MalformedResponseError"})
