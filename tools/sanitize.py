"""Runs the tests of compiled code, and the fuzzer, on a build with AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tools.sanitize --seconds 30        the build, the tests, and 30 s of fuzzing

The sources are copied to `build/sanitize/tree` and built there, so that the build of the checkout stays unchanged. A
second run builds only changed modules. The run fails if a sanitizer reports an error, also in a child process of a
test. By default, it includes the tests of compiled code, the log, the runtime, transactions, share groups and streams
groups. These tests take about 20 minutes of CPU after the build. The rest of the suite (servers, real clients, Spark)
would take hours. The program needs gcc with libasan and libubsan.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PLACE: Final = ROOT / "build" / "sanitize"
TREE: Final = PLACE / "tree"
REPORTS: Final = PLACE / "reports"
COPIED: Final = ("kcore", "kcore_ext", "tests", "tools", "docs", "examples", "setup.py", "pyproject.toml", "README.md")
IGNORED: Final = shutil.ignore_patterns("*.so", "*.c", "*.cpp", "__pycache__")
RUNTIMES: Final = ("libasan.so", "libubsan.so")
TESTS: Final = (
    "tests/kcore_ext",
    "tests/fuzz",
    "tests/protocol",
    "tests/server/test_request_queue.py",
    "tests/group/offsets/test_block.py",
    "tests/group/offsets/test_encoded_commits.py",
    "tests/group/consumer/test_compiled_records.py",
    "tests/log/test_tail.py",
    "tests/broker/data/test_fetch_reader.py",
    "tests/spark/test_decode_twins.py",
    "tests/spark/test_batch_replay.py",
    "tests/assignors/test_properties.py",
    "tests/transaction",
    "tests/group/share",
    "tests/group/streams",
    "tests/broker/share",
    "tests/share",
    "tests/runtime",
    "tests/log",
)
LONG_TESTS: Final = (
    "tests/kcore_ext",
    "tests/broker/data/test_fetch_reader.py",
    "tests/broker/share",
    "tests/group/streams/test_model.py",
)
"""Folders and files of `TESTS` whose tests with the mark `long` run, too."""
TEST_TIMEOUT_S: Final = 1800
"""The time limit of one test in seconds. It is several times the limit in an ordinary build."""


class SanitizeError(Exception):
    """Raised if the sanitizers cannot run on this machine."""


def runtime_libraries() -> str:
    """Returns the sanitizers' libraries for `LD_PRELOAD`, because the interpreter is built without sanitizers."""
    libraries = []
    for name in RUNTIMES:
        run = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        path = Path(run.stdout.strip())
        if not path.is_absolute():
            raise SanitizeError(f"gcc has no {name}: install its sanitizer libraries")
        libraries.append(str(path.resolve()))
    return " ".join(libraries)


def sanitized_environment() -> dict[str, str]:
    """Returns the environment of every process that loads the build."""
    memory = "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=32:detect_stack_use_after_return=0"
    return os.environ | {
        "KCORE_SANITIZE": "1",
        "LD_PRELOAD": runtime_libraries(),
        "PYTHONMALLOC": "malloc",  # the interpreter's own pools would hide where an object ends
        "PYTHONPATH": str(TREE),
        "ASAN_OPTIONS": f"{memory}:log_path={REPORTS / 'address'}",
        # Beside the other library, this one writes its reports to standard error, so a report must end the process.
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:abort_on_error=1",
    }


def copy_sources() -> None:
    """Copies the changed files to the tree. Unchanged files keep their times, so that they are not built again."""
    TREE.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, TREE / name, ignore=IGNORED, copy_function=_copy_changed, dirs_exist_ok=True)
        else:
            _copy_changed(str(source), str(TREE / name))
    for left in (path for name in COPIED for path in (TREE / name).rglob("*.py*")):
        if left.suffix in (".py", ".pyx", ".pxd", ".pyi") and not (ROOT / left.relative_to(TREE)).exists():
            left.unlink()


def _copy_changed(source: str, target: str) -> None:
    there = Path(target)
    if not there.exists() or there.stat().st_mtime_ns != Path(source).stat().st_mtime_ns:
        shutil.copy2(source, target)


def build() -> None:
    """Builds every module with the sanitizers, in the copied tree."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=TREE, env=os.environ | {"KCORE_SANITIZE": "1"}, check=True)


def reports() -> list[Path]:
    """Returns the files that the sanitizers have written."""
    return sorted(path for path in REPORTS.glob("*") if path.stat().st_size)


def run(arguments: list[str]) -> bool:
    """Runs a Python program on the build. Returns True if the program succeeded without a report."""
    sys.stdout.write(f"sanitize: python {' '.join(arguments)}\n")
    sys.stdout.flush()
    status = subprocess.run([sys.executable, *arguments], cwd=TREE, env=sanitized_environment(), check=False).returncode
    return status == 0 and not reports()


def main() -> int:
    """Builds, tests and fuzzes. Returns 1 if a step failed or wrote a report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to fuzz")
    parser.add_argument(
        "tests", nargs="*", default=TESTS, help="files and folders of tests (default: of compiled code)"
    )
    options = parser.parse_args()
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    copy_sources()
    build()
    # Standard error is not captured, because a report there is the last line of a process.
    pytest = ["-m", "pytest", "-q", "--capture=sys", "-o", f"timeout={TEST_TIMEOUT_S}"]
    sound = run([*pytest, *options.tests])
    if options.tests is TESTS:
        sound = run([*pytest, "-m", "long", *LONG_TESTS]) and sound
    if options.seconds > 0:
        sound = run(["-m", "tools.fuzz", "--seconds", str(options.seconds), "--keep", str(PLACE / "found")]) and sound
    for path in reports():
        sys.stdout.write(f"sanitize: {path}\n{path.read_text(errors='replace')}\n")
    sys.stdout.write("sanitize: nothing was found\n" if sound else "sanitize: failed\n")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
