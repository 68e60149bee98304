"""Patterns of transactional ids (KIP-1152): RE2's syntax, matched in time that grows with the id and not beyond.

Kafka matches with RE2, which has no look-around and no references to groups, so that no pattern of a client can keep
the server busy. Python's `re` gives no such promise. This compiles a pattern to a program of a few instructions and
runs all its threads at once over the text (Thompson 1968, Pike's machine without captures).
"""

from __future__ import annotations

from typing import NamedTuple

MAX_DEPTH = 100
"""How deep groups may be nested."""

MAX_REPEAT = 1_000
"""The largest count in `{n,m}`, as in RE2."""

MAX_PROGRAM = 20_000
"""How many instructions a pattern may become."""


class PatternError(ValueError):
    """A pattern that RE2 would not take."""


class CharSet(NamedTuple):
    """Which characters one place of a pattern takes.

    Attributes:
        ranges: (first, last) of each run of characters.
        negated: all but these.
    """

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def holds(self, char: str) -> bool:
        """Whether it takes `char`."""
        return any(first <= char <= last for first, last in self.ranges) is not self.negated


DIGIT = (("0", "9"),)
WORD = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
SPACE = (("\t", "\n"), ("\f", "\r"), (" ", " "))
CLASSES: dict[str, CharSet] = {
    "d": CharSet(DIGIT),
    "D": CharSet(DIGIT, True),
    "w": CharSet(WORD),
    "W": CharSet(WORD, True),
    "s": CharSet(SPACE),
    "S": CharSet(SPACE, True),
}
ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
ANY = CharSet((("\n", "\n"),), True)

# What a program is made of: a CharSet takes a character; the rest take none.
Split = tuple[int, int]
BEGIN, END, MATCH = "begin", "end", "match"
Instruction = CharSet | Split | str


class Pattern:
    """A compiled pattern.

    Args:
        text: the pattern.

    Raises:
        PatternError: it is none.
    """

    __slots__ = ("_program",)

    def __init__(self, text: str) -> None:
        self._program = [*_Parser(text).parse(), MATCH]

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` matches."""
        threads = self._reach({0}, 0, len(text))
        for position, char in enumerate(text):
            program = self._program
            ahead = set()
            for at in threads:
                instruction = program[at]
                if isinstance(instruction, CharSet) and instruction.holds(char):
                    ahead.add(at + 1)
            if not ahead:
                return False
            threads = self._reach(ahead, position + 1, len(text))
        return len(self._program) - 1 in threads

    def _reach(self, starts: set[int], position: int, end: int) -> set[int]:
        """Every instruction that is reached from `starts` without taking a character."""
        program = self._program
        reached: set[int] = set()
        waiting = list(starts)
        while waiting:
            at = waiting.pop()
            if at in reached:
                continue
            reached.add(at)
            instruction = program[at]
            if isinstance(instruction, CharSet) or instruction is MATCH:
                continue
            if isinstance(instruction, tuple):
                waiting += [at + step for step in instruction]
            elif position == (0 if instruction is BEGIN else end):
                waiting.append(at + 1)
        return reached


class _Parser:
    """Reads a pattern: alternatives of sequences of repeated atoms. Steps of a Split are relative to it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> list[Instruction]:
        program = self._alternatives()
        if self._at < len(self._text):
            raise PatternError(f"unexpected {self._text[self._at]!r} at {self._at}")
        return program

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise PatternError("the pattern ends too early")
        self._at += 1
        return char

    def _take(self, prefix: str) -> bool:
        if self._text.startswith(prefix, self._at):
            self._at += len(prefix)
            return True
        return False

    def _alternatives(self) -> list[Instruction]:
        program = self._sequence()
        while self._take("|"):
            other = self._sequence()
            skip = len(other) + 1
            program = [(1, len(program) + 2), *program, (skip, skip), *other]
            _check_size(program)
        return program

    def _sequence(self) -> list[Instruction]:
        program: list[Instruction] = []
        while (char := self._peek()) and char not in "|)":
            program += self._repeated()
            _check_size(program)
        return program

    def _repeated(self) -> list[Instruction]:
        atom = self._atom()
        if (counts := self._counts()) is None:
            return atom
        low, high = counts
        self._take("?")  # lazy or greedy: whether the whole matches is the same
        if self._counts() is not None:
            raise PatternError(f"nothing to repeat at {self._at}")
        program = atom * low
        _check_size(program)
        if high is None:
            program += [(1, len(atom) + 2), *atom, (-len(atom) - 1, -len(atom) - 1)]
        else:
            for _ in range(high - low):
                program += [(1, len(atom) + 1), *atom]
                _check_size(program)
        return program

    def _counts(self) -> tuple[int, int | None] | None:
        char = self._peek()
        if char and char in "*+?":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        end = self._text.find("}", self._at)
        if char != "{" or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit() and (not high or (high.isascii() and high.isdigit()))):
            return None  # a brace that counts nothing stands for itself
        least = int(low[:5])
        most = least if not comma else int(high[:5]) if high else None
        if least > MAX_REPEAT or (most is not None and not least <= most <= MAX_REPEAT):
            raise PatternError(f"a bad count at {self._at}")
        self._at = end + 1
        return least, most

    def _atom(self) -> list[Instruction]:
        char = self._next()
        if char in "*+?":
            raise PatternError(f"nothing to repeat at {self._at - 1}")
        if char == "(":
            return self._group()
        if char == "[":
            return [self._bracket()]
        if char == ".":
            return [ANY]
        if char == "^":
            return [BEGIN]
        if char == "$":
            return [END]
        if char == "\\":
            return self._escape()
        return [CharSet(((char, char),))]

    def _group(self) -> list[Instruction]:
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                end = self._text.find(">", self._at)
                if end < 0 or not self._text[self._at : end].isidentifier():
                    raise PatternError(f"a bad name of a group at {self._at}")
                self._at = end + 1
            elif not self._take(":"):
                raise PatternError(f"an unknown kind of group at {self._at}")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PatternError("groups are nested too deep")
        program = self._alternatives()
        self._depth -= 1
        if not self._take(")"):
            raise PatternError("a group is not closed")
        return program

    def _escape(self) -> list[Instruction]:
        char = self._next()
        if char == "A":
            return [BEGIN]
        if char == "z":
            return [END]
        return [self._escaped(char)]

    def _escaped(self, char: str) -> CharSet:
        """What stands behind a backslash, within brackets or without."""
        if char in CLASSES:
            return CLASSES[char]
        if char in ESCAPES:
            return CharSet(((ESCAPES[char], ESCAPES[char]),))
        if char == "x":
            digits = self._text[self._at : self._at + 2]
            try:
                char = chr(int(digits, 16))
            except ValueError:
                raise PatternError(f"a bad code at {self._at}") from None
            self._at += 2
        elif char.isascii() and char.isalnum():
            raise PatternError(f"an unknown escape \\{char} at {self._at - 2}")
        return CharSet(((char, char),))

    def _bracket(self) -> CharSet:
        negated = self._take("^")
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            found = self._member()
            if found.negated or len(found.ranges) != 1 or found.ranges[0][0] != found.ranges[0][1]:
                ranges += _positive(found)
                continue
            low = high = found.ranges[0][0]
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in {"]", ""}:
                self._at += 1
                last = self._member()
                if last.negated or len(last.ranges) != 1 or last.ranges[0][0] != last.ranges[0][1]:
                    raise PatternError(f"a bad range at {self._at}")
                high = last.ranges[0][0]
                if high < low:
                    raise PatternError(f"a bad range at {self._at}")
            ranges.append((low, high))
        self._at += 1
        return CharSet(tuple(ranges), negated)

    def _member(self) -> CharSet:
        char = self._next()
        return self._escaped(self._next()) if char == "\\" else CharSet(((char, char),))


def _positive(found: CharSet) -> list[tuple[str, str]]:
    """The ranges of a set, turned around if it is negated."""
    if not found.negated:
        return list(found.ranges)
    ranges = []
    low = "\0"
    for first, last in sorted(found.ranges):
        if low < first:
            ranges.append((low, chr(ord(first) - 1)))
        low = chr(ord(last) + 1)
    ranges.append((low, "\U0010ffff"))
    return ranges


def _check_size(program: list[Instruction]) -> None:
    if len(program) > MAX_PROGRAM:
        raise PatternError("the pattern is too large")
