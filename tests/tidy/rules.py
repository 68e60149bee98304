"""The writing rules that a program can check, and the files to which they apply."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(__file__).with_name("allowed.json")
GLOSSARY = ROOT / "docs" / "glossary.md"
TABLE_LIMIT = 40

QUESTION_WORDS = frozenset(
    {"How", "Nobody", "Nothing", "What", "Whatever", "Where", "Whether", "Which", "Who", "Whoever", "Whose"}
)
"""Words with which no docstring may begin, because they do not begin a verb phrase or a noun phrase."""

INDEFINITE = re.compile(r"\b(?:nobody|somebody|whoever|everybody|whatever)\b", re.IGNORECASE)
"""Pattern of indefinite pronouns, which no docstring may contain. The text must name a component instead."""

VOCABULARY = re.compile(
    r"\b(?:facts?|told|wanted|flights?|flies|bystanders?|patience|landed|landing|take[s]? off|quick|usual|plainly)\b",
    re.IGNORECASE,
)
"""Pattern of further forbidden words. The text must use a term of the field instead. See docs/glossary.md."""

RETIRED_WORDS = re.compile(r"\b(?:answer(?:s|ed|ing)?|asked|said|anew|goes on|handed out|one's own)\b", re.IGNORECASE)
"""Pattern of retired words, which the glossary has replaced, for example by "response". See docs/glossary.md."""

RETIRED_NAMES = re.compile(
    r"(?:answer_\w+|\w+_answers?|Answers|told|Asked|Facts?|FACTS?|LEFT_FOR_A_WHILE|Flight\w*|Bystanders?|PlainLine|\w+_plainly)"
)
"""Pattern of forbidden names of functions, classes and variables. See docs/glossary.md for the terms to use."""

RULES = ("question", "indefinite", "vocabulary", "retired")


@cache
def tracked_files(*suffixes: str) -> list[Path]:
    """Lists the files of the repository with the given suffixes, without those of tests/golden and bench/peers."""
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    paths = [Path(name) for name in names]
    skipped = ("tests/golden/", "bench/peers/")
    return [
        ROOT / path
        for path in paths
        if path.suffix in suffixes and not str(path).startswith(skipped) and (ROOT / path).is_file()
    ]


@cache
def text_of(path: Path) -> str:
    """Reads a file. Caches the text."""
    return path.read_text()


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Lists the modules, classes and functions of a Python file or stub."""
    found: list[ast.AST] = [ast.parse(text_of(path))]
    for node in found:  # grows: statements contain statements, and expressions contain no functions with docstrings
        children = ast.iter_child_nodes(node)
        found.extend(child for child in children if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case))
    return [
        node for node in found if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@cache
def docstrings() -> list[tuple[str, int, str]]:
    """Lists file, line and text of each docstring in Python files and stubs."""
    found = []
    gc.disable()  # the collector would search through all syntax trees several times, which takes longer than parsing
    try:
        for path in tracked_files(".py", ".pyi"):
            for node in nodes_of(path):
                text = ast.get_docstring(node)
                if text:
                    found.append((str(path.relative_to(ROOT)), getattr(node, "lineno", 1), text.strip()))
    finally:
        gc.freeze()  # the cached syntax trees
        gc.enable()
    return found


def broken_words(rule: str, text: str) -> list[str]:
    """Returns the words of a docstring that break a rule; for the rule "question", the first line of the docstring."""
    return list(_breaks(rule, text.strip())) if text.strip() else []


def _breaks(rule: str, text: str) -> Iterator[str]:
    first_line = text.splitlines()[0]
    if rule == "question" and re.split(r"\W", text, maxsplit=1)[0] in QUESTION_WORDS:
        yield first_line
    elif rule == "indefinite":
        yield from (match.group(0) for match in INDEFINITE.finditer(text))
    elif rule == "vocabulary":
        yield from (match.group(0) for match in VOCABULARY.finditer(text))
    elif rule == "retired":
        yield from (match.group(0) for match in RETIRED_WORDS.finditer(text))


def violations(rule: str) -> dict[str, list[tuple[int, str]]]:
    """Finds the violations of a rule.

    Args:
        rule: one of `RULES`.

    Returns:
        File name -> pairs of the docstring's line number and a word that breaks the rule.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for path, line, text in docstrings():
        if path.startswith("tests/tidy/"):
            continue
        for broken in _breaks(rule, text):
            found.setdefault(path, []).append((line, broken))
    return found


def functions_without_verb() -> list[str]:
    """Lists the functions whose docstring does not begin with a verb in the third person.

    Leaves out tests, whose docstrings describe a situation, and properties, whose docstrings name a value.
    """
    return [
        f"{path}: {name}: {first}"
        for path, name, text in _function_docstrings()
        if not re.fullmatch(r"[A-Z][a-z-]+s[:;,.]?", first := text.split(maxsplit=1)[0])
    ]


def _function_docstrings() -> Iterator[tuple[str, str, str]]:
    """Yields file, name and docstring of each function, without tests and properties."""
    for path in tracked_files(".py", ".pyi"):
        name = str(path.relative_to(ROOT))
        if name.startswith("tests/"):
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
                text = ast.get_docstring(node)
                if text and not is_property:
                    yield f"{name}:{node.lineno}", node.name, text


def classes_without_noun() -> list[str]:
    """Lists the classes of `kcore` and `kcore_ext` whose docstring begins with a verb.

    A word counts as a verb if the docstring of a function begins with it. Some plural nouns, for example "Records", are
    spelled like such a verb. They need an article: "The records of …", not "Records of …".
    """
    verbs = {"Never", "Raised"} | _verbs_of_functions()
    return [
        f"{path}: {name}: {first}"
        for path, name, text in _class_docstrings()
        if (first := re.split(r"\W", text, maxsplit=1)[0]) in verbs
    ]


def _verbs_of_functions() -> set[str]:
    texts = [text for _, _, text in _function_docstrings()]
    return {match[0] for text in texts if (match := re.match(r"[A-Z][a-z-]+s\b", text))}


def _class_docstrings() -> Iterator[tuple[str, str, str]]:
    for path in tracked_files(".py", ".pyi", ".pyx"):
        name = str(path.relative_to(ROOT))
        if not name.startswith(("kcore/", "kcore_ext/")):
            continue
        if path.suffix == ".pyx":
            for match in re.finditer(r'^(?:cdef )?class (\w+)[^:]*:\n +"""(\w+)', text_of(path), re.MULTILINE):
                yield name, match[1], match[2]
        else:
            for node in nodes_of(path):
                if isinstance(node, ast.ClassDef) and (text := ast.get_docstring(node)):
                    yield name, node.name, text


def compiled_docstrings() -> Iterator[tuple[str, str]]:
    """Yields file and text of each docstring in compiled modules."""
    for path in tracked_files(".pyx", ".pxd"):
        for match in re.finditer(r'^ *r?"""(.*?)"""', text_of(path), re.MULTILINE | re.DOTALL):
            yield str(path.relative_to(ROOT)), match[1]


def comments() -> Iterator[tuple[str, str]]:
    """Yields location and text of each comment line in Python files, stubs and compiled modules."""
    for path in tracked_files(".py", ".pyi", ".pyx", ".pxd"):
        for number, line in enumerate(text_of(path).splitlines(), 1):
            match = re.search(r"(?:^|\s)#:? (.*)$", line)
            if match is not None:
                yield f"{path.relative_to(ROOT)}:{number}", match[1]


def is_retired(name: str) -> bool:
    """Returns True for a retired name, which the glossary has replaced by another term."""
    return RETIRED_NAMES.fullmatch(name) is not None


def glossary_terms() -> tuple[list[str], list[str]]:
    """Reads the terms of the glossary's two tables: Kafka's and kcore's own."""
    tables: list[list[str]] = []
    for line in GLOSSARY.read_text().splitlines():
        if line.startswith("| term"):
            tables.append([])
        elif line.startswith("| ") and tables:
            tables[-1].append(line.split("|")[1].strip())
    kafka, own = tables
    return kafka, own
