"""Writes `kcore/node/_sync` from `kcore/node/_async`, or checks that the files are up to date.

python tools/generate_sync.py            writes the files
python tools/generate_sync.py --check    fails if a file is stale

The asynchronous classes are the source. This program removes `async` and `await`, drops the prefix `Async` of names,
and replaces the special methods. A comment that begins with `# sync: ` becomes a line of only the synchronous class.
Both versions of `backend.py` are written by hand, because they contain the differences between tasks and threads.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "kcore" / "node"
SOURCE, TARGET = FOLDER / "_async", FOLDER / "_sync"
BY_HAND = {"backend.py", "__init__.py"}

REPLACEMENTS = (
    (r"\basync (def|with|for) ", r"\1 "),
    (r"\bawait ", ""),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b_async\b", "_sync"),
    (r"\b(open|connect|close)_async\b", r"\1"),
    (r"^( *)# sync: ", r"\1"),
    (r"^( *)# sync:$", ""),
    (r"\basynchronous\b", "synchronous"),
    (r"\ba coroutine function or a function\b", "a function"),
)


def convert(name: str, text: str) -> str:
    """Converts the source of an asynchronous module to that of its synchronous counterpart."""
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return f"# Made by tools/generate_sync.py from _async/{name}: change that file, then run the program.\n{text}"


def render() -> dict[str, str]:
    """Renders every synchronous module, formatted by the rules of the repository."""
    rendered = {}
    for path in sorted(SOURCE.glob("*.py")):
        if path.name in BY_HAND:
            continue
        text = _ruff("check", "--fix", "--select", "I,F401", path.name, convert(path.name, path.read_text()))
        rendered[path.name] = _ruff("format", path.name, text)
    return rendered


def _ruff(*arguments: str) -> str:
    *command, name, text = arguments
    target = TARGET / name
    ruff = Path(sys.executable).with_name("ruff")
    done = subprocess.run(
        [str(ruff), *command, "--quiet", "--stdin-filename", str(target), "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and not done.stdout:
        raise SystemExit(f"{name}: {done.stderr}")
    return done.stdout


def main() -> int:
    """Writes the synchronous modules. With `--check`, only compares them with the existing files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    rendered = render()
    stale = [name for name, text in rendered.items() if _current(name) != text]
    stale += [path.name for path in TARGET.glob("*.py") if path.name not in rendered and path.name not in BY_HAND]
    if check:
        if stale:
            print(f"stale in kcore/node/_sync: {', '.join(stale)}; run python tools/generate_sync.py", file=sys.stderr)
        return bool(stale)
    for name, text in rendered.items():
        (TARGET / name).write_text(text)
    return 0


def _current(name: str) -> str:
    path = TARGET / name
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
