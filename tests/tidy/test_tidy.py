"""Checks of the source text itself: docstrings, vocabulary, sizes, commit subjects, private paths.

`allowed.json` contains the permitted number of violations for each old file. A file may have fewer violations than its
number but not more. A file without a number must have none. `python -m tests.tidy.update` lowers the numbers.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.tidy.rules import (
    ALLOWED,
    RETIRED_WORDS,
    ROOT,
    RULES,
    TABLE_LIMIT,
    broken_words,
    classes_without_noun,
    comments,
    compiled_docstrings,
    functions_without_verb,
    glossary_terms,
    is_retired,
    nodes_of,
    text_of,
    tracked_files,
    violations,
)

MAX_FILE_LINES = 620
"""Maximum number of lines of a file. The intended limit is 600 lines, but a slightly longer coherent module need not be
split.
"""
GENERATED = "Made by tools/"
"""The mark in the first line of a generated file. The limits do not apply to such a file, because people need not read
it.
"""
MAX_FUNCTION_LINES = 70
MAX_SUBJECT_LENGTH = 72
FIRST_CHECKED_COMMIT = "6916a37"
"""The commit after which the rule for commit subjects applies."""
SUBJECT = re.compile(r"^(?:[a-z0-9_.,/ -]+: \S|Merge |Revert ).*")
PRIVATE_PATH = re.compile(r"(?<![\w.])/(?:work|farm|root)/\w+|\.\./shared")
VERSION_CONSTANT = re.compile(r"^_?(?:NAMES|COMMIT|OFFSETS|METADATA)_VERSION\b.*=\s*\d", re.MULTILINE)

TOP_LEVEL = {
    *(".ci", "bench", "docs", "examples", "kcore", "kcore_ext", "pyspark_kcore", "tests", "tools"),
    *(".gitignore", "MANIFEST.in", "Makefile", "pyproject.toml", "setup.py"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"),
}
SOURCES = tracked_files(".py", ".pyi", ".pyx", ".pxd")


@pytest.mark.parametrize("rule", RULES)
def test_docstrings_have_no_more_violations_than_allowed(rule: str) -> None:
    allowed = json.loads(ALLOWED.read_text())[rule]
    found = violations(rule)
    worse = {
        path: [f"{line}: {text}" for line, text in rows]
        for path, rows in found.items()
        if len(rows) > allowed.get(path, 0)
    }
    assert not worse


def test_allowed_numbers_name_existing_files_and_are_not_too_high() -> None:
    for rule, numbers in json.loads(ALLOWED.read_text()).items():
        found = violations(rule)
        stale = {path: count for path, count in numbers.items() if count > len(found.get(path, ()))}
        assert not stale, f"run python -m tests.tidy.update: {rule}"


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    assert functions_without_verb() == []


def test_docstrings_of_classes_name_the_class() -> None:
    assert classes_without_noun() == []


def test_docstrings_of_compiled_modules_break_no_rule() -> None:
    texts = list(compiled_docstrings())
    assert len(texts) > 1_000
    assert not [(path, rule, words) for path, text in texts for rule in RULES if (words := broken_words(rule, text))]


def test_comments_use_no_word_that_the_glossary_has_replaced() -> None:
    assert not [(where, text) for where, text in comments() if RETIRED_WORDS.search(text)]


def test_glossary_has_at_most_forty_terms_in_order() -> None:
    kafka, own = glossary_terms()
    assert len(kafka) + len(own) <= TABLE_LIMIT
    assert kafka == sorted(kafka, key=str.lower)
    assert own == sorted(own, key=str.lower)
    assert not set(kafka) & set(own)


def test_no_retired_name_returns() -> None:
    found = {}
    for path in SOURCES:
        name = str(path.relative_to(ROOT))
        if name.startswith(("kcore", "tools/", "examples/")):
            retired = sorted({word for word in re.findall(r"\b[A-Za-z_]\w*\b", text_of(path)) if is_retired(word)})
            if retired:
                found[name] = retired
    assert not found


def test_the_top_level_has_only_known_entries() -> None:
    """The root folder of the repository has no unexpected tracked file, such as the output of a program run there."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert {path.partition("/")[0] for path in listed.splitlines()} == TOP_LEVEL


def test_files_are_about_600_lines_at_most() -> None:
    texts = {path: text_of(path) for path in SOURCES}
    long = {
        str(path): lines
        for path, text in texts.items()
        if (lines := text.count("\n")) > MAX_FILE_LINES and GENERATED not in text.partition("\n")[0]
    }
    assert not long


def test_the_table_of_compiled_modules_is_complete() -> None:
    """The table names every compiled module, and the files of its tests exist."""
    section = text_of(ROOT / "docs/architecture.md").partition("## Compiled modules\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    modules = {str(path.relative_to(ROOT / "kcore_ext").with_suffix("")) for path in tracked_files(".pyx")}
    folders = {name for name in named if name.endswith("/")}
    in_folders = {module for module in modules if module.startswith(tuple(folders))}
    assert modules - in_folders == {name for name in named - folders if not name.endswith(".pxd")}
    tests = {name for row in rows for name in re.findall(r"`([^`]+)`", row[2])}
    assert [name for name in sorted(tests) if not list((ROOT / "tests").glob(name))] == []


def returns_in_handlers(text: str) -> list[int]:
    """Returns the line numbers of each `return` inside an `except` block of a compiled module."""
    lines = text.split("\n")
    found = []
    for start, line in enumerate(lines):
        match = re.match(r"( *)except\b.*:", line)
        if match is None:
            continue
        for number, inner in enumerate(lines[start + 1 :], start + 2):
            if inner.strip() and len(inner) - len(inner.lstrip()) <= len(match[1]):
                break
            if re.match(r" *return\b", inner):
                found.append(number)
    return found


def test_compiled_handlers_do_not_return() -> None:
    """No `except` block in a `.pyx` file contains a `return`, because Cython could then crash.

    At such a `return`, Cython releases the traceback. The traceback is NULL if there was no memory to create it.
    """
    assert returns_in_handlers("try:\n    x()\nexcept A:\n    if y:\n        return 1\n") == [5]
    found = {
        str(path): rows for path in SOURCES if path.suffix == ".pyx" and (rows := returns_in_handlers(text_of(path)))
    }
    assert not found


def test_functions_are_at_most_70_lines() -> None:
    long = []
    for path in SOURCES:
        if path.suffix != ".py":
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long.append(f"{path}:{node.lineno}: {node.name} has {lines} lines")
    assert not long


def compiled_functions(text: str) -> list[tuple[str, int]]:
    """Returns the functions of a compiled module with their line counts."""
    lines = text.split("\n")
    found = []
    for start, line in enumerate(lines):
        match = re.match(r"( *)(?:def|cpdef|cdef)\b(?! (?:class|extern|enum|struct)\b)[^=]*\(", line)
        if match is None:
            continue
        last = start
        for number, inner in enumerate(lines[start + 1 :], start + 1):
            if inner.strip() and len(inner) - len(inner.lstrip()) <= len(match[1]) and inner.strip()[0] not in ")]}":
                break
            if inner.strip():
                last = number
        found.append((line.strip(), last - start + 1))
    return found


def test_compiled_functions_are_at_most_70_lines() -> None:
    assert compiled_functions("cdef int a(\n    b,\n):\n    c()\n\ncdef class D:\n    x()\n") == [("cdef int a(", 4)]
    assert not [
        f"{path}: {name} has {lines} lines"
        for path in SOURCES
        if path.suffix == ".pyx"
        for name, lines in compiled_functions(text_of(path))
        if lines > MAX_FUNCTION_LINES
    ]


def test_newest_versions_with_names_are_not_repeated_as_private_constants() -> None:
    """Only `kcore.client.versions` defines the newest request versions that identify topics by name."""
    assert VERSION_CONSTANT.search("_COMMIT_VERSION = 9")
    product = ("kcore/", "kcore_ext/", "examples/")
    assert not [
        name
        for path in SOURCES
        if (name := str(path.relative_to(ROOT))).startswith(product) and VERSION_CONSTANT.search(text_of(path))
    ]


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"\b(?:kcore|kcore_ext|tests|tools|docs|bench)/[\w./-]*\w\.(?:pyx|pyi|py|md|json)\b", text))
    missing = sorted(name for name in named if "NAME" not in name and not (ROOT / name).exists())
    assert len(named) > 20
    assert missing == []


def test_the_functions_of_an_offset_commit_exist() -> None:
    """The table in docs/architecture.md names functions that exist in the named files."""
    text = (ROOT / "docs" / "architecture.md").read_text().partition("### The functions of an OffsetCommit\n")[2]
    rows = re.findall(r"^\| [^|]*\| `([^`]+)` \| (.+) \|$", text.partition("\n## ")[0], re.MULTILINE)
    named = [(file, name) for file, names in rows for name in re.findall(r"`(?:\w+\.)?(\w+)`", names)]
    assert len(named) > 50
    assert not [
        f"{file}: {name}"
        for file, name in named
        if not re.search(rf"^ *(?:def|cpdef|cdef)\b[^=\n]*\b{name}\(", text_of(ROOT / file), re.MULTILINE)
    ]


def test_the_model_commits_of_the_guide_exist() -> None:
    """The checklists of CONTRIBUTING.md name commits that exist in this repository."""
    named = re.findall(r"`git show ([0-9a-f]{8})", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) >= 4
    shallow = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"], capture_output=True, text=True, check=False
    )
    if shallow.returncode or shallow.stdout.strip() != "false":
        pytest.skip("not a full clone: the history is not here")
    kinds = [
        subprocess.run(["git", "-C", str(ROOT), "cat-file", "-t", name], capture_output=True, text=True, check=False)
        for name in named
    ]
    assert [kind.stdout.strip() for kind in kinds] == ["commit"] * len(named)


def test_no_file_names_a_private_path() -> None:
    texts = tracked_files(".py", ".pyi", ".pyx", ".pxd", ".md", ".toml", ".sh", ".yml", ".yaml", ".cfg", ".in")
    this = Path(__file__).resolve()
    named = {
        str(path.relative_to(ROOT)): match.group(0)
        for path in texts
        if path.resolve() != this and (match := PRIVATE_PATH.search(text_of(path)))
    }
    assert not named


def test_commit_subjects_have_a_prefix_and_at_most_72_characters() -> None:
    known = subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{FIRST_CHECKED_COMMIT}^{{commit}}"],
        capture_output=True,
        check=False,
    )
    if known.returncode:
        pytest.skip("not a full clone: the history is not here")
    subjects = subprocess.run(
        ["git", "-C", str(ROOT), "log", "--format=%s", f"{FIRST_CHECKED_COMMIT}..HEAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert not [subject for subject in subjects if len(subject) > MAX_SUBJECT_LENGTH or not SUBJECT.match(subject)]
