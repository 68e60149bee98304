"""The log of a process: one line for each event, for people or for programs.

A message names the event in words, and the affected objects in fields:

    logger.info("the member was removed: %s", reason, extra=fields(group=group_id, member=member_id))

Fields are names, ids, counts and codes. Contents from clients (records, metadata, assignments) and credentials are
never logged.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import time
import traceback
import weakref
from typing import IO, Any, Final

from kcore.printable import escaped

FORMATS: Final = ("text", "json")
MAX_TEXT: Final = 1_000  # characters of a message or of a field: names come from clients, and may be long

_INVISIBLE: Final = (0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
"""Codes of the characters that end a line, change the writing direction, or are invisible."""

_ESCAPES: Final = {code: escaped(chr(code)) for code in (*range(32), *range(127, 160), *_INVISIBLE)} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_TRACE_ESCAPES: Final = {code: text for code, text in _ESCAPES.items() if chr(code) not in "\n\t"}


def fields(**values: Any) -> dict[str, Any]:
    """Returns the `extra` argument of a logging call, with the objects that the event is about.

    Args:
        values: by name: `connection`, `client_id`, `group`, `member`, `topic`, `partition`, `api`, `error`, ….
    """
    return {"fields": values}


LINES_BURST: Final = 20
"""Number of lines that a limited logger may write for one message. Each line reduces this quota by one, and each second
increases it by one, up to this number.
"""
MAX_MESSAGES: Final = 100
"""Maximum number of messages whose lines a limited logger counts. A new message then replaces the oldest message."""


class LineLimit(logging.Filter):
    """A filter that limits the log lines caused by clients, so that a hostile client cannot fill the disk.

    It counts lines by their message text before the placeholders are filled in. After some lines of a message were
    suppressed, the next line of the message also reports their number. Lines at level debug are not limited.
    """

    def __init__(self) -> None:
        super().__init__()
        self._by_message: dict[str, list[float]] = {}  # remaining lines, time of the last line in s, suppressed lines

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns True if the logger should write the line."""
        if record.levelno <= logging.DEBUG:
            return True
        message = str(record.msg)
        state = self._by_message.get(message)
        if state is None:
            if len(self._by_message) >= MAX_MESSAGES:
                del self._by_message[next(iter(self._by_message))]
            state = self._by_message[message] = [float(LINES_BURST), record.created, 0]
        state[0] = min(LINES_BURST, state[0] + max(0.0, record.created - state[1]))
        state[1] = record.created
        if state[0] < 1:
            state[2] += 1
            return False
        state[0] -= 1
        if state[2]:
            record.msg = f"{record.getMessage()} ({int(state[2])} lines like this one suppressed)"
            record.args = None
            state[2] = 0
        return True

    def reset(self) -> None:
        """Sets all counts of lines to zero."""
        self._by_message.clear()


_limits: weakref.WeakSet[LineLimit] = weakref.WeakSet()


def limited_logger(name: str) -> logging.Logger:
    """Returns the logger of a component whose lines are caused by requests of clients; see `LineLimit`.

    Args:
        name: the logger's name.
    """
    logger = logging.getLogger(name)
    if not any(isinstance(each, LineLimit) for each in logger.filters):
        limit = LineLimit()
        logger.addFilter(limit)
        _limits.add(limit)
    return logger


def reset_limits() -> None:
    """Sets the counts of all limited loggers to zero.

    Tests call this function, so that no test depends on an earlier test.
    """
    for limit in list(_limits):
        limit.reset()


def log_failure(logger: logging.Logger, error: BaseException, message: str, *values: object) -> None:
    """Logs an error that was handled. It never raises an `Exception` itself.

    A handler that restores state must run to its end, even if there is no memory for a line of the log.

    Args:
        logger: the component's logger.
        error: an exception, whose traceback is logged with the message.
        message: the text of the line, with `%` placeholders.
        values: the values of the placeholders.
    """
    try:  # noqa: SIM105 - `suppress` would need memory
        logger.error(message, *values, exc_info=error)
    except Exception:
        pass


def next_step(error: BaseException) -> str:
    """Returns the end of a log line about an unexpected error: the advice to the operator; "" after an interrupt."""
    if isinstance(error, MemoryError):
        return "; the process is out of memory: reduce the load, or add memory to the machine"
    return "; please report the error" if isinstance(error, Exception) else ""


def log_name(subject: object) -> str:
    """Returns the name of a function, a generator or another object for log lines, such as `Periodic._run`.

    The name of an object of kcore is its `repr` if its class defines `__repr__`. The name of any other object is the
    name of its class, because the `repr` of a user's object may contain credentials. The function never raises an
    `Exception`: handlers of errors call it.

    Args:
        subject: the object to name.
    """
    with contextlib.suppress(Exception):
        while isinstance(subject, functools.partial):
            subject = subject.func
        name = getattr(subject, "__qualname__", None)
        if isinstance(name, str):
            return name
        own = type(subject).__module__.partition(".")[0] in ("kcore", "kcore_ext")
        return repr(subject) if own and type(subject).__repr__ is not object.__repr__ else type(subject).__qualname__
    return "an unknown object"


class TextFormatter(logging.Formatter):
    """A formatter that writes one line for each event, followed by the indented traceback, if there is one.

    Example: `2026-01-31 12:00:00.000 INFO kcore.server: message  group=g connection=4`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the event's line."""
        line = f"{_time(record)} {record.levelname} {record.name}: {_one_line(record.getMessage())}"
        values = getattr(record, "fields", None)
        if values:
            line += "  " + " ".join(f"{name}={_value(value)}" for name, value in values.items())
        trace = _trace(record)
        if trace:
            line += "\n    " + trace.translate(_TRACE_ESCAPES).rstrip().replace("\n", "\n    ")
        return line


class JsonFormatter(logging.Formatter):
    """A formatter that writes each event as a JSON object on one line.

    The object has the members time, level, logger, message, the event's fields, and `exception` with the traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the event's line."""
        event: dict[str, Any] = {
            "time": _time(record).replace(" ", "T") + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        for name, value in (getattr(record, "fields", None) or {}).items():
            event.setdefault(name, value if isinstance(value, int | float | bool | None) else _cut(str(value)))
        trace = _trace(record)
        if trace:
            event["exception"] = trace
        return json.dumps(event)


_LOST_WRITES: Final = frozenset({"socket.send() raised exception.", "SSL connection is closed"})
"""Messages of asyncio and uvloop that warn about a write to a lost connection. Clients can cause many of them."""


def _quieten(record: logging.LogRecord) -> bool:
    """Lowers the level of asyncio's warnings about lost connections to debug. Returns True if the line is written."""
    if record.msg not in _LOST_WRITES:
        return True
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return logging.getLogger().isEnabledFor(logging.DEBUG)


def configure(stream: IO[str], level: str, form: str = "text") -> None:
    """Sends the log of the whole process to a stream.

    Args:
        stream: a text stream, such as `sys.stderr`.
        level: the lowest level that is written: debug, info, warning or error.
        form: "text" or "json".
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.getLogger("asyncio").addFilter(_quieten)  # adding it again changes nothing
    limited_logger("asyncio")  # after `_quieten`, which compares whole messages


def _time(record: logging.LogRecord) -> str:
    """Returns the time of an event in UTC, to the millisecond."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}"


def _trace(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return "".join(traceback.format_exception(*record.exc_info))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def _one_line(text: str) -> str:
    return _cut(text).translate(_ESCAPES)


def _value(value: Any) -> str:
    text = _one_line(str(value))
    return json.dumps(text, ensure_ascii=False) if not text or " " in text or '"' in text or "=" in text else text
