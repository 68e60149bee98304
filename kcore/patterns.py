"""Regular expressions from clients, compiled by RE2 (KIP-848, KIP-1152).

RE2 matches in time linear in the text, so no client's pattern can block the node. The limits in this module bound the
time and memory of the compilation, which runs on the thread that serves all clients.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

MAX_CHARACTERS: Final = 4_096
"""Maximum number of characters of a pattern."""

MAX_REPEATS: Final = 1_000
"""Maximum sum of the counts of all repetitions, `{n}` or `{m,n}`, in a pattern. RE2 limits only each single count."""

MAX_UNICODE_CLASSES: Final = 8
r"""Maximum number of classes like `\pL` in a pattern. RE2 expands each class to hundreds of ranges."""

MAX_PROGRAM_BYTES: Final = 1 << 20
"""Maximum size of a compiled pattern in bytes."""

MAX_COMPILED: Final = 64
"""Maximum number of compiled patterns in the cache. With `MAX_PROGRAM_BYTES` each, they take at most 64 MiB."""

MAX_NAMED_GROUPS: Final = 16
"""Maximum number of named groups in a pattern. RE2 always captures them, and the cost grows with their number squared.
"""

MAX_MATCH_STEPS: Final = 2_000_000
"""Maximum number of matching steps (`match_steps`) before the event loop reads the sockets again. 2 million steps take
about 40 ms.
"""

_REPETITION: Final = re.compile(r"\{(?:\d+,)?(\d{1,9})(?:,)?\}")
_UNICODE_CLASS: Final = re.compile(r"\\[pP]")


class PatternError(ValueError):
    """A pattern that RE2 refuses or that exceeds a limit. The message is the reason."""


@lru_cache(maxsize=MAX_COMPILED)
def compile_pattern(text: str) -> Any:
    """Compiles a pattern in RE2's syntax.

    Args:
        text: the pattern.

    Returns:
        A pattern object of the re2 module, to be used with `fullmatch`.

    Raises:
        PatternError: the pattern is invalid or exceeds a limit.
    """
    import re2  # noqa: PLC0415  # several megabytes: a node without patterns must not pay for them at the start

    reason = _beyond_limits(text)
    if reason is not None:
        raise PatternError(reason)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    options.never_capture = True  # captures would cost seconds for each match of a pattern with 5,000 groups
    try:
        compiled = re2.compile(text, options)
    except UnicodeError as error:
        raise PatternError(str(error)) from error
    except re2.error as error:
        cause = error.args[0] if error.args else error
        raise PatternError(cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause)) from error
    if compiled.groups > MAX_NAMED_GROUPS:
        raise PatternError(f"the pattern has {compiled.groups} named groups; the maximum is {MAX_NAMED_GROUPS}")
    return compiled


def match_steps(pattern: Any, text: str) -> int:
    """Returns the steps of RE2's slowest matching method: bytes of the text times instructions of the program.

    RE2 uses this method if the states of a pattern do not fit into `MAX_PROGRAM_BYTES`. A step then takes up to 20 ns.

    Args:
        pattern: the result of `compile_pattern`.
        text: the text to match.
    """
    size: int = max(pattern.programsize, 1)
    return size * (len(text) if text.isascii() else len(text.encode(errors="replace")))


def _beyond_limits(text: str) -> str | None:
    """Returns a text that describes the limit that a pattern exceeds, or None.

    It does not interpret escapes, so an escaped `{3}` also counts as a repetition.
    """
    if len(text) > MAX_CHARACTERS:
        return f"the pattern has {len(text)} characters; the maximum is {MAX_CHARACTERS}"
    repeats = sum(int(count) for count in _REPETITION.findall(text))
    if repeats > MAX_REPEATS:
        return f"the repetitions of the pattern add up to {repeats}; the maximum is {MAX_REPEATS}"
    classes = len(_UNICODE_CLASS.findall(text))
    if classes > MAX_UNICODE_CLASSES:
        return f"the pattern has {classes} Unicode classes; the maximum is {MAX_UNICODE_CLASSES}"
    return None
