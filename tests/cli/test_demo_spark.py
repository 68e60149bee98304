"""`kcore demo --spark`: its script of events and its errors. `make demo-spark` runs the whole demonstration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kcore.cli import main
from kcore.cli.demo import own_readme
from kcore.demo.spark_cluster import moto_command, s3_jars
from kcore.demo.traffic import GROUPS, STORMY, script
from kcore.errors import ConfigError, KcoreError
from kcore.spark.jobs.session import check_java


@pytest.mark.parametrize("seed", range(20))
def test_the_same_seed_gives_the_same_script(seed: int) -> None:
    """The events are ordered by time, lie within the duration, and name existing groups. Each script has a crash and a
    rebalance storm.
    """
    acts = script(seed, 20.0)
    assert acts == script(seed, 20.0)
    assert [act.at_s for act in acts] == sorted(act.at_s for act in acts)
    assert all(0 < act.at_s < 20.0 and act.what in ("join", "leave", "crash") and act.group in GROUPS for act in acts)
    assert any(act.what == "crash" for act in acts)
    late = [act.what for act in acts if act.group == STORMY and act.at_s > 0.7 * 20.0]
    assert late == ["join", "leave"] * 3


def test_without_java_the_error_states_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KcoreError, match=r"version 17 or newer.*apt-get install"):
        check_java()


@pytest.mark.parametrize("package", ["pyarrow", "pyspark"])
@pytest.mark.parametrize("more", [["rebuild", "events", "--out", "state"], ["--help"]])
def test_without_the_extra_the_error_names_it(package: str, more: list[str]) -> None:
    code = f"import sys; sys.modules['{package}'] = None; from kcore.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "spark", *more], capture_output=True, text=True, check=False)
    if package == "pyspark" and more == ["--help"]:
        assert (done.returncode, done.stderr) == (0, ""), "the help text does not need Spark"
        return
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("kcore: jobs need the extra `spark` (pip install kcore[spark]): ")
    assert done.stderr.count("\n") == 1


def test_the_text_of_the_demonstration_is_found_from_any_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert own_readme().read_text().startswith("# kcore")
    installed = tmp_path / "lib" / "kcore"
    monkeypatch.setattr("kcore.__file__", str(installed / "__init__.py"))
    named = SimpleNamespace(name="METADATA", locate=lambda: tmp_path / "METADATA")
    monkeypatch.setattr("importlib.metadata.files", lambda _: [SimpleNamespace(name="RECORD"), named])
    assert own_readme() == tmp_path / "METADATA"
    monkeypatch.setattr("importlib.metadata.files", lambda _: None)
    with pytest.raises(ConfigError, match="--file FILE"):
        own_readme()


def test_missing_packages_for_s3_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    (tmp_path / "hadoop-aws-0.1.jar").touch()  # for another version of Hadoop
    with pytest.raises(ConfigError, match=r"lacks hadoop-aws-\d+\.\d+\.\d+\.jar, which Spark needs") as error:
        s3_jars(tmp_path)
    version = str(error.value).partition("hadoop-aws-")[2].partition(".jar")[0]
    names = [f"a/hadoop-aws-{version}.jar", "b/bundle-2.3.4.jar", "c/analyticsaccelerator-s3-1.0.jar"]
    for name in names:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    assert s3_jars(tmp_path) == [tmp_path / name for name in names]

    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"pip install 'moto\[server\]'"):
        moto_command()


def test_a_duration_of_zero_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--spark", "--seconds", "0"]) == 1
    assert "--seconds 0.0: expected more than 0" in capsys.readouterr().err


def test_maven_downloads_the_packages_for_s3_in_matching_versions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A fake `mvn` program creates each requested file. A second call of `s3_jars` finds the files without `mvn`."""
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ConfigError, match=r"Spark needs hadoop-aws-.*\.jar: install Maven"):
        s3_jars()
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(
        f"""#!{sys.executable}
import pathlib, sys
assert sys.argv[1:5] == ["-q", "-B", "dependency:get", "-Dtransitive=false"], sys.argv
group, name, version, form = sys.argv[5].removeprefix("-Dartifact=").split(":")
place = pathlib.Path({str(tmp_path)!r}, ".m2", "repository", *group.split("."), name, version)
place.mkdir(parents=True)
versions = "<aws-java-sdk-v2.version>2.3.4</aws-java-sdk-v2.version>"
versions += "<amazon-s3-analyticsaccelerator-s3.version>1.0</amazon-s3-analyticsaccelerator-s3.version>"
(place / f"{{name}}-{{version}}.{{form}}").write_text(versions)
"""
    )
    maven.chmod(0o755)
    found = s3_jars()
    assert [jar.name for jar in found[1:]] == ["bundle-2.3.4.jar", "analyticsaccelerator-s3-1.0.jar"]
    assert found[0].name.startswith("hadoop-aws-")
    maven.unlink()
    assert s3_jars() == found
