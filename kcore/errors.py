"""Errors that kcore raises.

Two families are kept apart. `KafkaError` is what a peer may do wrong: it carries the wire's error code and is turned
into a response in one place. `KcoreError` and its subclasses are for the program that embeds kcore: its settings, its
data folder, its disk. Malformed bytes are `kcore.protocol.DecodeError`; everything else is a bug of kcore's own.
"""

from pathlib import Path

from kcore.protocol.error_codes import ErrorCode


class KafkaError(Exception):
    """A request that is answered with an error code.

    Attributes:
        code: the code that goes on the wire.
        message: the text that goes with it where the response has room for one; None for the code's own.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.code.message if self.message is None else self.message}"


class KcoreError(Exception):
    """Base of every error that kcore raises to its caller."""


class ConfigError(KcoreError):
    """A setting that cannot be used: unknown, of the wrong type, out of bounds, or at odds with another."""


class EngineClosedError(KcoreError):
    """An engine was closed: it decides nothing any more, and who was parked in it gets no answer."""


class EngineInterruptedError(EngineClosedError):
    """An exception broke off a change of an engine's memory half way, for example a signal handler that raised.

    The engine decides nothing any more, and writes nothing: its memory may disagree with its log. Every acknowledged
    write is in the log. Close the engine, which releases the data folder, and open it again.
    """

    def __init__(self, what: str = "an exception interrupted the engine in the middle of a change") -> None:
        super().__init__(f"{what}: close it and open it again; every acknowledged write is in its log")


class ReentrantCallError(KcoreError, RuntimeError):
    """An engine was called by the thread that is inside it already: from a signal handler, or from a group's watcher.

    Such a call would wait for itself. A signal handler sets a flag or raises, and a watcher hands the event over.
    """

    def __init__(self) -> None:
        super().__init__(
            "this thread is inside the engine already: do not call the engine from a signal handler or from a watcher"
        )


class CloseConnectionError(KcoreError):
    """A request failed to which the protocol has no answer: only closing the connection can tell its client."""


class LogError(KcoreError):
    """A partition log could not be read or written; what was staged is discarded."""


class DataFolderError(KcoreError):
    """A data folder that cannot be opened.

    Attributes:
        path: the folder.
        what: what is wrong with it.
    """

    def __init__(self, path: str | Path, what: str) -> None:
        super().__init__(str(path), what)
        self.path = Path(path)
        self.what = what

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"
