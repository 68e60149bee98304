"""Builds the sdist and the wheel of this machine into `dist`, and tests the wheel in an empty environment.

    python -m tools.distributions build
    python -m tools.distributions test

`build` makes the wheel from the unpacked sdist, so a file that the sdist lacks is an error. On Linux, auditwheel names
the oldest glibc that has every symbol of the wheel. `test` needs the network for the dependencies, but no compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "build" / "dist"
"""The folder of the wheel until auditwheel renames the wheel."""
DIST = ROOT / "dist"
DEMO_TIMEOUT_S = 300.0


class Environment:
    """A virtual environment.

    Args:
        folder: the folder of the environment, which is created.
    """

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True, clear=True)
        self.bin = folder / "bin"

    def install(self, *requirements: str, variables: dict[str, str] | None = None) -> None:
        """Installs requirements from wheels only.

        Args:
            requirements: arguments of `pip install`.
            variables: all environment variables of pip; None to use the environment of this process.
        """
        pip = [str(self.bin / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--only-binary", ":all:", *requirements], env=variables, check=True)


def extra(name: str) -> list[str]:
    """Returns the requirements of an extra of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["optional-dependencies"][name])


def run_silently(command: list[str], variables: dict[str, str]) -> None:
    """Runs a command, and prints its output only if it fails, because compilers print hundreds of notes.

    Raises:
        SystemExit: the command failed.
    """
    result = subprocess.run(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if result.returncode:
        raise SystemExit(f"{result.stdout}\n{' '.join(command)}: exit status {result.returncode}")


def build() -> list[Path]:
    """Builds the sdist and the wheel. Returns their paths."""
    shutil.rmtree(BUILT, ignore_errors=True)
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        tools = Environment(Path(folder))
        tools.install(*extra("dist"))
        variables = {**os.environ, "PATH": f"{tools.bin}{os.pathsep}{os.environ['PATH']}"}
        run_silently([str(tools.bin / "python"), "-m", "build", "--outdir", str(BUILT), str(ROOT)], variables)
        (wheel,) = BUILT.glob("*.whl")
        (sdist,) = BUILT.glob("*.tar.gz")
        shutil.copy2(sdist, DIST)
        if sys.platform == "linux":
            auditwheel = str(tools.bin / "auditwheel")
            run_silently([auditwheel, "repair", "--strip", "--wheel-dir", str(DIST), str(wheel)], variables)
        else:
            shutil.copy2(wheel, DIST)
    return sorted(DIST.iterdir())


def test() -> None:
    """Installs the wheel outside the checkout without a compiler, and runs the smoke test and the demonstration.

    Raises:
        subprocess.CalledProcessError: a step failed.
    """
    (wheel,) = DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        empty = Environment(Path(folder, "environment"))
        # PATH has no compiler, and the variables that name a compiler name a program that fails.
        variables = {"PATH": str(empty.bin), "CC": "false", "CXX": "false", "HOME": folder, "LANG": "C.UTF-8"}
        variables |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        variables |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        python = str(empty.bin / "python")
        empty.install(str(wheel), variables=variables)
        smoke = [python, "-I", str(ROOT / "tools" / "smoke_test.py"), "--outside", str(ROOT)]
        subprocess.run(smoke, cwd=folder, env=variables, check=True)
        empty.install(f"{wheel}[demo]", variables=variables)
        demo = [str(empty.bin / "kcore"), "demo"]
        subprocess.run(demo, cwd=folder, env=variables, check=True, timeout=DEMO_TIMEOUT_S)


def main(arguments: list[str]) -> None:
    """Runs the named steps.

    Args:
        arguments: "build", "test", or both.
    """
    if not arguments or not set(arguments) <= {"build", "test"}:
        raise SystemExit(__doc__)
    if "build" in arguments:
        for path in build():
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")
    if "test" in arguments:
        test()
        print(f"the wheel for {sysconfig.get_platform()} works without a compiler")


if __name__ == "__main__":
    main(sys.argv[1:])
