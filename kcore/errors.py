"""The errors that kcore raises.

There are two families. `KafkaError` is an error of a client's request: it carries the protocol's error code and becomes
a response in one place. `KcoreError` and its subclasses are for the program that embeds kcore: its settings, its data
folder, its disk. Malformed bytes raise `kcore.protocol.DecodeError`. Any other exception is a bug in kcore.
"""

from pathlib import Path

from kcore.protocol.error_codes import ErrorCode


class KafkaError(Exception):
    """A refused request, which gets a response with an error code.

    Attributes:
        code: the error code of the response.
        message: the error message, for responses that have a field for it; None: the code's default message.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.code.message if self.message is None else self.message}"


class KcoreError(Exception):
    """The base of the errors that kcore raises to the embedding program."""


class ConfigError(KcoreError):
    """An invalid setting: unknown, of the wrong type, out of bounds, or in conflict with another setting."""


class EngineClosedError(KcoreError):
    """The engine is closed: it decides no more requests, and parked requests get no response."""


class EngineInterruptedError(EngineClosedError):
    """An exception interrupted the engine within a change of its memory, for example a signal handler that raised.

    The engine decides and writes nothing any more, because its memory may not match its log. Every acknowledged write
    is in the log. Close the engine, which releases the data folder, and open it again.
    """

    def __init__(self, what: str = "an exception interrupted the engine in the middle of a change") -> None:
        super().__init__(f"{what}: close it and open it again; every acknowledged write is in its log")


class ReentrantCallError(KcoreError, RuntimeError):
    """A thread that is inside the engine called it again: from a signal handler, or from a group's watcher.

    Such a call would wait for itself. Instead, let a signal handler set a flag or raise, and let a watcher pass the
    event to other code.
    """

    def __init__(self) -> None:
        super().__init__(
            "this thread is inside the engine already: do not call the engine from a signal handler or from a watcher"
        )


class CloseConnectionError(KcoreError):
    """A request without a response in the protocol failed: only closing the connection can notify its client."""


class LogError(KcoreError):
    """A partition log could not be read or written; staged records are discarded."""


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
